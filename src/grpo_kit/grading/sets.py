"""Sets of numbers, however they are written: intervals, comparisons, unions, members in braces."""

import re
from itertools import pairwise
from typing import Any

import sympy

from grpo_kit.grading import algebra
from grpo_kit.grading.kinds import Answer, Comparison, Named, Several, Union, Value
from grpo_kit.grading.structure import is_name

RELATIONS = {"<": sympy.Lt, ">": sympy.Gt, r"\leq": sympy.Le, r"\geq": sympy.Ge, r"\neq": sympy.Ne}
MIRRORED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", r"\neq": r"\neq"}


class NotASetError(ValueError):
    """An answer that cannot be read as a set of numbers."""


def is_set(answer: Answer) -> bool:
    """Whether an answer can only be read as a set of numbers; `(1, 2)` may also be a point."""
    if isinstance(answer, Several):
        listed = answer.brackets == "" and len(answer.items) > 1
        return answer.brackets in ("[)", "(]") or (
            listed and any(isinstance(item, Comparison) for item in answer.items)
        )
    if isinstance(answer, Value):
        return re.fullmatch(r"\\mathbb ?\{?R\}?|\\emptyset", answer.latex) is not None
    return isinstance(answer, Comparison | Union)


def same_set(gold: Answer, answer: Answer) -> bool:
    """Whether two answers are the same set of numbers; comparisons also have the same variable."""
    if isinstance(gold, Comparison) and isinstance(answer, Comparison):
        if _variables(gold) != _variables(answer):
            return False
        if len(_variables(gold)) > 1:
            return _same_comparison(gold, answer)
    try:
        first, second = as_set(gold), as_set(answer)
    except (algebra.CannotReadError, NotASetError):
        return False
    return first == second or _same_ends(first, second)


def as_set(answer: Answer) -> sympy.Set:
    """An answer as a set of real numbers; NotASetError where it is none."""
    if isinstance(answer, Named):
        return sympy.FiniteSet(_number(answer.what)) if _is_number(answer.what) else as_set(answer.what)
    if isinstance(answer, Union):
        whole = sympy.Union(*map(as_set, answer.parts))
        return whole - sympy.Union(*map(as_set, answer.without)) if answer.without else whole
    if isinstance(answer, Comparison):
        return _solved(answer)
    if isinstance(answer, Several):
        return _collected(answer)
    if isinstance(answer, Value) and "emptyset" in answer.latex:
        return sympy.S.EmptySet
    if isinstance(answer, Value) and "mathbb" in answer.latex:
        return sympy.S.Reals
    raise NotASetError


def _collected(answer: Several) -> sympy.Set:
    if answer.brackets == "" and not all(_is_number(item) for item in answer.items):
        parts = [as_set(item) for item in answer.items]
        both = sympy.Intersection(*parts)
        # A comma stands for "and" where both can hold at once: `0 < x < 9, x \neq 4`, but `x < 1, x > 3`.
        together = answer.join == "and" or (answer.join == "," and both is not sympy.S.EmptySet)
        return both if together else sympy.Union(*parts)
    members = [_number(item) for item in answer.items]
    if answer.brackets in ("{}", ""):
        return sympy.FiniteSet(*members)
    if len(members) != 2:
        raise NotASetError
    return sympy.Interval(members[0], members[1], answer.brackets[0] == "(", answer.brackets[1] == ")")


def _is_number(answer: Answer) -> bool:
    return isinstance(answer, Value) and not re.search(r"\\mathbb|\\emptyset", answer.latex)


def _number(answer: Answer) -> Any:
    if not isinstance(answer, Value):
        raise NotASetError
    return algebra.parse(answer.latex).doit()


def _is_function(text: str) -> bool:
    return is_name(text) and "(" in text


def _variables(comparison: Comparison) -> set[str]:
    named = {side for side in comparison.sides if _is_function(side)}
    return named or {str(symbol) for side in comparison.sides for symbol in algebra.parse(side).free_symbols}


def _solved(comparison: Comparison) -> sympy.Set:
    """The real numbers that satisfy a comparison in one variable."""
    # A function's value, as in `f(x) > 2`, is the variable there.
    sides: list[Any] = [sympy.Symbol(s) if _is_function(s) else algebra.parse(s).doit() for s in comparison.sides]
    symbols = {symbol for side in sides for symbol in side.free_symbols}
    if len(symbols) != 1:
        raise NotASetError
    real = sympy.Symbol("x", real=True)
    sides = [side.xreplace(dict.fromkeys(symbols, real)) for side in sides]
    relations = zip(pairwise(sides), comparison.signs, strict=True)
    return sympy.Intersection(*(RELATIONS[sign](left, right).as_set() for (left, right), sign in relations))


def _same_ends(first: sympy.Set, second: sympy.Set) -> bool:
    """Whether two unions of intervals have the same ends though written differently: `sqrt(8)` and `2 sqrt(2)`."""
    parts, others = _intervals(first), _intervals(second)
    return 0 < len(parts) == len(others) and all(
        (a.left_open, a.right_open) == (b.left_open, b.right_open)
        and all(one == two or (one - two).equals(0) for one, two in ((a.start, b.start), (a.end, b.end)))
        for a, b in zip(parts, others, strict=True)
    )


def _intervals(found: sympy.Set) -> list[Any]:
    """The intervals of a union from left to right; none where it has other members."""
    parts = found.args if isinstance(found, sympy.Union) else (found,)
    intervals = all(isinstance(part, sympy.Interval) for part in parts)
    return sorted(parts, key=lambda part: float(part.start)) if intervals else []  # pyright: ignore


def _same_comparison(gold: Comparison, answer: Comparison) -> bool:
    """Comparisons in several variables: the difference of the sides is the same up to a factor, whose sign turns it."""
    if len(gold.sides) != 2 or len(answer.sides) != 2:
        return gold == answer
    (left, right), (other_left, other_right) = gold.sides, answer.sides
    factor = algebra.factor(f"({left})-({right})", f"({other_left})-({other_right})")
    if factor is None or not factor.is_real:
        return False
    return gold.signs[0] == (answer.signs[0] if factor > 0 else MIRRORED[answer.signs[0]])
