"""Any Python function as a reward; TRL's unchanged."""

import asyncio
import math
import re
import sys
import time

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import Python, Signals
from grpo_kit.config import RecipeError, read_recipe

NO_SIGNALS = Signals({})


def rewards(function, rows, **settings):
    return Python(function=function, **settings)(rows, NO_SIGNALS)


# Functions in the form of TRL's documentation (GRPOTrainer, custom reward functions).


def longer(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


def format_of_messages(completions, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if re.match("^<a>.*?</a>$", content) else 0.0 for content in contents]


def against_the_truth(completions, ground_truth, **kwargs):
    matches = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
    found = [match.group(1) if match else "" for match in matches]
    return [1.0 if one == truth else 0.0 for one, truth in zip(found, ground_truth, strict=True)]


def only_math(prompts, completions, task, **kwargs):
    rows = zip(prompts, completions, task, strict=True)
    return [float(completion in prompt) if kind == "math" else None for prompt, completion, kind in rows]


async def slowly(prompts, completions, **kwargs):
    await asyncio.sleep(0.01)
    return [1.0 if completion else 0.0 for completion in completions]


def test_token_ids():
    rows = tiny.rollouts([2, 0, 3], [0] * 3, width=5)
    assert rewards(longer, rows).values.tolist() == [2.0, 0.0, 3.0]
    seen = {}
    rewards(lambda completion_ids: seen.update(ids=completion_ids) or [0.0] * 3, rows)
    assert seen["ids"] == [rows.tokens[row, :length].tolist() for row, length in enumerate([2, 0, 3])]


def test_columns_by_name():
    rows = tiny.with_texts([r"\boxed{2}", r"\boxed{6}"], ground_truth=["2", "5"], prompt=["a", "b"])
    assert rewards(against_the_truth, rows).values.tolist() == [1.0, 0.0]
    assert Python(function=against_the_truth).columns == ("ground_truth",)


def test_none_abstains():
    rows = tiny.with_texts(["a", "b", "c"], prompt=["abc", "abc", "abd"], task=["math", "code", "math"])
    component = rewards(only_math, rows)
    assert component.values[[0, 2]].tolist() == [1.0, 0.0]
    assert component.values[1].isnan()
    assert component.statuses == ("ok", "none", "ok")


def test_async_functions():
    rows = tiny.with_texts(["a", "", "c"], prompt=["x"] * 3)
    assert rewards(slowly, rows).values.tolist() == [1.0, 0.0, 1.0]

    async def inside_a_loop():
        return rewards(slowly, rows).values.tolist()

    assert asyncio.run(inside_a_loop()) == [1.0, 0.0, 1.0]


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1="}]


@pytest.mark.parametrize(
    ("prompt", "chat", "given"),
    [
        ("1+1=", False, "1+1="),
        ("1+1=", True, [{"role": "user", "content": "1+1="}]),
        (CHAT, True, CHAT),
        (CHAT, False, "Be brief.\n\n1+1="),
    ],
)
def test_prompts_have_the_form_asked_for(prompt, chat, given):
    seen = {}
    rows = tiny.with_texts(["2"], prompt=[prompt])
    rewards(lambda prompts, completions: seen.update(p=prompts, c=completions) or [0.0], rows, chat=chat)
    assert seen["p"] == [given]
    assert seen["c"] == [[{"role": "assistant", "content": "2"}] if chat else "2"]


def test_a_function_of_chat_messages():
    rows = tiny.with_texts(["<a>1</a>", "1"])
    assert rewards(format_of_messages, rows, chat=True).values.tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="were texts; chat = true gives chat messages"):
        rewards(format_of_messages, rows)
    with pytest.raises(ValueError, match="were chat messages; chat = false gives texts"):
        rewards(lambda completions: [float(len(re.findall("a", text))) for text in completions], rows, chat=True)


def test_a_function_that_names_its_columns_gets_only_those():
    rows = tiny.with_texts(["a", "b"], gold=["a", "a"], other=[1, 2])
    assert rewards(lambda completions, gold: [float(g == t) for g, t in zip(gold, completions, strict=True)], rows)


@pytest.mark.parametrize(
    "given", [(0.5, 1), torch.tensor([0.5, 1.0]), np.array([0.5, 1.0]), iter([0.5, True]), [np.float32(0.5), 1]]
)
def test_what_a_function_may_return(given):
    component = rewards(lambda completions: given, tiny.with_texts(["a", "b"]))
    assert component.values.tolist() == [0.5, 1.0]
    assert component.statuses == ("ok", "ok")


def test_one_element_tensors_and_nan():
    component = rewards(lambda completions: [torch.tensor(0.5), math.nan], tiny.with_texts(["a", "b"]))
    assert component.values[0] == 0.5
    assert component.values[1].isnan()
    assert component.statuses == ("ok", "missing")


COUNTS = [([1.0], "1"), ([1.0] * 3, "3"), (iter([1.0] * 9), "3"), (torch.tensor(1.0), "a float"), (None, "a NoneType")]
COUNTS += [("ab", "a str"), ({1: 2, 2: 3}, "a dict"), ({1.0, 2.0}, "a set"), (7, "a int")]


@pytest.mark.parametrize(("given", "count"), COUNTS)
def test_b047_a_wrong_count_is_refused_and_named(given, count):
    def one_for_all(completions):
        return given

    with pytest.raises(ValueError, match=rf"one_for_all returned {count} for 2 completions"):
        rewards(one_for_all, tiny.with_texts(["a", "b"]))


