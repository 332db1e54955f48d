"""Whatever a model writes, and whatever stands as its gold answer: a grade of a documented status, in time."""

import math
import time
from typing import get_args

from hypothesis import example, given, strategies as st

from fuzz.fuzzing import FUZZ
from grpo_kit.grading import Grade, final_answer, grade, grade_all, unreadable
from grpo_kit.grading.pool import GRACE_SECONDS, PATIENCE
from grpo_kit.grading.status import Status

LIMIT = 0.5
ANYTHING = st.text(st.characters(), max_size=30)
LEAVES = (
    st.integers().map(str)
    | st.builds("{}/{}".format, st.integers(0, 9), st.integers(0, 9))
    | st.builds("\\frac{{{}}}{{{}}}".format, st.integers(-2, 9), st.integers(-2, 9))
    | st.sampled_from(
        ["x", "\\pi", "\\infty", "\\text{ m}", "%", "e", "i", "\\emptyset", "yes", "½", "√2", "٣", "\0", "\ud800"]
    )
    | st.integers(1, 400).map(lambda count: "9" * count)
    | st.floats().map(str)
    | st.text(st.characters(), max_size=4)
)
FORMS = (
    *(
        "{}+{}",
        "{}-{}",
        "{}\\cdot {}",
        "\\frac{{{}}}{{{}}}",
        "{}^{{{}}}",
        "{}^{}",
        "({},{})",
        "\\{{{},{}\\}}",
        "[{},{})",
    ),
    *("{}={}", "{}<{}", "{}:{}", "{}\\cup {}", "\\binom{{{}}}{{{}}}", "\\sqrt[{}]{{{}}}", "{}!{}", "{}_{{{}}}", "{}{}"),
    *(
        "\\int_{}^{} x dx",
        "\\sum_{{k=1}}^{{{}}} {}",
        "\\begin{{pmatrix}}{}\\\\{}\\end{{pmatrix}}",
        "{} \\text{{ or }} {}",
    ),
    *(
        "\\log_{{{}}} {}",
        "\\left({}\\right|{}",
        "{}}}{{{}",
        "${}$ {}",
        "{} \\pm {}",
        "{}(x) = {}",
        "{}e{}",
        "{} mod {}",
    ),
)
LATEX = st.recursive(LEAVES, lambda own: st.builds(str.format, st.sampled_from(FORMS), own, own), max_leaves=8)
WRAPPED = st.builds(
    str.format,
    st.sampled_from(
        [
            "\\boxed{{{}}}",
            "The answer is {}.",
            "<think>{}</think>",
            "#### {}",
            "\\boxed {}",
            "{}",
            "<answer>{}</answer>",
            "\\boxed{{{}",
        ]
    ),
    LATEX | ANYTHING,
)
GOLDS = LATEX | ANYTHING | WRAPPED | st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.integers())
TOWER = "9" + "^{9" * 40 + "}" * 40


def check(found, answer):
    """One grade, by what the documentation says of its fields."""
    assert isinstance(found, Grade)
    assert found.status in get_args(Status)
    assert found.parsed == final_answer(answer)
    assert (found.status == "no_answer") == (found.parsed is None)
    if found.status == "ok":
        assert found.value in (0.0, 1.0)
    elif found.status == "no_answer":
        assert found.value == 0.0
    else:
        assert math.isnan(found.value)


@FUZZ
@given(GOLDS, WRAPPED)
@example("1", "\\boxed{" + "{" * 3000 + "}" * 3000 + "}")
@example("1", "\\boxed{" + "(" * 150 + ")" * 150 + "}")
@example("1", f"\\boxed{{{TOWER}}}")
@example(TOWER, f"\\boxed{{{TOWER}+1}}")
@example("x" * 100_000, "\\boxed{" + "\\frac{" * 20_000)
@example(10**5000, "\\boxed{1e5000}")
@example("\ud800", "\\boxed{\ud801}")
@example("\0", "\\boxed{\0\0}")
@example("1/0", "\\boxed{\\frac{1}{0}}")
def test_any_gold_and_any_answer(gold, answer):
    started = time.monotonic()
    check(grade(gold, answer, timeout=LIMIT), answer)
    assert time.monotonic() - started < PATIENCE * LIMIT + GRACE_SECONDS


@FUZZ
@given(LATEX | ANYTHING)
def test_what_is_the_gold_answer_word_for_word_is_right(text):
    answer = f"\\boxed{{{text}}}"
    found = grade(final_answer(answer), answer, timeout=LIMIT)
    check(found, answer)
    assert found.status in ("ok", "no_answer")
    assert found.value == (found.status == "ok")


@FUZZ
@given(st.lists(st.tuples(GOLDS, WRAPPED), max_size=4))
def test_a_batch_says_what_each_alone_would(pairs):
    together = grade_all([gold for gold, _ in pairs], [answer for _, answer in pairs], timeout=LIMIT)
    alone = [grade(gold, answer, timeout=LIMIT) for gold, answer in pairs]
    assert len(together) == len(pairs)
    for one, other in zip(together, alone, strict=True):
        assert repr(one) == repr(other) or "timeout" in (one.status, other.status)


@FUZZ
@given(st.lists(GOLDS, max_size=3))
def test_any_gold_is_readable_or_not(golds):
    assert set(unreadable(golds)) <= set(range(len(golds)))
