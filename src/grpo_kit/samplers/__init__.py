"""Samplers: policies write completions, or the data set gives its own."""

from grpo_kit.samplers.data_rows import DataRows
from grpo_kit.samplers.mixed import Mixed, Share
from grpo_kit.samplers.replay import Replay
from grpo_kit.samplers.role import SAMPLERS, Sampler
from grpo_kit.samplers.transformers import TransformersSampler

SAMPLERS.built_in |= {"transformers": TransformersSampler, "data_rows": DataRows, "mixed": Mixed, "replay": Replay}

__all__ = ["SAMPLERS", "DataRows", "Mixed", "Replay", "Sampler", "Share", "TransformersSampler"]
