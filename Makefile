# Every target does its own set-up: a fresh .venv where there is none or where pyproject.toml or constraints.txt changed.
# Another interpreter (3.11 or newer): make check PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
DEVELOPED := $(VENV)/.developed
# Tests in parallel, a torch thread each: more threads than cores make tiny models slower, not faster.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4

.DEFAULT_GOAL := help
.PHONY: help run check check-slow fix format lint types test coverage docs golden clean

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

check-slow: $(DEVELOPED)  ## The tests that take longer, such as the tutorial word for word.
	$(PYTEST) -m slow tests

fix: $(DEVELOPED)  ## Format, and mend what the linter can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(DEVELOPED)  ## Rewrite the golden short runs in tests/golden/; review the diff.
	OMP_NUM_THREADS=1 $(BIN)/python tests/test_golden.py

clean:  ## Remove the environment and everything built. Runs stay.
	rm -rf $(VENV) site dist build .coverage htmlcov .pytest_cache .ruff_cache .hypothesis

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