@pytest.mark.parametrize("value", ["1.5", [1.0], 1j, math.inf, -math.inf])
def test_a_value_that_is_no_finite_number_names_function_and_row(value):
    def odd(completions):
        return [0.0, value]

    with pytest.raises(ValueError, match=r"odd returned .* for row 1; return a finite number or None .*'second'"):
        rewards(odd, tiny.with_texts(["first", "second"]))


def test_an_exception_names_the_function_and_the_row():
    def breaks(completions, **columns):
        return [1 / len(text) for text in completions]

    with pytest.raises(ValueError, match="breaks") as caught:
        rewards(breaks, tiny.with_texts(["a", "b", "", "d"]))
    assert str(caught.value).splitlines() == [
        f"the reward function {breaks.__qualname__} failed: ZeroDivisionError: division by zero",
        "  row 2 alone is enough for that (completion '')",
    ]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_exception_that_no_row_alone_raises_names_none():
    def whole_batches(completions, **columns):
        if len(completions) > 1:
            raise KeyError("gold")
        raise IndexError("too few")

    with pytest.raises(ValueError, match=r"whole_batches failed: KeyError: 'gold'$"):
        rewards(whole_batches, tiny.with_texts(["a", "b"]))


def test_leaving_the_program_is_an_exception_too():
    with pytest.raises(ValueError, match="failed: SystemExit: 3\n  row 1 alone"):
        rewards(lambda completions: [sys.exit(3) if t == "b" else 1.0 for t in completions], tiny.with_texts("ab"))


def hangs_on_b(completions, **columns):
    for text in completions:
        while text == "b":
            time.sleep(0.01)
    return [1.0] * len(completions)


def swallows(completions, **columns):
    scores = []
    for text in completions:
        try:
            re.match(r"(a+)+$", text)
            scores.append(1.0)
        except:  # noqa: E722  (a careless function)
            scores.append(0.0)
    return scores


@pytest.mark.parametrize(
    ("function", "texts", "row"), [(hangs_on_b, ["a", "c", "b", "b"], 2), (swallows, ["a", "a" * 60 + "b"], 1)]
)
def test_a_hang_names_the_function_and_the_row(function, texts, row):
    started = time.monotonic()
    with pytest.raises(ValueError, match="did not end") as caught:
        rewards(function, tiny.with_texts(texts), timeout=0.4)
    first, second = str(caught.value).splitlines()
    assert first == f"the reward function {function.__name__} did not end within timeout = 0.4 s"
    assert second == f"  row {row} alone is enough for that (completion '{texts[row]}')"
    assert time.monotonic() - started < 8


def test_a_batch_that_is_only_slow_blames_no_row():
    def slow(completions):
        time.sleep(0.1 * len(completions))
        return [1.0] * len(completions)

    with pytest.raises(ValueError, match=r"within timeout = 0\.5 s; no row alone takes that long, so give 20 compl"):
        rewards(slow, tiny.with_texts("x" * 20), timeout=0.5)


@pytest.mark.parametrize("name", ["completions", "prompts", "completion_ids"])
def test_a_column_under_a_name_that_is_taken_is_refused(name):
    with pytest.raises(ValueError, match=f"gets {name} by that name; rename the data's column"):
        rewards(lambda **everything: [1.0], tiny.with_texts(["a"], **{name: ["b"]}))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValidationError, match="timeout"):
        Python(function=longer, timeout=0.0)
    with pytest.raises(ValidationError, match="'trainer_state' is TRL's own"):
        Python(function=lambda completions, trainer_state: [])


# In a recipe.

MODULE = """
def needs_gold(completions, gold): return [1.0] * len(completions)
def needs_state(completions, trainer_state, **kwargs): return [1.0] * len(completions)
"""
WEIGHT = "learners.small.rewards={own=1.0}"


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    name = f"rewards_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def test_columns_are_known_once_the_name_may_be_imported(module):
    table = f"rewards.own={{kind='python', function='{module}:needs_gold'}}"
    with pytest.raises(RecipeError, match="allow it with --allow-code"):
        read_recipe("grpo", settings=[table, WEIGHT])
    assert module not in sys.modules
    assert Python(function=f"{module}:needs_gold").columns == ()
    assert read_recipe("grpo", settings=[table, WEIGHT], allow_code=True).rewards["own"].columns == ("gold",)


def test_a_parameter_that_nobody_gives_is_reported_before_the_run(module):
    table = f"rewards.own={{kind='python', function='{module}:needs_state'}}"
    with pytest.raises(RecipeError) as caught:
        read_recipe("grpo", settings=[table, WEIGHT], allow_code=True)
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(
        f"rewards.own.function: '{module}:needs_state': its parameter 'trainer_state' is TRL's own"
    )


def test_a_function_inside_another_reward_is_code_too(module):
    inner = f"{{kind='python', function='{module}:needs_gold'}}"
    table = f"rewards.own={{kind='cosine_length', max_length=8, grading={inner}}}"
    with pytest.raises(RecipeError) as caught:
        read_recipe("grpo", settings=[table, WEIGHT])
    assert any(line.startswith("rewards.own.grading.function: ") for line in caught.value.mistakes)
    assert module not in sys.modules
    assert read_recipe("grpo", settings=[table, WEIGHT], allow_code=True).rewards["own"].columns == ("gold",)
