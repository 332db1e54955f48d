"""What vLLM does to the process around it when it starts, held back or undone."""

import gc
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""The engine's core in this process, so that it can be handed tensors."""
UNLESS_SET = {"VLLM_LOGGING_LEVEL": "ERROR"}
"""What the user's own environment overrides."""


@contextmanager
def own_process() -> Iterator[None]:
    """Inside, vLLM starts in this process; afterwards what it changed of it is as before.

    That is the state of the global random generators, the default precision, the number of threads, and
    `torch.set_num_threads`, which vLLM disables on the CPU.
    """
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, *UNLESS_SET)}
    os.environ.update(UNLESS_SET | {name: own for name, own in before.items() if own is not None} | ENVIRONMENT)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    set_threads, threads, precision = torch.set_num_threads, torch.get_num_threads(), torch.get_default_dtype()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_default_dtype(precision)
        torch.set_num_threads = set_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def own_chance() -> Iterator[None]:
    """Inside, vLLM may draw from torch's global generators; afterwards they are as before."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield


_AT_WORK: set[int] = set()
"""Engines of vLLM in this process."""


def started(llm: Any) -> None:
    """Count an engine among those at work."""
    _AT_WORK.add(id(llm))


def stop(llm: Any) -> None:
    """Stop an engine of vLLM and free its memory; others go on."""
    _AT_WORK.discard(id(llm))
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def share_process_groups() -> None:
    """Let the last engine of this process take down its process groups; in vLLM the first to stop does."""
    core: Any = import_module("vllm.v1.engine.core")
    takes_down = core.cleanup_dist_env_and_memory
    if getattr(takes_down, "waits", False):
        return

    def by_the_last(*args: Any, **settings: Any) -> None:
        if not _AT_WORK:
            takes_down(*args, **settings)

    by_the_last.waits = True  # pyright: ignore[reportFunctionMemberAccess]
    core.cleanup_dist_env_and_memory = by_the_last
