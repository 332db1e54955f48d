"""Checkpoints: a training's whole state on disk, whole or not there."""

from grpo_kit.checkpoints.state import restore, state_of
from grpo_kit.checkpoints.store import Checkpoint, CheckpointError, all_in, newest, prune, save

__all__ = ["Checkpoint", "CheckpointError", "all_in", "newest", "prune", "restore", "save", "state_of"]
