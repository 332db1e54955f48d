"""A learner: a policy's objective and optimizer, as a recipe describes them and as they live in a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.parts import Name, table
from grpo_kit.policies.policy import Policy
from grpo_kit.terms import TERMS, Term
from grpo_kit.weightings import WEIGHTINGS, Weighting


@table
class AdamW:
    """AdamW (arXiv:1711.05101) with a learning-rate schedule and gradient clipping.

    Attributes:
        lr: peak learning rate; above 0.
        betas: decay rates of the first and second moment, in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: decoupled weight decay, at least 0.
        warmup_steps: optimizer steps over which the rate rises linearly to `lr`.
        decay: how the rate goes on: `constant`, or falling by `linear` or `cosine`, to reach 0 just after the
            run's last step.
        max_grad_norm: largest norm of the whole gradient; a longer one is scaled down to it.
    """

    lr: Annotated[float, Field(gt=0)]
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0

    def rate(self, step: int, total: int) -> float:
        """The factor on `lr` at an optimizer step (from 0) of `total`."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        left = max(0.0, (total - step) / max(1, total - self.warmup_steps))
        return {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[self.decay]

    def formulas(self, total: int) -> tuple[tuple[str, str], ...]:
        """The rate at optimizer step k (from 0) of `total` as LaTeX, and when it is that; see `rate`."""
        lr, warmup = number(self.lr), self.warmup_steps
        rising = (rf"{lr} \cdot \frac{{k + 1}}{{{warmup + 1}}}", f"for k < {min(warmup, total)}")
        left = rf"\frac{{{total} - k}}{{{max(1, total - warmup)}}}"
        later = {
            "constant": lr,
            "linear": rf"{lr} \cdot {left}",
            "cosine": rf"{lr} \cdot (\frac{{1}}{{2}} - \frac{{1}}{{2}} \cdot \cos(\pi \cdot {left}))",
        }[self.decay]
        falling = (later, f"for k = {warmup} to {total - 1}")
        return (*([rising] if warmup else []), *([falling] if warmup < total else []))


@table
class Learner:
    """How one policy learns from a batch: which rewards, which objective, which steps.

    Attributes:
        rewards: weights of the named reward components whose sum it maximizes.
        terms: the summands of its objective, by name.
        weighting: how much each token of an optimizer step counts, in all terms alike.
        optimizer: AdamW and its schedule.
        epochs: passes over each batch.
        mini_batches: optimizer steps a pass; the rows are shuffled and split evenly.
        mask_truncated: leave rows cut at the length limit out of the loss (DAPO's overlong filtering); they stay in
            their group's baseline.
    """

    rewards: Mapping[Name, float] = Field(default_factory=dict)
    terms: Annotated[Mapping[Name, Annotated[Term, TERMS]], Field(min_length=1)]
    weighting: Annotated[Weighting, WEIGHTINGS]
    optimizer: AdamW
    epochs: Annotated[int, Field(ge=1)] = 1
    mini_batches: Annotated[int, Field(ge=1)] = 1
    mask_truncated: bool = False

    @property
    def needs_entropy(self) -> bool:
        """Whether a term reads the current entropy."""
        return any(term.needs_entropy for term in self.terms.values())


@dataclass(slots=True, eq=False)
class LiveLearner:
    """A learner at work: its settings, its policy, and the optimizer with its schedule."""

    name: str
    settings: Learner
    policy: Policy
    optimizer: torch.optim.AdamW
    schedule: torch.optim.lr_scheduler.LambdaLR

    @classmethod
    def start(cls, name: str, settings: Learner, policy: Policy, *, loop_steps: int) -> "LiveLearner":
        """A fresh optimizer for a policy, its schedule spanning all optimizer steps of the run."""
        with_adam, total = settings.optimizer, loop_steps * settings.epochs * settings.mini_batches
        optimizer = torch.optim.AdamW(
            [weight for weight in policy.model.parameters() if weight.requires_grad],
            lr=with_adam.lr,
            betas=with_adam.betas,
            eps=with_adam.eps,
            weight_decay=with_adam.weight_decay,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: with_adam.rate(step, total))
        return cls(name, settings, policy, optimizer, schedule)

    def state(self) -> dict[str, Any]:
        """The optimizer's and the schedule's, as plain data with tensors."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, at the rate that this schedule has for its step: a run may have been made longer."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        pairs = zip(self.schedule.base_lrs, self.schedule.lr_lambdas, strict=True)
        rates = [rate * factor(self.schedule.last_epoch) for rate, factor in pairs]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.schedule._last_lr = rates

    def step(self) -> None:
        """Apply the accumulated gradient and move schedule and version on."""
        self.optimizer.step()
        self.schedule.step()
        self.policy.version += 1
