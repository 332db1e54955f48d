"""Which rewards could not be trusted in a run: counts of each status, and the first rows of each."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.batch import Experience

KEPT = 5
"""Rows kept of each component and status over a run."""


@dataclass(slots=True)
class Statuses:
    """The statuses of all reward components over a run.

    Attributes:
        counts: rows of each component and status, `ok` too.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, experience: Experience) -> list[tuple[str, str, int]]:
        """Count a batch; component, status and row of each one that is not `ok` and among the first."""
        found: list[tuple[str, str, int]] = []
        for name, component in experience.rewards.components.items():
            for row, status in enumerate(component.statuses):
                self.counts[name, status] += 1
                if status != "ok" and self.counts[name, status] <= KEPT:
                    found.append((name, status, row))
        return found

    def summary(self) -> str | None:
        """Every status that is not `ok` with its share of the component's rows, commonest first; None without any."""
        totals: Counter[str] = Counter()
        for (name, _), count in self.counts.items():
            totals[name] += count
        found = [
            f"{name} {status} {count} ({count / totals[name]:.1%})"
            for (name, status), count in self.counts.most_common()
            if status != "ok"
        ]
        return ", ".join(found) or None


def example(experience: Experience, name: str, status: str, row: int, prompt: str) -> dict[str, Any]:
    """One row as a line of `statuses.jsonl`."""
    rollouts = experience.rollouts
    value = float(experience.rewards.components[name].per_row()[row])
    return {
        "component": name,
        "status": status,
        "reward": None if value != value else value,
        "prompt": prompt,
        "columns": {column: values[row] for column, values in rollouts.columns.items()},
        "completion": rollouts.texts[row],
        "stop_reason": rollouts.stop_reasons[row],
    }
