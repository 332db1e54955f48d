"""The loop: sample, score, reward, select, update every learner, report. Any number of policies and learners."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from grpo_kit import diagnostics
from grpo_kit.batch import Experience, Prompts, Rewards, SignalKey, Signals
from grpo_kit.checks import cross_checks
from grpo_kit.data import PromptStream
from grpo_kit.joining import join
from grpo_kit.learner import LiveLearner
from grpo_kit.memory import Memory
from grpo_kit.objective import REMEDY, Batch, NonFiniteError, accumulate, freeze, mini_batches
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.shapes import RowMask


@dataclass(frozen=True, kw_only=True, slots=True)
class Refill:
    """Sample again until enough groups are worth training on.

    Attributes:
        keep: the rows worth keeping, whole groups at a time (for example those whose rewards differ).
        tries: rounds of sampling at most; if none kept a group, the last round is used as it is.
    """

    keep: Callable[[Experience], RowMask]
    tries: int = 10

    def __post_init__(self) -> None:
        """Refuse a loop without an end."""
        if self.tries < 1:
            raise ValueError(f"tries = {self.tries}: a refill needs at least 1 round of sampling")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one step did: its metrics, the rows with their signals and rewards, and which rows were trained on."""

    step: int
    metrics: Mapping[str, float]
    experience: Experience
    kept: RowMask


@dataclass(slots=True)
class Clock:
    """Seconds spent in each stage of a step."""

    stages: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self.last
        self.last = now


