"""How good a policy is on held-out questions: sampled, greedy, and best of several."""

import math
from collections.abc import Mapping

import torch

from grpo_kit.batch import Rollouts, Signals
from grpo_kit.data import PromptSet
from grpo_kit.masked import row_mean
from grpo_kit.policies import Policy
from grpo_kit.recipe import EvaluationSpec, Recipe
from grpo_kit.rewards import Reward
from grpo_kit.samplers import TransformersSampler


def evaluate(recipe: Recipe, policies: Mapping[str, Policy], questions: PromptSet) -> dict[str, float]:
    """`eval/<policy>/*` of every live policy; see `evaluate_policy`."""
    assert recipe.evaluation is not None
    longest = recipe.evaluation.max_new_tokens or getattr(recipe.sampler, "max_new_tokens", 512)
    stop: tuple[str, ...] = getattr(recipe.sampler, "stop", ())
    reward = recipe.rewards[recipe.evaluation.reward]
    report: dict[str, float] = {}
    for name in recipe.learners:
        found = evaluate_policy(policies[name], questions, reward, recipe.evaluation, longest, stop)
        report |= {f"eval/{name}/{key}": value for key, value in found.items()}
    return report


def evaluate_policy(
    policy: Policy,
    questions: PromptSet,
    reward: Reward,
    settings: EvaluationSpec,
    max_new_tokens: int,
    stop: tuple[str, ...] = (),
) -> dict[str, float]:
    """Accuracy of one policy.

    Returns:
        `accuracy` (mean over `samples` completions at temperature 1) and its standard error over questions, `greedy`
        (temperature 0), `pass@k` (k = `samples`: share of questions with a correct completion), `length` (mean tokens
        at temperature 1), `entropy` (mean over those tokens, nats), `missing` (share of completions without a
        verdict; they are left out of the means). The samples come from a fixed seed, so that two evaluations of the
        same weights agree.
    """
    generator = torch.Generator().manual_seed(0)
    prompts = questions.take(range(len(questions)))
    sampler = TransformersSampler(
        policy=policy.name, samples=settings.samples, max_new_tokens=max_new_tokens, stop=stop
    )
    sampled = sampler(prompts, {policy.name: policy}, generator)
    best = TransformersSampler(policy=policy.name, samples=1, max_new_tokens=max_new_tokens, temperature=0.0, stop=stop)
    greedy = best(prompts, {policy.name: policy}, generator)
    entropy = policy.score_all(sampled, entropy=True).entropy
    assert entropy is not None
    correct = _correct(reward, sampled).reshape(len(questions), settings.samples)
    known = ~correct.isnan()
    answered = torch.where(known, correct, 0).sum(1) / known.sum(1).clamp(min=1)
    certain = _correct(reward, greedy)
    return {
        "accuracy": float(correct.nanmean()),
        "accuracy_stderr": float(answered.std()) / math.sqrt(len(questions)) if len(questions) > 1 else math.nan,
        "greedy": float(certain.nanmean()),
        f"pass@{settings.samples}": float((torch.where(known, correct, 0) == 1).any(1).double().mean()),
        "length": float(sampled.lengths.double().mean()),
        "entropy": float(row_mean(entropy, sampled.mask).mean()),
        "missing": float((~known).double().mean()),
    }


def _correct(reward: Reward, rollouts: Rollouts) -> torch.Tensor:
    values = reward(rollouts, Signals({})).per_row().double()
    return torch.where(values.isnan(), values, (values == 1).double())
