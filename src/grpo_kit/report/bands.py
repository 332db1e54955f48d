"""A metric over the seeds of a group: the mean of each step, from the least to the greatest."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

Lines = Sequence[Mapping[str, int | float | None]]
MOST_POINTS = 2000
"""Of a curve: more than a picture has places for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """One metric over the seeds of a group, step by step; None where no seed has a number.

    Attributes:
        steps: those at which some seed has the metric, a number or null.
        mean: of the seeds that have a number there.
        low: the least of them.
        high: the greatest of them.
        seeds: how many they are.
    """

    steps: tuple[int, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    seeds: tuple[int, ...]

    def stretches(self) -> Iterator[range]:
        """The places without a gap between them at which several seeds have a number."""
        begin: int | None = None
        for place, count in enumerate([*self.seeds, 0]):
            if count > 1 and begin is None:
                begin = place
            elif count <= 1 and begin is not None:
                yield range(begin, place)
                begin = None

    def thinned(self, most: int = MOST_POINTS) -> "Band":
        """The band at every second step, every third, ... with the first and the last, at no more steps than these."""
        last = len(self.steps) - 1
        places = [*range(0, last, max(1, math.ceil(last / (most - 1)))), last]
        return Band(**{own.name: tuple(getattr(self, own.name)[place] for place in places) for own in fields(self)})


def band(runs: Sequence[Lines], key: str) -> Band | None:
    """A metric over the seeds of a group; None where there is no number at all. The last line of a step counts."""
    by_step: dict[int, list[float]] = {}
    for lines in runs:
        own = {int(line["step"] or 0): line[key] for line in lines if key in line}
        for step, value in own.items():
            by_step.setdefault(step, []).extend([] if value is None else [float(value)])
    values = [by_step[step] for step in sorted(by_step)]
    if not any(values):
        return None
    return Band(
        steps=tuple(sorted(by_step)),
        mean=tuple(mean(own) for own in values),
        low=tuple(min(own, default=None) for own in values),
        high=tuple(max(own, default=None) for own in values),
        seeds=tuple(map(len, values)),
    )


def mean(values: Sequence[float]) -> float | None:
    """The mean; of one number that number; None of none."""
    return math.fsum(values) / len(values) if values else None
