r"""A number as a text writes it, kept exactly: no rounding, no limit of digits, no power written out."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    Underflow,
)

EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Overflow, Underflow])
"""For products: never rounds."""
ROUNDED = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, DivisionByZero])
"""For differences and tolerances: 50 digits, so that 1e999999999 - 1 is no billion digits."""
MAX_CHARACTERS, MAX_EXPONENT = 20_000, 10**9
"""What is longer or larger than that is not read as a number."""

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2012\ufe63\uff0d", "-"),  # minus signs and the dashes used for them
        **dict.fromkeys("\uff0b", "+"),
        **dict.fromkeys("\u2044\u2215\uff0f", "/"),
        **dict.fromkeys("\uff0c", ","),
        **dict.fromkeys("\uff0e", "."),
        **dict.fromkeys("\uff05\ufe6a", "%"),
        **dict.fromkeys("\u00d7\u2715\u00b7\u22c5", "*"),
    }
)
_LATEX = (
    (re.compile(r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\left|\\right|\\!"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "*"),
    (re.compile(r"(?<=\d)\{,\}(?=\d)|(?<=\d)\\,(?=\d{3})"), ","),
    (re.compile(r"\\(?:[,;: ]|quad|qquad)|~|\s+"), " "),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)(?!\d)"), r" \1/\2"),
    (re.compile(r"\\[dtc]?frac\s*\{\s*([^{}]*?)\s*\}\s*\{\s*([^{}]*?)\s*\}"), r" \1/\2"),
    (re.compile(r"\^\{\s*([+-]?\d+)\s*\}"), r"^\1"),
)
_PLAIN = r"(?:\d{1,3}(?:,\d{2,3})*,\d{3}|\d{1,3}(?: \d{3})+|\d[\d_]*)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?) ?"
    rf"(?:(?P<whole>\d+) (?P<mixed>\d+) ?/ ?(?P<of>\d+)"
    rf"|(?P<top>{_PLAIN})(?: ?/ ?(?P<bottom>[+-]?(?:{_PLAIN})))?"
    rf"(?:[eE](?P<e>[+-]?\d+)| ?\* ?10 ?\^ ?(?P<power>[+-]?\d+))?"
    rf"|10\^(?P<ten>[+-]?\d+))"
    rf"(?P<percent> ?%)?"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A quotient of two decimal numbers, neither reduced nor divided."""

    top: Decimal
    bottom: Decimal = Decimal(1)

    def equals(self, other: "Number") -> bool:
        """Whether both are exactly the same number."""
        return EXACT.multiply(self.top, other.bottom) == EXACT.multiply(other.top, self.bottom)

    def is_near(self, other: "Number", *, absolute: float, relative: float) -> bool:
        r"""Whether $|a - b| \le \max(\text{absolute}, \text{relative} \cdot |b|)$, $b$ the other one; to 50 digits."""
        scale = EXACT.multiply(self.bottom, other.bottom).copy_abs()
        own, others = EXACT.multiply(self.top, other.bottom), EXACT.multiply(other.top, self.bottom)
        difference = ROUNDED.subtract(own, others).copy_abs()
        allowed = ROUNDED.multiply(Decimal(repr(absolute)), scale)
        return difference <= max(allowed, ROUNDED.multiply(Decimal(repr(relative)), others.copy_abs()))


def read_number(text: str, *, percent_is_hundredth: bool = True, units: Sequence[str] = ()) -> Number | None:
    r"""The number that a whole text writes, or None where it is anything else.

    Read are signs, decimals, thousands in threes (`1,234`, `1 234`, `1{,}234`), fractions (`3/4`, `\frac{3}{4}`),
    mixed numbers (`1 1/2`), powers of ten (`1.5e3`, `1.5 \times 10^3`), `%`, a currency sign in front, digits of any
    script, one variable in front (`x = 5`), and the given unit words behind. `2x`, `3 or 4` and `5 km` without the
    unit are no numbers.

    Example:
        >>> read_number(r"\$1{,}234.50").equals(read_number("1234.5"))
        True
        >>> read_number("50%").equals(read_number(r"\frac12"))
        True
        >>> read_number("9007199254740993").equals(read_number("9007199254740992"))
        False
        >>> read_number("3 or 4") is None
        True
    """
    if len(text) > MAX_CHARACTERS:
        return None
    bare = _bare(text, units)
    match = _NUMBER.fullmatch(bare)
    if match is None:
        return None
    try:
        return _number(match, percent_is_hundredth)
    except ArithmeticError:  # an exponent beyond what decimal numbers have
        return None


def _vulgar(character: str) -> str:
    """`½` as ` 1/2`, anything else as it is."""
    kind, _, spelled = unicodedata.decomposition(character).partition(" ")
    return " " + "".join(chr(int(code, 16)) for code in spelled.split()) if kind == "<fraction>" else character


def _bare(text: str, units: Sequence[str]) -> str:
    """The text without layout, marks around it, a variable in front and a unit behind."""
    if not text.isascii():
        text = "".join(map(_vulgar, text)).translate(_SIGNS)
    text = text.strip().strip("*`").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)]
    for pattern, spelled in _LATEX:
        text = pattern.sub(spelled, text)
    text = re.sub(r"^[A-Za-z] ?= ?", "", text.strip())
    text = re.sub(r"(?<=[\d%])\.$", "", text) if text.count(".") > 1 else text
    for unit in sorted(units, key=len, reverse=True):
        if text.lower().endswith(unit.lower()) and not text[: -len(unit)].endswith(tuple("abcdefghijklmnopqrstuvwxyz")):
            text = text[: -len(unit)]
            break
    text = re.sub(r"^([+-]?) ?[$€£¥] ?", r"\1", text.strip())
    return text.strip()


def _number(match: re.Match[str], percent_is_hundredth: bool) -> Number | None:
    def decimal(digits: str) -> Decimal:
        return EXACT.create_decimal(re.sub("[,_ ]", "", digits))

    if match["mixed"]:
        bottom = decimal(match["of"])
        top = EXACT.add(EXACT.multiply(decimal(match["whole"]), bottom), decimal(match["mixed"]))
    elif match["ten"]:
        top, bottom = EXACT.create_decimal(f"1e{match['ten']}"), Decimal(1)
    else:
        top, bottom = decimal(match["top"]), decimal(match["bottom"] or "1")
        if exponent := match["e"] or match["power"]:
            top = EXACT.multiply(top, EXACT.create_decimal(f"1e{exponent}"))
    if not bottom or abs(top.adjusted()) > MAX_EXPONENT:
        return None
    if match["percent"] and percent_is_hundredth:
        top = EXACT.multiply(top, Decimal("0.01"))
    return Number(top.copy_negate() if match["sign"] == "-" else top, bottom)
