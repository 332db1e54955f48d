"""Two expressions, are they the same mathematics? math-verify's parser reads them; high precision decides.

math-verify's own comparison rounds to six decimals and expands what it is given. Here the parsed, unevaluated trees are
first bounded (a tower of powers is refuted by its size and never computed), then compared as exact rationals where they
are such, else at random points with 40 digits. Only where numbers cannot decide is math-verify asked.
"""

import random
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import math_verify
import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from sympy.core.function import AppliedUndef

from grpo_kit.grading.number import ROUNDED_DIGITS, last_place, read_number, rounds
from grpo_kit.grading.size import size_of
from grpo_kit.grading.text import depth

_TAKEN = re.compile(
    r"(?:\\[gG]amma(?! ?\()|\\hbar|(?<![\\a-zA-Z])(?:I(?![a-zA-Z])|[eE](?=_\{)))(?:_\{[\w,]*\})?"
    r"|\\frac\{d ?[a-zA-Z]\}\{d ?[a-zA-Z]\}|(?<![a-zA-Z])[a-zA-Z]'+|\\ldots"
)
"""Names that the parser takes for constants, or cannot read: Euler's, a current I, an indexed E, dy/dx and y', dots."""
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_BEFORE_FACTOR = re.compile(rf"({_TRIGONOMETRY.pattern}(?:\^\{{[^{{}}]*\}})?) ?([a-zA-Z]|\\[a-z]+)(?=\()")
"""A function of one sign with a bracket behind it, which is a factor and not part of the argument."""
_DEGREES = re.compile(r"(\d+(?:\.\d+)?|[a-zA-Z]|\\[a-z]+|\([^()]*\))\^\{\\circ\}")
_BINOMIAL = re.compile(r"\\binom\{(\d{4,15})\}\{(\d{1,15})\}")
"""A binomial coefficient that the parser would compute before its size is known."""
READING = ConversionConfig(
    interpret_as_mixed_fractions=True, interpret_simple_eq_as_assignment=False, lowercase_symbols=False
)
DEEPEST, LONGEST = 60, 2000
"""Expressions of more brackets in brackets, or more characters, are not read: the parser recurses."""
DIGITS = 60
"""Significant digits of every number at a point; two are equal when all but the last ten are."""
POINTS = 6
COUNTING = (sympy.floor, sympy.ceiling, sympy.Mod)
COSTLY = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit)


class CannotReadError(ValueError):
    """A text that is no mathematics to the parser."""


class TooLargeError(ValueError):
    """Numbers too large to be computed decide, and their sizes do not tell them apart."""


@lru_cache(maxsize=1024)
def parse(latex: str) -> sympy.Basic:
    """The unevaluated tree of an expression in normal form; CannotReadError for what math-verify's parser refuses.

    Decimals are read as exact fractions, `i` is the imaginary unit unless it counts a sum.
    """
    if depth(latex) > DEEPEST or len(latex) > LONGEST or "!!" in latex:
        raise CannotReadError(latex)
    exact = re.sub(r"\d*\.\d+", _as_fraction, latex)
    exact = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", exact) if _TRIGONOMETRY.search(exact) else exact
    exact = _BEFORE_FACTOR.sub(r"\1(\2)", exact)
    exact = _BINOMIAL.sub(lambda match: f"\\frac{{{match[1]}!}}{{{match[2]}!{int(match[1]) - int(match[2])}!}}", exact)
    exact = _TAKEN.sub(lambda match: f"q_{{{''.join(filter(str.isalnum, match[0].replace(chr(39), 'prime')))}}}", exact)
    try:
        tree = latex2sympy(exact, is_real=None, conversion_config=READING)
    except Exception as error:  # the parser raises plain Exception
        raise CannotReadError(latex) from error
    if not isinstance(tree, sympy.Basic):
        raise CannotReadError(latex)
    with sympy.evaluate(False):
        return tree.xreplace({symbol: sympy.I for symbol in tree.free_symbols if str(symbol) == "i"})


def same_value(gold: str, answer: str) -> bool:
    """Whether two expressions are equal, at points as `_points` chooses them.

    Raises CannotReadError when one is no mathematics, TooLargeError when their numbers are too large to decide.
    """
    first, second = parse(gold), parse(answer)
    if first == second:
        return True
    size, other = size_of(first), size_of(second)
    if not (size.computable and other.computable):
        if size.low > other.high + 1 or other.low > size.high + 1:
            return False
        raise TooLargeError
    if any(operation.free_symbols - first.free_symbols for operation in second.atoms(*COSTLY)):
        return False  # a sum over something that the gold answer knows nothing of: not worth carrying out
    first, second = _done(first), _done(second)
    if isinstance(first, sympy.Rational) and isinstance(second, sympy.Rational):
        return first == second
    if _is_rounding(gold, second) or _is_rounding(answer, first):
        return True
    found = _at_points(first, second)
    if found is None:
        return bool(math_verify.verify(first, second, float_rounding=15, timeout_seconds=None, raise_on_error=True))
    return found


