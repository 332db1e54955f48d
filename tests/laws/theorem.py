r"""Law 8, CoDistill's theorem, by exact enumeration of a small tree of completions.

First update, no clip reached, no selection, no hints, T = 1, a constant N, the large model fixed:
E grad = ((G-1)/(G N)) grad [J - (alpha/N) KL(small || large)].
"""

from dataclasses import dataclass, field
from itertools import product

import torch

from grpo_kit import (
    Behavior,
    Clip,
    Experience,
    FixedLength,
    GroupMean,
    OnPolicyKD,
    PolicyGradient,
    Rewards,
    Rollouts,
    Sampling,
    Scores,
    SignalKey,
    Signals,
    Writer,
)
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from tolerances import THEOREM

EOS = 0
ALPHA = 0.7


def completions(vocabulary: int, longest: int) -> list[tuple[int, ...]]:
    """Every completion: it ends by eos, or at the longest length without one."""
    found = []
    for length in range(1, longest + 1):
        for words in product(range(1, vocabulary), repeat=length - 1):
            found += [(*words, EOS)] if length < longest else [(*words, last) for last in range(vocabulary)]
    return found


class Tree:
    """A table of next-token logits for each state: the smallest language model."""

    def __init__(self, vocabulary: int, longest: int, seed: int):
        self.completions = completions(vocabulary, longest)
        states = sorted({row[:t] for row in self.completions for t in range(len(row))})
        self.state = {state: number for number, state in enumerate(states)}
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(len(states), vocabulary, generator=generator).requires_grad_()

    def logprobs(self, rows) -> torch.Tensor:
        """Of each token of some completions, zero behind their ends."""
        table, width = self.logits.log_softmax(1), max(map(len, self.completions))
        filled = [[(self.state[row[:t]], token) for t, token in enumerate(row)] for row in rows]
        states = torch.tensor([[s for s, _ in row] + [0] * (width - len(row)) for row in filled])
        tokens = torch.tensor([[t for _, t in row] + [0] * (width - len(row)) for row in filled])
        return torch.where(mask_of(rows, width), table[states, tokens], 0)


def mask_of(rows, width: int) -> torch.Tensor:
    return torch.arange(width)[None, :] < torch.tensor([len(row) for row in rows])[:, None]


@dataclass(frozen=True)
class Setting:
    """One reading of the algorithm, and the size of the tree."""

    vocabulary: int
    longest: int
    group: int
    advantage: object = field(default_factory=GroupMean)
    surrogate: object = field(default_factory=Clip)
    weighting: object = None
    length_norm: str = "constant"


def expected_gradient(setting: Setting) -> torch.Tensor:
    """The expectation over all groups of completions of the gradient that the real parts give, to be ascended."""
    small, large = Tree(setting.vocabulary, setting.longest, 0), Tree(setting.vocabulary, setting.longest, 1)
    table = small.completions
    groups = list(product(range(len(table)), repeat=setting.group))
    rows = [table[index] for group in groups for index in group]
    of_small = small.logprobs(rows)
    mask = mask_of(rows, setting.longest)
    rollouts = Rollouts(
        prompts=((1,),) * len(rows),
        tokens=torch.zeros(mask.shape, dtype=torch.long),
        mask=mask,
        groups=torch.arange(len(groups)).repeat_interleave(setting.group),
        stop_reasons=tuple("eos" if row[-1] == EOS else "length" for row in rows),
        texts=("",) * len(rows),
        columns={},
        behavior=Behavior(
            writers=(Writer(policy="small", version=0, sampling=Sampling()),),
            writer=torch.zeros(mask.shape, dtype=torch.long),
            logprobs=of_small.detach(),
        ),
    )
    signals = Signals(
        {
            SignalKey("small", 0): Scores(logprobs=of_small.detach()),
            SignalKey("large", 0): Scores(logprobs=large.logprobs(rows).detach()),
        }
    )
    length = setting.longest if setting.length_norm == "constant" else None
    kd = OnPolicyKD(teacher="large", student="small", alpha=ALPHA, length_norm=setting.length_norm, length=length)
    task = task_rewards(small)[[index for group in groups for index in group]]
    from_task = kd(rollouts, signals).values + task
    term = PolicyGradient(advantage=setting.advantage, surrogate=setting.surrogate)
    returns = LearnerRewards(total=from_task, weights={}, kept=torch.ones(len(rows), dtype=torch.bool), counted=mask)
    experience = Experience(rollouts=rollouts, signals=signals, rewards=Rewards({}))
    frozen = term.freeze(experience, returns, "small", Memory())
    losses = term(Scores(logprobs=of_small), frozen, mask, mask)
    # The weights are those of one step with all groups in it, 1/(R N) with R = groups x G; a step has one group.
    weights = (setting.weighting or FixedLength(length=setting.longest))(mask) * len(groups)
    probability = of_small.detach().sum(1).reshape(len(groups), setting.group).sum(1).exp()
    loss = (probability.repeat_interleave(setting.group)[:, None] * weights * losses).sum()
    (gradient,) = torch.autograd.grad(-loss, small.logits)
    return gradient


def stated_gradient(setting: Setting) -> torch.Tensor:
    """((G-1)/(G N)) grad [J - (alpha/N) KL(small || large)], from the definitions alone."""
    small, large = Tree(setting.vocabulary, setting.longest, 0), Tree(setting.vocabulary, setting.longest, 1)
    of_small, of_large = (tree.logprobs(tree.completions).sum(1) for tree in (small, large))
    kl = (of_small.exp() * (of_small - of_large.detach())).sum()
    target = (of_small.exp() * task_rewards(small)).sum() - ALPHA / setting.longest * kl
    (gradient,) = torch.autograd.grad(target, small.logits)
    return gradient * (setting.group - 1) / (setting.group * setting.longest)


def task_rewards(tree: Tree) -> torch.Tensor:
    """Any reward at all, one a completion."""
    return torch.rand(len(tree.completions), generator=torch.Generator().manual_seed(5)).round(decimals=1)


def codistill_theorem(setting: Setting):
    """Law 8."""
    torch.testing.assert_close(expected_gradient(setting), stated_gradient(setting), **THEOREM)
