"""Samplers: policies write completions, or the data set gives its own."""

from grpo_kit.samplers.data_rows import DataRows
from grpo_kit.samplers.grouped import Grouped
from grpo_kit.samplers.hinted import Hinted
from grpo_kit.samplers.mixed import Mixed, Share
from grpo_kit.samplers.replay import Replay
from grpo_kit.samplers.role import SAMPLERS, Sampler
from grpo_kit.samplers.transformers import TransformersSampler
from grpo_kit.samplers.vllm import VLLMSampler

SAMPLERS.built_in |= {
    "transformers": TransformersSampler,
    "vllm": VLLMSampler,
    "data_rows": DataRows,
    "mixed": Mixed,
    "grouped": Grouped,
    "hinted": Hinted,
    "replay": Replay,
}

__all__ = [
    "SAMPLERS",
    "DataRows",
    "Grouped",
    "Hinted",
    "Mixed",
    "Replay",
    "Sampler",
    "Share",
    "TransformersSampler",
    "VLLMSampler",
]
