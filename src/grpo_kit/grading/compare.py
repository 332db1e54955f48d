"""Are two answers the same? Thing by thing: lists without order, intervals as sets, equations up to a factor."""

import re
from collections.abc import Sequence

from grpo_kit.grading import algebra
from grpo_kit.grading.kinds import (
    ELLIPSIS,
    Answer,
    Chain,
    Comparison,
    Matrix,
    Named,
    Ratio,
    Several,
    Union,
    Value,
    Words,
)
from grpo_kit.grading.number import read_number, same_number
from grpo_kit.grading.sets import is_set, same_set
from grpo_kit.grading.structure import is_name, read_answer
from grpo_kit.grading.text import normal
from grpo_kit.grading.units import differ

_BASE = re.compile(r"\(?(?P<digits>[0-9][0-9A-Za-z]*)\)?_\{(?P<base>\d+)\}")
_CONSTANT = re.compile(r"(?<=[\w})])\+[CcKk]$")
"""A constant of integration."""
_VARIABLE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])")
_FUNCTION = re.compile(r"([a-zA-Z])\(([a-zA-Z])\)")
_CLOCK = re.compile(r"\d\d?:[0-5]\d")
MEMBERS = 64
"""Collections of more members than this are compared in order only."""


def same(gold: str, answer: str) -> bool:
    """Whether two answers, as texts, are the same; TooLargeError where numbers too large to compute decide."""
    return normal(gold) == normal(answer) or same_answer(read_answer(gold), read_answer(answer))


def same_answer(gold: Answer, answer: Answer) -> bool:
    """Whether two answers are the same; see the module."""
    if isinstance(gold, Words) or isinstance(answer, Words):
        return gold == answer
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer)
    if isinstance(gold, Chain) or isinstance(answer, Chain):
        return _equations(gold, answer)
    if is_set(gold) or is_set(answer):
        return same_set(gold, answer)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _matrices(gold, answer)
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return _ratios(gold, answer)
    if isinstance(gold, Value) and isinstance(answer, Value):
        return _values(gold, answer)
    return _collections(gold, answer)


def readable(answer: Answer) -> bool:
    """Whether every expression in an answer is mathematics to the parser; words are, as words."""
    if isinstance(answer, Value):
        number = read_number(answer.latex) or _BASE.fullmatch(answer.latex)
        return number is not None or answer.latex == ELLIPSIS or _parses(answer.latex)
    if isinstance(answer, Words):
        return True
    if isinstance(answer, Comparison):
        return all(map(_parses, answer.sides))
    if isinstance(answer, Named):
        return readable(answer.what)
    if isinstance(answer, Matrix):
        return all(readable(entry) for row in answer.rows for entry in row)
    if isinstance(answer, Union):
        return all(map(readable, (*answer.parts, *answer.without)))
    if isinstance(answer, Chain):
        return all(map(readable, answer.sides))
    return all(map(readable, answer.parts if isinstance(answer, Ratio) else answer.items))


def _parses(latex: str) -> bool:
    try:
        algebra.parse(latex)
    except algebra.CannotReadError:
        return False
    return True


def _values(gold: Value, answer: Value) -> bool:
    if differ(gold.unit, answer.unit):
        return False
    first, second = gold.latex, answer.latex
    if first.endswith("+C") and "C" not in first[:-1] and "C" not in second[:-1]:
        second = _CONSTANT.sub("+C", second)  # a constant of integration may have any name
    if first == second:
        return True
    if (based := _bases(first, second)) is not None:
        return based
    number, other = read_number(first), read_number(second)
    try:
        equal = same_number(number, other) if number and other else algebra.same_value(first, second)
        if equal or [gold.unit, answer.unit].count("%") != 1:
            return equal
        # 25 % is 25 when the question asks for per cent, and 1/4 when it does not.
        percent, plain = (first, second) if gold.unit == "%" else (second, first)
        return algebra.same_value(f"\\frac{{{percent}}}{{100}}", plain)
    except algebra.CannotReadError:
        return False


def _bases(gold: str, answer: str) -> bool | None:
    """Numbers in a base: the same digits, and the same base where both name one; None where none does."""
    first, second = _BASE.fullmatch(gold), _BASE.fullmatch(answer)
    if first is None and second is None:
        return None
    digits = [match["digits"] if match else text for match, text in ((first, gold), (second, answer))]
    same_base = first is None or second is None or first["base"] == second["base"]
    return same_base and digits[0].lstrip("0") == digits[1].lstrip("0")


def _named(gold: Answer, answer: Answer) -> bool:
    """`x = 5` is 5, and not `y = 5`; an equation with a name on its left is also an equation."""
    names = [side.name for side in (gold, answer) if isinstance(side, Named)]
    if (len(set(names)) > 1 or isinstance(gold, Chain) or isinstance(answer, Chain)) and _same_equation(gold, answer):
        return True
    if len(set(names)) > 1 and isinstance(gold, Named) and isinstance(answer, Named):
        if (renamed := _renamed(gold, answer)) is not None:
            return same_answer(gold.what, renamed)
        return read_answer(gold.name) == answer.what and read_answer(answer.name) == gold.what  # sides exchanged
    compared = [side for side in (gold, answer) if isinstance(side, Comparison)]
    if len(set(names)) > 1 or any(name not in side.sides for side in compared for name in names):
        return False
    first, second = (side.what if isinstance(side, Named) else side for side in (gold, answer))
    return same_answer(first, second)


def _renamed(gold: Named, answer: Named) -> Answer | None:
    """What an answer says of a function, with its variable named as in the gold one: `f(t) = 2t` for `f(x)`."""
    first, second = _FUNCTION.fullmatch(gold.name), _FUNCTION.fullmatch(answer.name)
    if first is None or second is None or first[1] != second[1] or not isinstance(answer.what, Value):
        return None
    return Value(re.sub(rf"(?<![\\a-zA-Z]){second[2]}(?![a-zA-Z])", first[2], answer.what.latex), answer.what.unit)


