"""Models for real vLLM: its CPU attention begins at heads of 32 dimensions, and those of `tiny:small` have 16."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from einops import rearrange
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from grpo_kit.policies.tiny import tiny_path


@cache
def small_with_wide_heads() -> str:
    """The folder of `tiny:small` with heads of 32: the same function of its tokens, and so the same policy."""
    folder = mkdtemp(prefix="grpo-kit-small-")
    narrow = AutoModelForCausalLM.from_pretrained(tiny_path("small"), dtype=torch.float32)
    widened(narrow).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_path("small")).save_pretrained(folder)
    assert Path(folder, "config.json").exists()
    return folder


@torch.no_grad()
def widened(narrow: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model with heads twice as wide, the new dimensions 0, all logits as before.

    Rotary pair i of d dimensions turns with base^(-2i/d), which is pair 2i of 2d. Scores are divided by sqrt(2d) in
    place of sqrt(d), which the queries make up for.
    """
    config = deepcopy(narrow.config)
    own = config.head_dim
    config.head_dim = 2 * own
    wide = LlamaForCausalLM(config).eval()
    there = torch.cat([torch.arange(0, own, 2), own + torch.arange(0, own, 2)])
    weights = wide.state_dict()
    for name, weight in narrow.state_dict().items():
        if not name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")):
            weights[name].copy_(weight)
            continue
        across = name.endswith("o_proj.weight")
        heads = rearrange(weight.T if across else weight, "(head own) width -> head own width", own=own)
        spread = torch.zeros(len(heads), 2 * own, heads.shape[2])
        spread[:, there] = heads * (2**0.5 if name.endswith("q_proj.weight") else 1)
        found = rearrange(spread, "head own width -> (head own) width")
        weights[name].copy_(found.T if across else found)
    return wide
