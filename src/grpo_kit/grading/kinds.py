"""The kinds of things that an answer can be."""

from dataclasses import dataclass
from typing import Literal

Join = Literal[",", "or", "and"]
ELLIPSIS = r"\ldots"


@dataclass(frozen=True, slots=True)
class Value:
    """One expression, as LaTeX, and the unit behind it."""

    latex: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """Words, compared as words: lower case, one space between."""

    text: str


@dataclass(frozen=True, slots=True)
class Several:
    """Several answers: a list (no brackets), a tuple or interval, a set (`{}`), or both values of a plus-minus."""

    items: tuple["Answer", ...]
    brackets: str = ""
    join: Join = ","
    plus_minus: bool = False

    @property
    def ordered(self) -> bool:
        """Whether the places matter: in brackets other than a set's, and where dots stand for what is left out."""
        return self.brackets not in ("", "{}") or any(getattr(item, "latex", "") == ELLIPSIS for item in self.items)


@dataclass(frozen=True, slots=True)
class Chain:
    """Sides with equals signs between; `rounded` when the last sign is an approximate one."""

    sides: tuple["Answer", ...]
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A name and what it is: `x = 5`, `D = (0, 2)`."""

    name: str
    what: "Answer"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides with order signs between: `0 < x < 8`."""

    sides: tuple[str, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Sets joined by a union, less those behind a set minus."""

    parts: tuple["Answer", ...]
    without: tuple["Answer", ...] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple["Answer", ...], ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Parts with colons between."""

    parts: tuple["Answer", ...]


Answer = Value | Words | Several | Chain | Named | Comparison | Union | Matrix | Ratio
