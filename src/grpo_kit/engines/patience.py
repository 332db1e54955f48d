"""How long a server that is away is waited for."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from grpo_kit.engines.http import TRIES, AwayError, BrokenError

T = TypeVar("T")
FIRST, LONGEST = 0.05, 5.0
"""Seconds between tries, doubled from one to the next."""
WORTH_SAYING = 0.5
"""Seconds of waiting after which it is said."""


@dataclass(kw_only=True, slots=True)
class Waiting:
    """The wait for one server, from its first fault on.

    Attributes:
        who: the server, in words.
        patience: seconds after which it is given up.
        since: when it went away; None while it is there.
        pause: seconds until the next try.
        failed: how often each request made the server fail.
    """

    who: str
    patience: float
    since: float | None = None
    pause: float = FIRST
    failed: Counter[int] = field(default_factory=Counter)
    said: bool = False

    def progress(self) -> None:
        """Something was answered: the wait begins anew."""
        self.since, self.pause = None, FIRST

    def after(self, fault: AwayError, broken: Iterable[int] = (), done: str = "") -> None:
        """Wait before the next try; ValueError when patience is over, or the server fails at one request again."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        self.failed.update(broken)
        if max(self.failed.values(), default=0) >= TRIES:
            raise ValueError(f"{self.who} failed {TRIES} times at one request ({fault}){done}. Look at its own log")
        left = self.patience - (now - self.since)
        if left <= 0:
            raise ValueError(
                f"{self.who} is away ({fault}); it was waited for {self.patience:g} seconds{done}. Start it (again), "
                "or raise patience"
            )
        if not self.said and now - self.since >= WORTH_SAYING:
            self.said = True
            logging.getLogger(__name__).warning(
                "%s is away (%s); waiting up to %g seconds", self.who, fault, self.patience
            )
        time.sleep(min(self.pause, left))
        self.pause = min(2 * self.pause, LONGEST)

    def until(self, work: Callable[[], T]) -> T:
        """Do something that the server must be there for, again until it is."""
        while True:
            try:
                return work()
            except AwayError as fault:
                self.after(fault, broken=[0] if isinstance(fault, BrokenError) else [])
