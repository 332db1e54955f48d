"""How large is a number that is not computed? Bounds of its logarithm, from the tree of its expression."""

import math
from dataclasses import dataclass

import sympy

LARGEST = 1_000_000
"""Numbers of more decimal digits are never computed."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds of the decimal logarithm of a number's absolute value.

    Attributes:
        low: at least this; minus infinity where nothing is known.
        high: at most this; infinity where nothing is known, and for what is beyond all floats.
        most: the largest logarithm of any power or factorial inside that would have to be computed.
    """

    low: float = -math.inf
    high: float = math.inf
    most: float = 0.0

    @property
    def computable(self) -> bool:
        """Whether the number can be computed in little time."""
        return self.most <= LARGEST


def size_of(tree: sympy.Basic) -> Size:
    """Bounds of a tree's size, without computing it; only powers, factorials, sums and products of integers have some.

    Example:
        >>> tower = sympy.Pow(7, sympy.Pow(7, sympy.Pow(7, 7, evaluate=False), evaluate=False), evaluate=False)
        >>> size_of(tower).low, size_of(tower).computable
        (inf, False)
    """
    if isinstance(tree, sympy.Rational):
        size = math.log10(abs(tree.p)) - math.log10(tree.q) if tree else -math.inf
        return Size(size, size, abs(size) if tree else 0.0)
    parts = [size_of(argument) for argument in tree.args]
    most = max((part.most for part in parts), default=0.0)
    low, high = (-math.inf, math.inf) if tree.free_symbols or not parts else _bounds(tree, parts)
    grown = max(abs(low), abs(high)) if isinstance(tree, sympy.Pow | sympy.factorial) and low > -math.inf else 0.0
    return Size(low, high, max(most, grown))


def _bounds(tree: sympy.Basic, parts: list[Size]) -> tuple[float, float]:
    if isinstance(tree, sympy.Mul):
        return _sum([part.low for part in parts], -math.inf), _sum([part.high for part in parts], math.inf)
    if isinstance(tree, sympy.Add):
        first = max(parts, key=lambda part: part.low)
        others = max(part.high for part in parts if part is not first) + math.log10(len(parts))
        high = max(part.high for part in parts) + math.log10(len(parts))
        return (first.low - 1 if first.low > others + 1 else -math.inf), high
    if isinstance(tree, sympy.Pow):
        return _power(parts[0], parts[1], negative=tree.args[1].could_extract_minus_sign())
    if isinstance(tree, sympy.factorial):
        return _factorial(parts[0].low), _factorial(parts[0].high)
    return -math.inf, math.inf


def _sum(values: list[float], unknown: float) -> float:
    return unknown if unknown in values else sum(values)


def _power(base: Size, exponent: Size, *, negative: bool) -> tuple[float, float]:
    r"""$\log |b^e| = e \log |b|$ at the four corners."""
    if not (base.low > -math.inf and exponent.low > -math.inf):
        return -math.inf, math.inf
    corners = [
        0.0 if size == 0 else size * (math.inf if times > 300 else 10.0**times)
        for size in (base.low, base.high)
        for times in (exponent.low, exponent.high)
    ]
    return (-max(corners), -min(corners)) if negative else (min(corners), max(corners))


def _factorial(size: float) -> float:
    if size == -math.inf or size > 300:
        return size if size == -math.inf else math.inf
    return math.lgamma(10.0**size + 1) / math.log(10)
