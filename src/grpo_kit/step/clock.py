"""Seconds spent in each stage of a step."""

import time
from dataclasses import dataclass, field


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