def train(
    recipe: Recipe, policies: Mapping[str, Policy], prompts: PromptStream, *, refill: Refill | None = None
) -> Iterator[Report]:
    """Run a recipe, yielding a report after each step; evaluation, files and progress are the caller's, in between.

    The policies are updated in place. All randomness comes from the recipe's seed through one generator. ValueError
    lists the mistakes of a recipe that was made in Python.
    """
    if mistakes := cross_checks(recipe, allow_code=True):
        raise ValueError("the recipe cannot be run:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
    generator = torch.Generator().manual_seed(recipe.seed)
    memory = Memory()
    learners = {
        name: LiveLearner.start(name, settings, policies[name], loop_steps=recipe.steps)
        for name, settings in recipe.learners.items()
    }
    for step in range(1, recipe.steps + 1):
        clock = Clock()
        experience, metrics = collect(recipe, policies, prompts, generator, memory, clock, refill, step)
        kept = select_rows(recipe, experience, memory, generator)
        for name, learner in learners.items():
            metrics |= diagnostics.of_rewards(name, learner.settings, experience, kept)
        clock.lap("select")
        batches = {name: freeze(name, learner.settings, experience, kept, memory) for name, learner in learners.items()}
        for name, learner in learners.items():
            metrics |= update(learner, batches[name], generator, step)
            clock.lap(f"update/{name}")
        follow(recipe, policies, step)
        seconds = {f"time/{stage}": spent for stage, spent in clock.stages.items()}
        metrics |= seconds | {"time/step": sum(seconds.values())}
        yield Report(step=step, metrics={"step": float(step), **metrics}, experience=experience, kept=kept)


def collect(
    recipe: Recipe,
    policies: Mapping[str, Policy],
    prompts: PromptStream,
    generator: torch.Generator,
    memory: Memory,
    clock: Clock,
    refill: Refill | None,
    step: int,
) -> tuple[Experience, dict[str, float]]:
    """Sample, score and reward a batch; with a refill, until it holds enough groups worth keeping."""
    rounds: list[Experience] = []
    groups = tries = 0
    while True:
        experience = sample(recipe, policies, prompts.take(recipe.prompts_per_step), generator, memory, clock, step)
        tries += 1
        if refill is None:
            break
        kept = experience.take(torch.nonzero(refill.keep(experience)).flatten().tolist())
        if len(kept.rollouts):
            rounds.append(kept)
            groups += len(kept.rollouts.groups.unique())
        if groups >= recipe.prompts_per_step or tries == refill.tries:
            experience = _first_groups(join(rounds), recipe.prompts_per_step) if rounds else experience
            break
    report = diagnostics.of_sampling(experience.rollouts, clock.stages["sample"])
    return experience, report | {"sampler/epoch": prompts.epoch, "sampler/rounds": float(tries)}


def sample(
    recipe: Recipe,
    policies: Mapping[str, Policy],
    prompts: Prompts,
    generator: torch.Generator,
    memory: Memory,
    clock: Clock,
    step: int,
) -> Experience:
    """One round: rollouts, the frozen signals that some part asked for, and every reward component."""
    try:
        rollouts = recipe.sampler(prompts, policies, generator)
    except ArithmeticError as error:
        raise NonFiniteError(f"step {step}: {error}.") from error
    clock.lap("sample")
    signals = Signals(
        {
            SignalKey(name, policies[name].version): policies[name].score_all(
                rollouts, temperature=rollouts.temperature
            )
            for name in recipe.scored()
        }
    )
    _refuse_non_finite_scores(signals, rollouts.mask, step)
    clock.lap("score")
    components = {
        name: memory.call(f"rewards.{name}", reward, rollouts, signals) for name, reward in recipe.rewards.items()
    }
    clock.lap("reward")
    return Experience(rollouts=rollouts, signals=signals, rewards=Rewards(components))


def select_rows(recipe: Recipe, experience: Experience, memory: Memory, generator: torch.Generator) -> RowMask:
    """The rows to train on: those the selection keeps, all sampled ones without one."""
    groups, greedy = experience.rollouts.groups, experience.rollouts.greedy
    if recipe.selection is None:
        return ~greedy
    rewards = experience.rewards.total(recipe.selection.rewards).to(groups.device)
    rewards = torch.where(greedy, torch.nan, rewards)
    return memory.call("selection", recipe.selection.rule, rewards, groups, generator=generator)


def update(learner: LiveLearner, batch: Batch, generator: torch.Generator, step: int) -> dict[str, float]:
    """All optimizer steps of one learner on one batch; the metrics are means over them."""
    seen: dict[str, list[float]] = {}
    rate = learner.schedule.get_last_lr()[0]
    settings, prefix = learner.settings, f"learner/{learner.name}"
    for _ in range(settings.epochs):
        for rows in mini_batches(len(batch.rollouts), settings.mini_batches, generator):
            gradient = accumulate(learner, batch, rows, step=step)
            learner.step()
            _refuse_non_finite_weights(learner, step)
            of_step = {f"{prefix}/grad_norm": gradient.norm}
            of_step |= {f"{prefix}/{name}/loss": loss for name, loss in gradient.losses.items()}
            part = batch.take(rows)
            current = gradient.logprobs[rows, : part.counted.shape[1]]
            for name, term in settings.terms.items():
                of_step |= diagnostics.of_term(f"{prefix}/{name}", term, part.frozen[name], current, part)
            for key, value in of_step.items():
                seen.setdefault(key, []).append(value)
    means = {key: math.fsum(values) / len(values) for key, values in seen.items()}
    return means | {f"{prefix}/lr": rate, f"{prefix}/version": float(learner.policy.version)}


@torch.no_grad()
def follow(recipe: Recipe, policies: Mapping[str, Policy], step: int) -> None:
    r"""Move every follower whose turn it is: $\theta \leftarrow d\,\theta + (1 - d)\,\theta_\mathrm{live}$."""
    for name, spec in recipe.policies.items():
        if spec.follows is None or step % spec.every:
            continue
        own, live = policies[name].model, policies[spec.follows].model
        for weight, target in zip(own.parameters(), live.parameters(), strict=True):
            weight.lerp_(target.to(weight), 1 - spec.decay)
        policies[name].version += 1


def _first_groups(experience: Experience, count: int) -> Experience:
    """The rows of the first `count` groups, in the order sampled."""
    groups = list(dict.fromkeys(experience.rollouts.groups.tolist()))[:count]
    rows = [row for row, group in enumerate(experience.rollouts.groups.tolist()) if group in set(groups)]
    return experience.take(rows)


def _refuse_non_finite_weights(learner: LiveLearner, step: int) -> None:
    if not learner.policy.is_finite():
        raise NonFiniteError(
            f"step {step}, learner '{learner.name}': its update left weights that are not finite. {REMEDY}"
        )


def _refuse_non_finite_scores(signals: Signals, mask: torch.Tensor, step: int) -> None:
    for key, scores in signals.scores.items():
        bad = torch.nonzero(mask & ~torch.isfinite(scores.logprobs))
        if len(bad):
            row, token = map(int, bad[0])
            value = float(scores.logprobs[row, token])
            raise NonFiniteError(
                f"step {step}: policy '{key.policy}' (version {key.version}) gives row {row} the log-probability "
                f"{value} at token {token}. Its weights are damaged or the row is impossible for it."
            )
