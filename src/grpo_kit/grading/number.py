"""Numbers as they are written, compared exactly: no float, no limit on digits, nothing evaluated that is too large."""

import re
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

EXACT_DIGITS = 4000
"""Numbers with more digits than this are compared digit by digit only."""
ROUNDED_DIGITS = 6
"""From so many significant digits on, a decimal stands for the exact value that it is a rounding of."""

LARGEST_EXPONENT = 10**15
ROUNDED = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DECIMAL = r"(?P<sign>[-+]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
_PLAIN = re.compile(
    rf"{_DECIMAL}(?:[eE](?P<e>[-+]?\d+)|(?P<times> ?(?:\\times|\\cdot|[xX]) ?10)(?:\^\{{?(?P<power>[-+]?\d+)\}}?)?)?"
)
_POWER = re.compile(r"(?P<sign>[-+]?)10\^\{(?P<power>[-+]?\d+)\}")
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<whole>\d+)(?: (?=\d)|(?=\\)))?"
    r"(?:\\frac\{(?P<top>-?\d+)\}\{(?P<bottom>-?\d+)\}|(?P<over>\d+)/(?P<under>\d+))"
)
_REPEATING = re.compile(
    r"(?P<sign>[-+]?)(?P<whole>\d*)\.(?P<fixed>\d*)(?:\\(?:overline|bar|dot)\{(?P<bar>\d+)\}|\((?P<round>\d+)\))"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number: `sign 0.digits * 10^exponent` for one written as a decimal, else a quotient.

    Attributes:
        digits: the significant digits of a decimal without zeros at either end, with a sign; empty for a quotient.
        exponent: power of ten of the first digit of a decimal.
        quotient: the value, unless it has too many digits.
        precision: significant digits that were written behind a decimal point's number; 0 for an exact form.
    """

    digits: str
    exponent: int
    quotient: Fraction | None
    precision: int = 0

    def rounded(self) -> Decimal:
        """The value to 50 digits."""
        if self.quotient is not None:
            return ROUNDED.divide(Decimal(self.quotient.numerator), Decimal(self.quotient.denominator))
        digits = self.digits.removeprefix("-")
        return Decimal(f"{self.digits}e{self.exponent - len(digits)}")

    def hundredth(self) -> "Number":
        """A hundredth of it, as the percent sign means."""
        quotient = None if self.quotient is None else self.quotient / 100
        return replace(self, exponent=self.exponent - 2 if self.digits else 0, quotient=quotient)


def read_number(text: str) -> Number | None:
    r"""The number that a text in normal form writes, or None when it is anything else.

    Decimals, `3.2\times10^{5}`, `3.2e5`, fractions, mixed numbers (`3\frac{1}{2}`, `2 1/4`), repeating decimals.

    Example:
        >>> read_number(r"3\frac{1}{2}").quotient
        Fraction(7, 2)
        >>> read_number("1e999999999").digits, read_number("1e999999999").quotient
        ('1', None)
        >>> read_number("2x") is None
        True
    """
    if (match := _PLAIN.fullmatch(text)) is not None and (match["whole"] or match["part"]):
        power = match["e"] or match["power"] or ("1" if match["times"] else "0")
        written = len((match["whole"] + (match["part"] or "")).lstrip("0"))
        return _decimal(
            match["sign"], match["whole"], match["part"] or "", int_of(power), written if match["part"] else 0
        )
    if (match := _FRACTION.fullmatch(text)) is not None:
        return _fraction(match)
    if (match := _POWER.fullmatch(text)) is not None:
        return _decimal(match["sign"], "1", "", int_of(match["power"]), 0)
    if (match := _REPEATING.fullmatch(text)) is not None and len(text) < EXACT_DIGITS:
        block = match["bar"] or match["round"]
        scale = 10 ** len(match["fixed"])
        value = Fraction(int(match["whole"] + match["fixed"] or "0"), scale)
        value += Fraction(int(block), (10 ** len(block) - 1) * scale)
        return Number(digits="", exponent=0, quotient=-value if match["sign"] == "-" else value)
    return None


def same_number(gold: Number, answer: Number) -> bool:
    """Whether two numbers are the same: exactly, or one a rounding of the other to `ROUNDED_DIGITS` or more.

    Two decimals are the same only when their digits are: `3.1416` is not `3.14159`.

    Example:
        >>> same_number(read_number("9007199254740993"), read_number("9007199254740992"))
        False
        >>> same_number(read_number("5/7"), read_number("0.714285714285714"))
        True
    """
    if gold.digits and answer.digits:
        return (gold.digits, gold.exponent) == (answer.digits, answer.exponent)
    if gold.quotient is None or answer.quotient is None:
        return False
    if gold.quotient == answer.quotient:
        return True
    decimal, exact = (gold, answer) if gold.precision else (answer, gold)
    return decimal.precision >= ROUNDED_DIGITS and rounds(exact.quotient, decimal.quotient, last_place(decimal))


def is_near(answer: Number, gold: Number, *, absolute: float, relative: float) -> bool:
    r"""Whether $|a - g| \le \max(\text{absolute}, \text{relative} \cdot |g|)$; without a tolerance, exactly equal.

    Numbers of any number of digits are exact without a tolerance, and to 50 digits with one.

    Example:
        >>> is_near(read_number("3.14"), read_number("3.14159"), absolute=0.0, relative=0.01)
        True
    """
    if not (absolute or relative):
        both = answer.quotient is not None and gold.quotient is not None
        return answer.quotient == gold.quotient if both else same_number(gold, answer)
    own, other = answer.rounded(), gold.rounded()
    allowed = max(Decimal(repr(absolute)), ROUNDED.multiply(Decimal(repr(relative)), other.copy_abs()))
    return ROUNDED.subtract(own, other).copy_abs() <= allowed


def rounds(exact: Any, decimal: Any, place: Any) -> bool:
    """Whether a number is written by a decimal with a last digit of that place: rounded to nearest, or cut off."""
    off = exact - decimal if decimal > 0 else decimal - exact
    return bool(-place <= 2 * off and off < place)


def last_place(decimal: Number) -> Fraction:
    """The unit of the last digit that a decimal was written with."""
    return Fraction(10) ** (decimal.exponent - decimal.precision)


def int_of(text: str) -> int:
    """An exponent as a number, at most an absurd one either way."""
    return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, int(text[:30])))


def _decimal(sign: str, whole: str, part: str, power: int, precision: int) -> Number:
    digits = (whole + part).lstrip("0")
    exponent = power + len(whole) - (len(whole + part) - len(digits))
    significant = digits.rstrip("0")
    if not significant:
        return Number(digits="0", exponent=0, quotient=Fraction(0), precision=precision)
    small = len(significant) <= EXACT_DIGITS and abs(exponent) <= EXACT_DIGITS
    value = Fraction(int(significant)) * Fraction(10) ** (exponent - len(significant)) if small else None
    negative = sign == "-"
    return Number(
        digits="-" * negative + significant,
        exponent=exponent,
        quotient=-value if negative and value is not None else value,
        precision=precision,
    )


def _fraction(match: re.Match[str]) -> Number | None:
    whole, top, bottom = match["whole"] or "0", match["top"] or match["over"], match["bottom"] or match["under"]
    if max(map(len, (whole, top, bottom))) > EXACT_DIGITS or int(bottom) == 0:
        return None
    if match["whole"] and int(top) >= int(bottom):
        return None  # `2\frac{9}{4}` is a product, or a slip, but no mixed number
    value = int(whole) + Fraction(int(top), int(bottom))
    return Number(digits="", exponent=0, quotient=-value if match["sign"] == "-" else value)
