"""Buffers: rollouts on disk with what policies say of them, written once and read through the memory map."""

from grpo_kit.buffers.cost import Cost
from grpo_kit.buffers.fill import Filled, fill
from grpo_kit.buffers.refresh import Refresh
from grpo_kit.buffers.store import Buffer

__all__ = ["Buffer", "Cost", "Filled", "Refresh", "fill"]
