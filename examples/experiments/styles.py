r"""Ways to write the answer to an arithmetic question, all of the tiny vocabulary, all ending in the answer's box.

Each takes a question, the probability that a total is wrong, and the randomness, as `worked_answer` does: a total for
every term after the first, each wrong by one of the `SLIPS`; what follows goes on from it, and the last is boxed.
"""

from random import Random

from grpo_kit.data.arithmetic import SLIPS, terms_of, worked_answer


def twice(question: str, error_rate: float, random: Random) -> str:
    r"""The student's lines, each one twice: `3+8=11`, `3+8=11`, `11-5=6`, ..."""
    *lines, box = worked_answer(question, error_rate, random).split("\n")
    return "\n".join([*(line for line in lines for _ in range(2)), box])


def positives_first(question: str, error_rate: float, random: Random) -> str:
    r"""The student's lines, after all additions were moved before the subtractions: `3+8=11`, `11+2=13`, `13-5=8`."""
    terms = sorted(terms_of(question), key=lambda term: term.startswith("-"))
    return worked_answer("".join(terms) + "=", error_rate, random)


def right_to_left(question: str, error_rate: float, random: Random) -> str:
    r"""From the last term to the first: `-5+2=-3`, `8-3=5`, `3+5=8`."""
    *rest, last = terms_of(question)
    total, lines = int(last), []
    for term in reversed(rest):
        result = _add(int(term), total, error_rate, random)
        lines.append(f"{term.removeprefix('+')}{total:+d}={result}")
        total = result
    return "\n".join([*lines, _box(total)])


def equation_reversed(question: str, error_rate: float, random: Random) -> str:
    r"""The student's lines with the total in front: `11=3+8`, `6=11-5`, `8=6+2`."""
    *lines, box = worked_answer(question, error_rate, random).split("\n")
    return "\n".join([*("=".join(reversed(line.split("="))) for line in lines), box])


def chained(question: str, error_rate: float, random: Random) -> str:
    r"""One line, no total twice: `3+8=11-5=6+2=8`."""
    first, *rest = terms_of(question)
    totals = _running(question, error_rate, random)
    steps = (f"{term}={total}" for term, total in zip(rest, totals, strict=True))
    return "\n".join([first + "".join(steps), _box(totals[-1])])


def totals(question: str, error_rate: float, random: Random) -> str:
    r"""Running totals alone, a line each: `11`, `6`, `8`."""
    found = _running(question, error_rate, random)
    return "\n".join([*map(str, found), _box(found[-1])])


def boxed_totals(question: str, error_rate: float, random: Random) -> str:
    r"""Running totals alone, each in a box; the last box counts."""
    return "\n".join(map(_box, _running(question, error_rate, random)))


def half_chained(question: str, error_rate: float, random: Random) -> str:
    r"""The student's lines or a chain, see `chained`, by the toss of a coin."""
    return random.choice((worked_answer, chained))(question, error_rate, random)


def _running(question: str, error_rate: float, random: Random) -> list[int]:
    """The total after each term but the first."""
    first, *rest = map(int, terms_of(question))
    found = [first]
    for term in rest:
        found.append(_add(found[-1], term, error_rate, random))
    return found[1:]


def _add(one: int, other: int, error_rate: float, random: Random) -> int:
    slip = random.choice(SLIPS) if random.random() < error_rate else 0
    return one + other + slip


def _box(total: int) -> str:
    return rf"\boxed{{{total}}}"
