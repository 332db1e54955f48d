"""Policies: Hugging Face causal language models that score, write and are saved."""

from grpo_kit.policies.load import PolicySpec, load_policy, load_tokenizer
from grpo_kit.policies.lora import Lora
from grpo_kit.policies.policy import Policy

__all__ = ["Lora", "Policy", "PolicySpec", "load_policy", "load_tokenizer"]
