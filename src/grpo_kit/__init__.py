"""Composable loss and reward parts for post-training language models, and one loop that composes them."""

from grpo_kit.advantages import GroupMean, LeaveOneOut
from grpo_kit.batch import (
    Behavior,
    Component,
    Experience,
    Prompts,
    Rewards,
    Rollouts,
    Sampling,
    Scores,
    SignalKey,
    Signals,
    Writer,
)
from grpo_kit.config import RecipeError, read_recipe
from grpo_kit.corrections import ImportanceWeight
from grpo_kit.data import Arithmetic, DatasetRows, PromptSet, PromptStream
from grpo_kit.divergences import SampledKL
from grpo_kit.learner import AdamW, Learner
from grpo_kit.logprobs import LogProbs
from grpo_kit.loop import Refill, Report, train
from grpo_kit.objective import NonFiniteError
from grpo_kit.policies import Policy, PolicySpec
from grpo_kit.ratios import SequenceRatio, TokenRatio
from grpo_kit.recipe import EvaluationSpec, Recipe, SelectionSpec
from grpo_kit.rewards import Correctness, Format, OnPolicyKD, Python
from grpo_kit.samplers import TransformersSampler
from grpo_kit.selections import MaxVariance, TopBottom
from grpo_kit.surrogates import Clip, Reinforce
from grpo_kit.terms import DivergenceTerm, EntropyBonus, PolicyGradient
from grpo_kit.weightings import EqualRows, EqualTokens, FixedLength

__version__ = "0.1.0"

__all__ = [
    "AdamW",
    "Arithmetic",
    "Behavior",
    "Clip",
    "Component",
    "Correctness",
    "DatasetRows",
    "DivergenceTerm",
    "EntropyBonus",
    "EqualRows",
    "EqualTokens",
    "EvaluationSpec",
    "Experience",
    "FixedLength",
    "Format",
    "GroupMean",
    "ImportanceWeight",
    "Learner",
    "LeaveOneOut",
    "LogProbs",
    "MaxVariance",
    "NonFiniteError",
    "OnPolicyKD",
    "Policy",
    "PolicyGradient",
    "PolicySpec",
    "PromptSet",
    "PromptStream",
    "Prompts",
    "Python",
    "Recipe",
    "RecipeError",
    "Refill",
    "Reinforce",
    "Report",
    "Rewards",
    "Rollouts",
    "SampledKL",
    "Sampling",
    "Scores",
    "SelectionSpec",
    "SequenceRatio",
    "SignalKey",
    "Signals",
    "TokenRatio",
    "TopBottom",
    "TransformersSampler",
    "Writer",
    "read_recipe",
    "train",
]
