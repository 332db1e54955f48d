"""How long each stage of a step takes, and how many FLOPs."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Clock:
    """Seconds spent in each stage of a step, what all its rounds wrote and computed, and a sampler's metrics.

    Attributes:
        stages: seconds.
        flops: model FLOPs, by `<policy>/<stage>`.
        tokens: written by all rounds of sampling.
        metrics: of the sampler.
    """

    stages: dict[str, float] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    @property
    def tokens_per_second(self) -> float:
        """Tokens written, those that a refill drops included, a second of sampling."""
        return self.tokens / max(self.stages["sample"], 1e-9)

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self.last
        self.last = now

    def count(self, policy: str, stage: str, flops: float) -> None:
        """Add what a stage computed with a policy."""
        key = f"{policy}/{stage}"
        self.flops[key] = self.flops.get(key, 0.0) + flops
