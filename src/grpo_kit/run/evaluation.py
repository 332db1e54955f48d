"""How good the live policies are on held-out questions during a run: sampled, greedy, and best of several."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from grpo_kit.batch import Rollouts
from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.evaluation.estimates import accuracy, mean_pass_at_k, sizes, standard_error
from grpo_kit.evaluation.verdicts import judge, tally
from grpo_kit.masked import row_mean
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import Reward
from grpo_kit.samplers import TransformersSampler


def evaluate(
    recipe: Recipe, policies: Mapping[str, Policy], questions: PromptSet, *, temperature: float = 1.0
) -> dict[str, float]:
    """`eval/<policy>/*` of every live policy, sampled at a temperature; see `evaluate_policy`."""
    assert recipe.evaluation is not None
    settings, report = recipe.evaluation, dict[str, float]()
    for name in recipe.learners:
        sampled = answers_of(recipe, name, temperature=temperature)
        found = evaluate_policy(
            policies[name],
            questions,
            recipe.rewards[settings.reward],
            sampled=sampled,
            greedy=replace(sampled, samples=1, temperature=0.0),
            samples=settings.samples,
        )
        report |= {f"eval/{name}/{key}": value for key, value in found.items()}
    return report


def answers_of(recipe: Recipe, policy: str, *, temperature: float = 1.0) -> TransformersSampler:
    """How a policy is asked in an evaluation: as in training, where `[evaluation]` says nothing else."""
    assert recipe.evaluation is not None
    training, settings = recipe.sampler, recipe.evaluation
    return TransformersSampler(
        policy=policy,
        samples=settings.samples,
        temperature=temperature,
        max_new_tokens=settings.max_new_tokens or getattr(training, "max_new_tokens", 512),
        stop=getattr(training, "stop", ()),
        rows_per_batch=settings.rows_per_batch or getattr(training, "rows_per_batch", 512),
    )


def evaluate_policy(
    policy: Policy,
    questions: PromptSet,
    reward: Reward,
    *,
    sampled: Callable[..., Rollouts],
    greedy: Callable[..., Rollouts],
    samples: int,
) -> dict[str, float]:
    """How often a policy is right, by the reward's value 1, and how it writes.

    Args:
        policy: who answers.
        questions: with the columns that the reward reads.
        reward: what is right.
        sampled: writes `samples` completions of each prompt at one temperature (1 in a run), prompt after prompt.
        greedy: writes one, at temperature 0.
        samples: completions a question.

    Returns:
        `accuracy` (mean over questions of the share of right completions) and its standard error, `greedy` (the same
        of the greedy ones), `pass@k` (unbiased, for k = 1, 2, 4, ... and `samples`), `length` (mean tokens of the
        sampled ones), `entropy` (mean over rows of each row's mean, nats a token, at their temperature), `missing`
        (share of completions without a verdict; they are left out everywhere else, and so is a question without any,
        or for `pass@k` with fewer than k). The samples come from a fixed seed, so that two evaluations of the same
        weights agree.
    """
    generator = torch.Generator().manual_seed(0)
    prompts = questions.take(range(len(questions)))
    rollouts = sampled(prompts, {policy.name: policy}, generator)
    at_zero = greedy(prompts, {policy.name: policy}, generator)
    scores = policy.score_all(rollouts, temperature=rollouts.temperature, detail=Detail(entropy=True))
    entropy = scores.entropy
    assert entropy is not None
    verdicts = judge(reward, rollouts)
    tallies = tally(verdicts, samples)
    return {
        "accuracy": accuracy(tallies),
        "accuracy_stderr": standard_error(tallies),
        "greedy": accuracy(tally(judge(reward, at_zero), 1)),
        **{f"pass@{k}": mean_pass_at_k(tallies, k) for k in sizes(samples)},
        "length": float(rollouts.lengths.double().mean()),
        "entropy": float(row_mean(entropy, rollouts.mask).mean()),
        "missing": sum(verdict.right is None for verdict in verdicts) / len(verdicts),
    }