def factor(gold: str, answer: str) -> Any:
    """The constant that one expression is of the other, both with the same variables; None where there is none."""
    first, second = (sympy.fraction(sympy.together(_done(parse(side))))[0] for side in (gold, answer))
    if first.free_symbols != second.free_symbols or not first.free_symbols:
        return None
    pairs = [(_number(first, point), _number(second, point)) for point in _points(first.free_symbols, first, second)]
    ratios = [top / bottom for top, bottom in pairs if top and bottom and bottom.is_finite and top.is_finite]
    return ratios[0] if len(ratios) > 2 and all(_close(ratio, ratios[0]) for ratio in ratios) else None


def _as_fraction(match: re.Match[str]) -> str:
    whole, _, part = match[0].partition(".")
    return f"(\\frac{{{(whole + part).lstrip('0') or '0'}}}{{1{'0' * len(part)}}})"


def _done(tree: sympy.Basic) -> Any:
    """The tree with its numbers computed, sums, limits and integrals carried out, unknown functions as variables."""
    value: Any = tree.doit()
    value = value.replace(_is_odd_root, lambda root: -((-root.base) ** root.exp))
    unknown = sorted(value.atoms(AppliedUndef, sympy.Derivative), key=lambda found: -len(str(found)))
    return value.subs([(found, sympy.Symbol(str(found))) for found in unknown])


def _is_odd_root(tree: Any) -> bool:
    """Whether a tree is an odd root of a negative number, which answers mean as a real one."""
    exponent = tree.exp if isinstance(tree, sympy.Pow) else None
    odd = isinstance(exponent, sympy.Rational) and exponent.q > 1 and exponent.p * exponent.q % 2 == 1
    return odd and bool(tree.base.is_negative)


def _is_rounding(decimal: str, exact: Any) -> bool:
    """Whether a decimal with digits enough is a rounding of an exact number."""
    number = read_number(decimal)
    if number is None or number.precision < ROUNDED_DIGITS or number.quotient is None or exact.free_symbols:
        return False
    value = _number(exact, {})
    if value is None or not value.is_real:
        return False
    return rounds(value, _rational(number.quotient), _rational(last_place(number)))


def _rational(number: Fraction) -> Any:
    return sympy.Rational(number.numerator, number.denominator)


def _at_points(first: Any, second: Any) -> bool | None:
    """Whether two expressions agree at random points; None where they have no numbers there."""
    agreed = 0
    for point in _points(first.free_symbols | second.free_symbols, first, second):
        left, right = _number(first, point), _number(second, point)
        if left is None or right is None:
            continue
        negative = any(value < 0 for value in point.values())
        if negative and not (left.is_real and right.is_real):
            continue  # roots of negative numbers have branches
        if not _close(left, right):
            return False
        agreed += 1
    return True if agreed else None


def _points(symbols: Any, *trees: Any) -> list[dict[Any, Any]]:
    """The same random points every time; one empty point without symbols.

    Variables are positive, as those of answers mostly are; of either sign where absolute values ask for it, and whole
    numbers where they are rounded or are exponents of negative numbers.
    """
    if not symbols:
        return [{}]
    draw = random.Random(0)
    ordered = sorted(symbols, key=str)
    if any(tree.has(*COUNTING) or any(map(_alternates, tree.atoms(sympy.Pow))) for tree in trees):
        largest = [12] * (2 * POINTS) + [3000] * (4 * POINTS)
        return [{symbol: sympy.Integer(draw.randint(1, most)) for symbol in ordered} for most in largest]
    points = [{symbol: sympy.Rational(draw.randint(1000, 30_000), 10_007) for symbol in ordered} for _ in range(POINTS)]
    if any(tree.has(sympy.Abs, sympy.sign) for tree in trees):
        for index, point in enumerate(points[POINTS // 2 :]):
            for symbol in ordered[index % 2 :: 2] or ordered:
                point[symbol] = -point[symbol]
    return points


def _alternates(power: Any) -> bool:
    """Whether a power is one of a negative number by a variable: `(-1)^n`."""
    return bool(power.base.is_negative and power.exp.free_symbols)


def _number(tree: Any, point: dict[Any, Any]) -> Any:
    """The number an expression is at a point, to `DIGITS` digits; None where it is none."""
    value = tree.evalf(DIGITS, subs=point, maxn=400) if point else tree.evalf(DIGITS, maxn=400)
    if not value.is_number or value.has(sympy.nan, sympy.zoo) or not value.is_finite:
        return value if value in (sympy.oo, -sympy.oo) else None
    # What cancels to zero keeps a single digit of precision, whatever its size.
    real, imaginary = (sympy.S.Zero if getattr(part, "_prec", DIGITS) == 1 else part for part in value.as_real_imag())
    return real + sympy.I * imaginary if imaginary else real


def _close(left: Any, right: Any) -> bool:
    if left in (sympy.oo, -sympy.oo) or right in (sympy.oo, -sympy.oo):
        return left == right
    return bool(abs(left - right) <= (abs(left) + abs(right)) * sympy.Float(10) ** -(DIGITS - 10))