def _same_equation(gold: Answer, answer: Answer) -> bool:
    first, second = _sides(gold), _sides(answer)
    if first is None or second is None:
        return False
    try:
        return algebra.factor(first, second) is not None
    except algebra.CannotReadError:
        return False


def _sides(answer: Answer) -> str | None:
    """The difference of the two sides of an equation between values."""
    if isinstance(answer, Named) and isinstance(answer.what, Value):
        return f"({answer.name})-({answer.what.latex})"
    values = [side.latex for side in answer.sides if isinstance(side, Value)] if isinstance(answer, Chain) else []
    return (
        f"({values[0]})-({values[1]})" if isinstance(answer, Chain) and len(values) == len(answer.sides) == 2 else None
    )


def _equations(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Chain) and isinstance(answer, Chain):
        if _same_equation(gold, answer):
            return True
        if _has_variables(gold) or _has_variables(answer):
            return _in_order(gold.sides, answer.sides)
    first, second = _result(gold), _result(answer)
    return first is not None and second is not None and same_answer(first, second)


def _has_variables(chain: Chain) -> bool:
    """Whether a chain is an equation in variables; else it is a computation that ends in a result."""
    return any(isinstance(side, Value) and _VARIABLE.search(side.latex) for side in chain.sides)


def _result(answer: Answer) -> Answer | None:
    """What a chain says the result is: its last side that is no mere name, or the exact one before an `approx`.

    An equation in variables of which none stands alone, such as `2x = 3`, has no result.
    """
    if not isinstance(answer, Chain):
        return answer
    if _has_variables(answer) and not any(isinstance(side, Value) and is_name(side.latex) for side in answer.sides):
        return None
    sides = [side for side in answer.sides if not (isinstance(side, Value) and _VARIABLE.fullmatch(side.latex))]
    return ([None, *sides][-2] if answer.rounded else None) or [*answer.sides, *sides][-1]


def _matrices(gold: Answer, answer: Answer) -> bool:
    """Entry by entry; a single row or column is also the tuple of its entries."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return len(gold.rows) == len(answer.rows) and all(map(_in_order, gold.rows, answer.rows))
    first, second = _vector(gold), _vector(answer)
    return first is not None and second is not None and _in_order(first, second)


def _vector(answer: Answer) -> tuple[Answer, ...] | None:
    if isinstance(answer, Matrix):
        entries = tuple(entry for row in answer.rows for entry in row)
        return entries if len(entries) in (len(answer.rows), len(answer.rows[0])) else None
    return answer.items if isinstance(answer, Several) and answer.brackets not in ("", "{}") else None


def _ratios(gold: Answer, answer: Answer) -> bool:
    """Ratios are the same when their parts are in proportion; one of two parts is also its quotient."""
    first, second = _parts(gold), _parts(answer)
    if not first or not second or len(first) != len(second):
        return False
    if _in_order([Value(part) for part in first], [Value(part) for part in second]):
        return True
    if isinstance(gold, Ratio) and _CLOCK.fullmatch(":".join(first)):
        return False  # a time of day is no ratio
    quotients = ([Value(f"\\frac{{{part}}}{{{parts[0]}}}") for part in parts[1:]] for parts in (first, second))
    return _in_order(*quotients)


def _parts(answer: Answer) -> list[str]:
    """The parts of a ratio or quotient as expressions; empty where there are none."""
    if isinstance(answer, Value):
        quotient = re.fullmatch(r"\\frac\{([^{}]*)\}\{([^{}]*)\}|(\w+)/(\w+)", answer.latex)
        return [part for part in quotient.groups() if part] if quotient else [answer.latex, "1"]
    parts = answer.parts if isinstance(answer, Ratio) else ()
    values = [part.latex for part in parts if isinstance(part, Value)]
    return values if len(values) == len(parts) else []


def _collections(gold: Answer, answer: Answer) -> bool:
    """Members one by one: in order where brackets or dots say so, which a list without brackets may leave out."""
    first, second = _members(gold), _members(answer)
    sides = [side for side in (gold, answer) if isinstance(side, Several)]
    if any(_assigns(side) for side in sides) and not all(_assigns(side) for side in sides):
        return _in_order(first, second)  # `x=1, y=2` and `1, 2`
    if len({side.join for side in sides} - {","}) > 1 and all(isinstance(item, Words) for item in first):
        return False  # `tea and milk` is not `tea or milk`
    if any(side.ordered for side in sides):
        brackets = {side.brackets for side in sides}
        return (len(brackets) == 1 or "" in brackets) and _in_order(first, second)
    if max(len(first), len(second)) > MEMBERS:
        return _in_order(first, second)
    # Repeated members count once.
    return all(any(same_answer(one, other) for other in second) for one in first) and all(
        any(same_answer(one, other) for one in first) for other in second
    )


def _assigns(answer: Several) -> bool:
    """Whether a list gives values to different names."""
    names = {item.name for item in answer.items if isinstance(item, Named)}
    return len(names) == len(answer.items) > 1


def _members(answer: Answer) -> list[Answer]:
    """The members of a collection; those that a plus-minus stands for count one by one."""
    if not isinstance(answer, Several):
        return [answer]
    members: list[Answer] = []
    for item in answer.items:
        members += item.items if isinstance(item, Several) and item.plus_minus else [item]
    return members


def _in_order(first: Sequence[Answer], second: Sequence[Answer]) -> bool:
    return len(first) == len(second) and all(map(same_answer, first, second))
