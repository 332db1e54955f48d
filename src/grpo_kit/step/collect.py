"""The rows of one step: sampled, scored and rewarded, with a refill again until enough groups are worth keeping."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch

from grpo_kit import diagnostics
from grpo_kit.batch import Experience, Prompts, Rewards, Sampled
from grpo_kit.data import PromptStream
from grpo_kit.flops import ModelFlops
from grpo_kit.joining import join
from grpo_kit.memory import Memory
from grpo_kit.mismatch import of_mismatch
from grpo_kit.objective import NonFiniteError
from grpo_kit.offers import call_with
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import KLPenalty
from grpo_kit.signals import SignalKey, Signals
from grpo_kit.step.clock import Clock
from grpo_kit.step.rows import kept_groups, sampled_rewards
from grpo_kit.step.skips import Skips, leave_out, rewards_not_finite, scores_not_finite


def collect(
    recipe: Recipe,
    policies: Mapping[str, Policy],
    prompts: PromptStream,
    generator: torch.Generator,
    memory: Memory,
    clock: Clock,
    step: int,
    skips: Skips,
) -> tuple[Experience, dict[str, float]]:
    """The batch of a step with its metrics.

    What rewards remember is moved on by the last round of sampling alone: all rounds of a step see one state.
    """
    epoch = prompts.epoch
    remembered = {key: state for key, state in memory.states.items() if key.startswith("rewards.")}

    def one_round(same_step: bool) -> Experience:
        for name in recipe.rewards:
            memory.states.pop(f"rewards.{name}", None)
        memory.states |= remembered
        drawn = prompts.take(recipe.prompts_per_step, same_step=same_step)
        experience = sample(recipe, policies, drawn, generator, memory, clock, step, epoch, skips)
        if recipe.curriculum is not None:
            prompts.observe(pass_rates(experience, recipe.curriculum.reward))
        return experience

    refill, report = recipe.refill, {"sampler/rounds": 1.0}
    if refill is None:
        experience = one_round(False)
    else:

        def keep(found: Experience) -> Collection[int]:
            groups = kept_groups(refill, found, memory, generator)
            clock.lap("select")
            return groups

        experience, report = refilled(one_round, keep, wanted=recipe.prompts_per_step, tries=refill.tries)
    report |= (
        clock.metrics
        | diagnostics.of_sampling(experience.rollouts)
        | of_mismatch(experience.rollouts, experience.signals)
        | {"time/tokens_per_second": clock.tokens_per_second}
    )
    report |= {
        f"coefficient/{name}": remembered.get(f"rewards.{name}", reward.adaptive.start)
        for name, reward in recipe.rewards.items()
        if isinstance(reward, KLPenalty) and reward.adaptive is not None
    }
    if recipe.curriculum is not None:
        report |= prompts.pass_rates.metrics(recipe.curriculum)
    return experience, report | {"sampler/epoch": prompts.epoch}


def refilled(
    one_round: Callable[[bool], Experience],
    keep: Callable[[Experience], Collection[int]],
    *,
    wanted: int,
    tries: int,
) -> tuple[Experience, dict[str, float]]:
    """Rounds of sampling until `wanted` groups are kept or the tries are used up: the first of them, and metrics.

    Without a kept group it is the last round as it is.
    """
    rounds: list[Experience] = []
    sampled = kept = count = 0
    while True:
        experience = one_round(count > 0)
        groups = keep(experience)
        if groups:
            rounds.append(_of_groups(experience, groups))
        count, kept = count + 1, kept + len(groups)
        sampled += len(experience.rollouts.groups.unique())
        if kept >= wanted or count == tries:
            break
    report = {
        "sampler/rounds": float(count),
        "sampler/groups_kept": kept / sampled,
        "sampler/groups_short": float(max(0, wanted - kept)),
    }
    if not rounds:
        return experience, report
    together = join(rounds)
    return _of_groups(together, list(dict.fromkeys(together.rollouts.groups.tolist()))[:wanted]), report


def sample(
    recipe: Recipe,
    policies: Mapping[str, Policy],
    prompts: Prompts,
    generator: torch.Generator,
    memory: Memory,
    clock: Clock,
    step: int,
    epoch: float,
    skips: Skips,
) -> Experience:
    """One round: rollouts, the frozen signals that some part asked for, and every reward component."""
    try:
        details = recipe.frozen_details()
        written = call_with(recipe.sampler, prompts, policies, generator, details=details, epoch=epoch)
    except ArithmeticError as error:
        raise NonFiniteError(f"step {step}: {error}.") from error
    written = written if isinstance(written, Sampled) else Sampled(rollouts=written, signals={})
    rollouts, supplied = written.rollouts, written.signals
    clock.metrics |= written.metrics
    clock.lap("sample")
    clock.tokens += int(rollouts.mask.sum())
    costs = {name: ModelFlops.of(own.model) for name, own in policies.items()}
    if not getattr(recipe.sampler, "supplies_signals", False):  # those of a buffer were written before
        for name in dict.fromkeys(own.policy for own in rollouts.behavior.writers) if rollouts.behavior else ():
            clock.count(name, "sample", costs[name].sample(rollouts, name))
    there = {key.policy: scores for key, scores in supplied.items()}
    scored = {
        SignalKey(name, policies[name].version): policies[name].score_all(
            rollouts, temperature=rollouts.temperature, detail=detail
        )
        for name, detail in recipe.details().items()
        if name not in there or not there[name].covers(detail)
    }
    for key in scored:
        clock.count(key.policy, "score", costs[key.policy].score(rollouts))
    signals = Signals({**supplied, **scored})
    found = Experience(rollouts=rollouts, signals=signals, rewards=Rewards({}))
    found = leave_out(found, scores_not_finite(signals, rollouts.mask, step), skips)
    clock.lap("score")
    rewards = Rewards(
        {
            name: memory.call(f"rewards.{name}", reward, found.rollouts, found.signals)
            for name, reward in recipe.rewards.items()
        }
    )
    found = replace(found, rewards=rewards)
    found = leave_out(found, rewards_not_finite(rewards, found.rollouts.mask, step), skips)
    clock.lap("reward")
    return found


def pass_rates(experience: Experience, reward: str) -> dict[int, float]:
    """The mean of a reward component over each group's sampled rows; NaN for a group without a verdict.

    ValueError for a reward that is not from 0 to 1.
    """
    values, groups = sampled_rewards(experience, {reward: 1.0}).double(), experience.rollouts.groups
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise ValueError(
            f"curriculum.reward: '{reward}' gave {float(wrong[0]):g}, and a pass rate is from 0 to 1. Name a reward "
            "that is 1 for a correct completion and 0 for a wrong one"
        )
    return {group: diagnostics.mean(values[groups == group]) for group in dict.fromkeys(groups.tolist())}


def _of_groups(experience: Experience, groups: Collection[int]) -> Experience:
    """The rows of some groups, in the order sampled."""
    wanted = set(groups)
    return experience.take([row for row, group in enumerate(experience.rollouts.groups.tolist()) if group in wanted])
