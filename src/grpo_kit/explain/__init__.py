"""What a recipe does, before it is run: objectives, options, signals, model calls, memory."""

from grpo_kit.explain.sections import explain

__all__ = ["explain"]
