"""How good a policy is on held-out questions: sampled, greedy, and best of several."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from grpo_kit.batch import Rollouts, Signals
from grpo_kit.data import PromptSet
from grpo_kit.masked import row_mean
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import Reward
from grpo_kit.samplers import TransformersSampler


def evaluate(recipe: Recipe, policies: Mapping[str, Policy], questions: PromptSet) -> dict[str, float]:
    """`eval/<policy>/*` of every live policy; see `evaluate_policy`."""
    assert recipe.evaluation is not None
    training = recipe.sampler
    report: dict[str, float] = {}
    for name in recipe.learners:
        sampler = TransformersSampler(
            policy=name,
            samples=recipe.evaluation.samples,
            max_new_tokens=recipe.evaluation.max_new_tokens or getattr(training, "max_new_tokens", 512),
            stop=getattr(training, "stop", ()),
            rows_per_batch=getattr(training, "rows_per_batch", 512),
        )
        found = evaluate_policy(policies[name], questions, recipe.rewards[recipe.evaluation.reward], sampler)
        report |= {f"eval/{name}/{key}": value for key, value in found.items()}
    return report


def evaluate_policy(
    policy: Policy, questions: PromptSet, reward: Reward, sampler: TransformersSampler
) -> dict[str, float]:
    """Accuracy of one policy, by a sampler of its own at temperature 1 and the same one at temperature 0.

    Returns:
        `accuracy` (mean over `samples` completions at temperature 1) and its standard error over questions, `greedy`
        (temperature 0), `pass@k` (k = `samples`: share of questions with a correct completion), `length` (mean tokens
        at temperature 1), `entropy` (mean over rows of each row's mean, nats a token), `missing` (share of completions
        without a verdict; they are left out of the means, and a question without any is left out everywhere). The
        samples come from a fixed seed, so that two evaluations of the same weights agree.
    """
    generator = torch.Generator().manual_seed(0)
    prompts = questions.take(range(len(questions)))
    sampled = sampler(prompts, {policy.name: policy}, generator)
    greedy = replace(sampler, samples=1, temperature=0.0)(prompts, {policy.name: policy}, generator)
    entropy = policy.score_all(sampled, entropy=True).entropy
    assert entropy is not None
    correct = _correct(reward, sampled).reshape(len(questions), sampler.samples)
    known = ~correct.isnan()
    judged = known.any(1)
    right = torch.where(known, correct, 0)
    shares = (right.sum(1) / known.sum(1).clamp(min=1))[judged]
    return {
        "accuracy": float(correct.nanmean()),
        "accuracy_stderr": float(shares.std()) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan,
        "greedy": float(_correct(reward, greedy).nanmean()),
        f"pass@{sampler.samples}": float(right.amax(1)[judged].mean()),
        "length": float(sampled.lengths.double().mean()),
        "entropy": float(row_mean(entropy, sampled.mask).mean()),
        "missing": float((~known).double().mean()),
    }


def _correct(reward: Reward, rollouts: Rollouts) -> torch.Tensor:
    values = reward(rollouts, Signals({})).per_row().double()
    return torch.where(values.isnan(), values, (values == 1).double())
