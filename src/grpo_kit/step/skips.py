"""Numbers that are not finite: found where they arise, and either skipped, counted and bounded, or the end of a run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from grpo_kit.batch import Experience, Rewards
from grpo_kit.objective import NonFiniteError
from grpo_kit.shapes import TokenMask
from grpo_kit.signals import Signals


@dataclass(slots=True)
class Skips:
    """How many of such numbers a run may skip, and how many it has.

    Attributes:
        allowed: skips of a run; at 0 the first number that is not finite ends it.
        used: those so far.
        said: what was skipped in the present step, a line each.
    """

    allowed: int = 0
    used: int = 0
    said: list[str] = field(default_factory=list)

    def skip(self, error: NonFiniteError, what: str) -> None:
        """Note that something is left out because of an error, which is raised where no more may be."""
        if self.used >= self.allowed:
            spent = f" {self.used} were skipped before, and max_non_finite_skips is {self.allowed}."
            raise NonFiniteError(f"{error}{spent if self.allowed else ''}") from error
        self.used += 1
        self.said.append(f"{error} {what} is left out ({self.used} of {self.allowed} skips).")

    def begin_step(self) -> None:
        """Forget what the step before skipped."""
        self.said.clear()


def leave_out(experience: Experience, faults: Iterable[tuple[int, str]], skips: Skips) -> Experience:
    """The experience without the groups of faulty rows: whole ones, so that every baseline has all of its rows.

    NonFiniteError where no more may be skipped, and where no group would be left.
    """
    groups = experience.rollouts.groups.tolist()
    gone: dict[int, str] = {}
    for row, fault in faults:
        gone.setdefault(groups[row], fault)
    for group, fault in gone.items():
        skips.skip(NonFiniteError(fault), f"Group {group}")
    if not gone:
        return experience
    if gone.keys() >= set(groups):
        raise NonFiniteError(f"{next(iter(gone.values()))} No group of the step is left.")
    return experience.take([row for row, group in enumerate(groups) if group not in gone])


def scores_not_finite(signals: Signals, mask: TokenMask, step: int) -> Iterator[tuple[int, str]]:
    """Rows to which a policy gives a log-probability that is not finite, with what is wrong."""
    for key, scores in signals.scores.items():
        bad = mask & ~torch.isfinite(scores.logprobs)
        for row in torch.nonzero(bad.any(dim=1)).flatten().tolist():
            token = int(torch.nonzero(bad[row])[0])
            said = (
                f"step {step}: policy '{key.policy}' (version {key.version}) gives row {row} the log-probability "
                f"{float(scores.logprobs[row, token])} at token {token}. Its weights are damaged or the row is "
                "impossible for it."
            )
            yield row, said


def rewards_not_finite(rewards: Rewards, mask: TokenMask, step: int) -> Iterator[tuple[int, str]]:
    """Rows with an infinite reward, with what is wrong; NaN is a missing one, which parts know how to leave out."""
    for name, part in rewards.components.items():
        bad = torch.isinf(part.values)
        for row in torch.nonzero(bad if bad.ndim == 1 else (bad & mask).any(dim=1)).flatten().tolist():
            yield row, f"step {step}: reward '{name}' of row {row} is infinite. Bound it, or give NaN for none."
