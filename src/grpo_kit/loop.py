"""The loop: sample, score, reward, select, update every learner, report. Any number of policies and learners."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from grpo_kit import diagnostics
from grpo_kit.batch import Experience
from grpo_kit.checks import cross_checks
from grpo_kit.data import PromptStream
from grpo_kit.flops import ModelFlops
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import LearnerBatch, freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import REMEDY, NonFiniteError, accumulate, mini_batches
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.shapes import RowMask
from grpo_kit.step.clock import Clock
from grpo_kit.step.collect import collect
from grpo_kit.step.row_signals import RowSignals, row_signals
from grpo_kit.step.rows import select_rows
from grpo_kit.step.skips import Skips


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one step did: its metrics, the rows with their signals and rewards, and which rows were trained on.

    `skipped` says, a line each, what was left out because a number was not finite; `row_signals` is of the first rows
    where `Training.looked_at` asks for some.
    """

    step: int
    metrics: Mapping[str, float]
    experience: Experience
    kept: RowMask
    skipped: tuple[str, ...] = ()
    row_signals: RowSignals | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class Training:
    """A recipe at work: all that a step reads and changes; `checkpoints.state` takes it down and puts it back.

    Attributes:
        recipe: what is done.
        policies: all of it, updated in place.
        prompts: where each step's prompts come from.
        generator: decides everything that chance decides.
        memory: what parts remember.
        learners: optimizers with their schedules.
        skips: numbers that were not finite, and how many of them may be skipped.
        step: steps taken.
        looked_at: the first rows of each step whose signals its report has, for the caller to write down.
    """

    recipe: Recipe
    policies: Mapping[str, Policy]
    prompts: PromptStream
    generator: torch.Generator
    memory: Memory
    learners: Mapping[str, LiveLearner]
    skips: Skips
    step: int = 0
    looked_at: int = 0

    @classmethod
    def begin(cls, recipe: Recipe, policies: Mapping[str, Policy], prompts: PromptStream) -> "Training":
        """Before the first step. ValueError lists the mistakes of a recipe that was made in Python."""
        if mistakes := cross_checks(recipe, allow_code=True):
            raise ValueError("the recipe cannot be run:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
        if prompts.curriculum != recipe.curriculum:
            raise ValueError(
                f"the recipe's curriculum is {recipe.curriculum} and that of its prompts {prompts.curriculum}. Make "
                "them by PromptStream(prompts, seed=recipe.seed, curriculum=recipe.curriculum)"
            )
        learners = {
            name: LiveLearner.start(name, settings, policies[name], loop_steps=recipe.steps)
            for name, settings in recipe.learners.items()
        }
        return cls(
            recipe=recipe,
            policies=policies,
            prompts=prompts,
            generator=torch.Generator().manual_seed(recipe.seed),
            memory=Memory(),
            learners=learners,
            skips=Skips(allowed=recipe.max_non_finite_skips),
        )

    def advance(self) -> Report:
        """Take one step."""
        recipe, policies, generator, memory, step = (
            self.recipe, self.policies, self.generator, self.memory, self.step + 1
        )  # fmt: skip
        clock = Clock()
        self.skips.begin_step()
        renewed = renew(recipe, policies, self.prompts, step)
        if renewed:
            clock.lap("renew")
        experience, metrics = collect(recipe, policies, self.prompts, generator, memory, clock, step, self.skips)
        kept = select_rows(recipe, experience, memory, generator)
        for name, settings in recipe.learners.items():
            metrics |= diagnostics.of_rewards(name, settings, experience, kept)
        metrics |= renewed
        batches = {name: freeze(name, own, experience, kept, memory) for name, own in recipe.learners.items()}
        clock.lap("select")
        seen = row_signals(recipe, policies, experience, batches, self.looked_at)
        if seen is not None:
            clock.lap("look")
        for name, learner in self.learners.items():
            metrics |= update(learner, batches[name], generator, step, self.skips)
            flops = ModelFlops.of(learner.policy.model).update(batches[name].rollouts)
            clock.count(name, "update", learner.settings.epochs * flops)
            clock.lap(f"update/{name}")
        follow(recipe, policies, step)
        seconds = {f"time/{stage}": spent for stage, spent in clock.stages.items()}
        metrics |= seconds | {"time/step": sum(seconds.values())}
        metrics |= {f"flops/{key}": flops for key, flops in clock.flops.items()}
        if self.skips.allowed:
            metrics["skipped"] = float(len(self.skips.said))
        self.step = step
        return Report(
            step=step,
            metrics={"step": float(step), **metrics},
            experience=experience,
            kept=kept,
            skipped=tuple(self.skips.said),
            row_signals=seen,
        )


def train(recipe: Recipe, policies: Mapping[str, Policy], prompts: PromptStream) -> Iterator[Report]:
    """Run a recipe, yielding a report after each step; evaluation, files and progress are the caller's, in between.

    The policies are updated in place. All randomness comes from the recipe's seed through one generator. ValueError
    lists the mistakes of a recipe that was made in Python.
    """
    training = Training.begin(recipe, policies, prompts)
    while training.step < recipe.steps:
        yield training.advance()


def renew(recipe: Recipe, policies: Mapping[str, Policy], prompts: PromptStream, step: int) -> dict[str, float]:
    """Let a sampler that keeps rows write them anew where that is due; its metrics."""
    by_sampler = getattr(recipe.sampler, "renew", None)
    return by_sampler(step, policies, prompts.prompts, recipe.frozen_details()) if by_sampler else {}


def update(
    learner: LiveLearner, batch: LearnerBatch, generator: torch.Generator, step: int, skips: Skips
) -> dict[str, float]:
    """All optimizer steps of one learner on one batch; the metrics are means over them.

    A step that is skipped, since a loss or the gradient is not finite, leaves weights, optimizer, schedule and version
    as they are.
    """
    seen: dict[str, list[float]] = {}
    rate = learner.schedule.get_last_lr()[0]
    settings, prefix = learner.settings, f"learner/{learner.name}"
    for _ in range(settings.epochs):
        for rows in mini_batches(len(batch.rollouts), settings.mini_batches, generator):
            try:
                gradient = accumulate(learner, batch, rows, step=step)
            except NonFiniteError as error:
                skips.skip(error, "This optimizer step")
                continue
            learner.step()
            _refuse_non_finite_weights(learner, step)
            of_step = {f"{prefix}/grad_norm": gradient.norm}
            of_step |= {f"{prefix}/{name}/loss": loss for name, loss in gradient.losses.items()}
            part = batch.take(rows)
            current = gradient.logprobs[rows, : part.counted.shape[1]]
            for name, term in settings.terms.items():
                of_step |= diagnostics.of_term(f"{prefix}/{name}", name, term, current, part)
            for key, value in of_step.items():
                seen.setdefault(key, []).append(value)
    means = {key: math.fsum(values) / len(values) for key, values in seen.items()}
    tokens = settings.epochs * float(batch.counted.sum())
    return means | {
        f"{prefix}/lr": rate,
        f"{prefix}/version": float(learner.policy.version),
        f"{prefix}/tokens": tokens,
    }


@torch.no_grad()
def follow(recipe: Recipe, policies: Mapping[str, Policy], step: int) -> None:
    r"""Move every follower whose turn it is: $\theta \leftarrow d\,\theta + (1 - d)\,\theta_\mathrm{live}$."""
    for name, spec in recipe.policies.items():
        if spec.follows is None or step % spec.every:
            continue
        own, live = policies[name].model, policies[spec.follows].model
        for weight, target in zip(own.parameters(), live.parameters(), strict=True):
            if weight is not target:  # beside adapters they share what does not learn
                weight.lerp_(target.to(weight), 1 - spec.decay)
        policies[name].version += 1


def _refuse_non_finite_weights(learner: LiveLearner, step: int) -> None:
    if not learner.policy.is_finite():
        raise NonFiniteError(
            f"step {step}, learner '{learner.name}': its update left weights that are not finite. {REMEDY}"
        )
