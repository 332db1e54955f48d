"""Advantages in all their settings, a batch, and what a formula of `explain` gives its rows and tokens."""

import re
from dataclasses import dataclass, field, replace
from itertools import combinations

import torch

from explain.formulas import work_out
from grpo_kit import (
    GPG,
    OPO,
    EMABaseline,
    GroupMean,
    LeaveOneOut,
    MaxRL,
    PassAtK,
    PerComponent,
    ReinforcePP,
    ReinforcePPBaseline,
    ReMax,
    ReverseKL,
    Summand,
    TeacherLogRatio,
    TopK,
    WeightedSum,
)

KD = Summand(weight=0.3, advantage=LeaveOneOut(), rewards={"a": 2.0, "b": 0.5})
VARIANTS = [
    GroupMean(),
    GroupMean(scale="group"),
    GroupMean(scale="batch"),
    GroupMean(scale="group", eps=0.1),
    GroupMean(scale="batch", eps=0.0),
    LeaveOneOut(),
    OPO(),
    MaxRL(),
    MaxRL(eps=0.1),
    GPG(),
    PassAtK(k=2),
    PassAtK(k=3),
    ReinforcePP(),
    ReinforcePP(gamma=0.9),
    ReinforcePP(eps=0.1),
    ReinforcePPBaseline(),
    ReinforcePPBaseline(shift=True),
    ReinforcePPBaseline(shift=True, eps=0.0),
    ReMax(),
    EMABaseline(),
    EMABaseline(decay=0.5),
    PerComponent(),
    PerComponent(eps=0.1),
    PerComponent(advantage=OPO()),
    PerComponent(advantage=GroupMean(), scale="none"),
    WeightedSum(of=(KD, Summand(advantage=GroupMean()))),
    WeightedSum(of=(Summand(weight=-1.0, advantage=MaxRL()), Summand(weight=-0.5, advantage=ReMax()))),
]
LIVE = [
    TeacherLogRatio(teacher="a"),
    TeacherLogRatio(teacher="b"),
    TeacherLogRatio(teacher="b", control_variate=ReverseKL()),
    TeacherLogRatio(teacher="b", control_variate=ReverseKL(top_k=TopK(k=3))),
    TeacherLogRatio(teacher="b", control_variate=ReverseKL(top_k=TopK(k=3, outside="renormalized"))),
]
"""Those taken at every update."""
MASK = torch.arange(3) < torch.tensor([1, 3, 2, 2, 1, 3, 1])[:, None]


@dataclass(frozen=True)
class Batch:
    """Seven rows of three groups, the last without spread; some of each row's reward is on its first token."""

    rewards: torch.Tensor = field(default_factory=lambda: torch.tensor([1.0, 0.25, 0.0, 2.0, 0.5, 0.75, 0.75]))
    baseline: float | None = None
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    mask = MASK

    @property
    def weights(self):
        return {"a": 1.0, "b": -0.3}

    @property
    def lengths(self):
        return self.mask.sum(1)

    @property
    def token_rewards(self):
        position = torch.arange(3)
        first, last = position == 0, position == self.lengths[:, None] - 1
        return torch.where(first, self.rewards[:, None] / 4, 0) + torch.where(last, 0.75 * self.rewards[:, None], 0)

    @property
    def components(self):
        return {"a": self.rewards, "b": self.rewards.cos()}

    @property
    def greedy_rewards(self):
        return self.groups / 3

    def offers(self):
        names = ("mask", "token_rewards", "components", "weights", "greedy_rewards")
        return {name: getattr(self, name) for name in names}


def advantages_of(text, batch):
    """What a formula in plain text says, for each row, or for each token where it is about tokens."""
    if re.match(r"(-|[\d.]+ · )?\[", text):
        found = re.findall(r"([+-]?) ?(?:([\d.]+) · )?\[(.*?)\](?:_\(r = (.*?)\))?(?= [+-] |$)", text)
        return sum(_summand(*each, batch) for each in found)
    whole, *alone = re.split(r", A\^c_i = ", text)
    if alone:
        formula = alone[0].removesuffix(" with component c as r")
        total = sum(
            weight * advantages_of(formula, replace(batch, rewards=batch.components[name]))
            for name, weight in batch.weights.items()
        )
        whole, *scaled = whole.split(", a_i = ")
        assert (scaled or [whole]) == ["Σ_c w_c · A^c_i"]
        return work_out(whole, a_i=total, a=total) if scaled else total
    whole, *returns = whole.split(", R_it = ")
    if returns:
        to_go = work_out(returns[0], r_it=batch.token_rewards)
        return torch.where(batch.mask, work_out(whole, R_it=to_go, R=to_go[batch.mask]), 0)
    whole, *centered = whole.split(", a_i = ")
    if centered:
        each = advantages_of(centered[0], batch)
        return work_out(whole, a_i=each, a_it=each.repeat_interleave(batch.lengths))
    whole = whole.split(", b ← ")[0].removesuffix(", B rows, M of them in groups without spread")
    return torch.stack([work_out(whole, **_values(batch, row)) for row in range(len(batch.rewards))])


def _summand(sign, weight, text, own, batch):
    """A weighted sum's summand, its own rewards put in for the learner's."""
    if own:
        names = [name.split(" · ") for name in own.split(" + ")]
        batch = replace(batch, rewards=sum(float(factor) * batch.components[name] for factor, name in names))
    return float(f"{sign}{weight or 1}") * advantages_of(text, batch)


def _values(batch, row):
    """Every symbol of a formula about a row."""
    own = batch.groups == batch.groups[row]
    group, lengths = batch.rewards[own], batch.lengths[own]
    others = [r for i, r in enumerate(batch.rewards) if own[i] and i != row]

    def best_of(k):
        sets = list(combinations(others, min(k, len(group)) - 1))
        return sum(max(batch.rewards[row], *rest) - max(rest) for rest in sets) / len(sets)

    return {
        "r_i": batch.rewards[row],
        "r_g": group,
        "r_batch": batch.rewards,
        "others": torch.stack(others),
        "greedy": batch.greedy_rewards[row],
        "b": batch.rewards.mean() if batch.baseline is None else batch.baseline,
        "B": 7,
        "M": 2,
        "l_g": lengths,
        "best_of": best_of,
    }
