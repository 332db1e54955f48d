"""reasoning-gym's own verifiers."""

import json
import math
import time

import pytest
import reasoning_gym
from pydantic import ValidationError

import tiny
from grpo_kit import ReasoningGymScore, Signals
from grpo_kit.config import parse_recipe
from grpo_kit.rewards import reasoning_gym as ours


def entries(task, count=2, **settings):
    return [dict(entry) for entry in reasoning_gym.create_dataset(task, size=count, seed=7, **settings)]


def entry_of(task, answer="5", **metadata):
    return json.dumps({"question": "?", "answer": answer, "metadata": {"source_dataset": task, **metadata}})


@pytest.mark.parametrize(
    "task",
    ["chain_sum", "leg_counting", "countdown", "arc_1d", "rearc", "spell_backward", "number_sorting", "mini_sudoku"],
)
def test_a_tasks_own_answer_is_right_and_its_verifier_decides(task):
    pair = entries(task)
    texts = [f"Hm. <answer>{pair[0]['answer']}</answer>", "<answer>certainly not this</answer>"]
    component = ReasoningGymScore()(tiny.with_texts(texts, entry=[json.dumps(one) for one in pair]), Signals({}))
    verify = reasoning_gym.get_score_answer_fn(task)
    wrong = verify(answer="certainly not this", entry=pair[1])
    assert component.values.tolist() == pytest.approx([1.0, wrong])
    assert wrong < 1
    assert component.statuses == ("ok", "ok")


def test_a_verifier_may_give_a_share():
    (entry,) = entries("spell_backward", count=1)
    component = ReasoningGymScore().grade(json.dumps(entry), f"<answer>{entry['answer']}x</answer>")
    assert 0 < component[0] < 1
    assert component[1] == "ok"


def test_where_the_answer_is_looked_for():
    entry = entry_of("chain_sum")
    assert ReasoningGymScore().grade(entry, r"\boxed{5}") == (1.0, "ok")
    assert ReasoningGymScore().grade(entry, "The answer is 5.") == (1.0, "ok")
    assert ReasoningGymScore().grade(entry, r"<answer>5</answer> \boxed{6}") == (1.0, "ok")
    assert ReasoningGymScore().grade(entry, "5") == (0.0, "no_answer")
    assert ReasoningGymScore(strict=True).grade(entry, "The answer is 5.") == (0.0, "no_answer")
    assert ReasoningGymScore(pattern="<a>(.*?)</a>").grade(entry, "<a>5</a> <answer>6</answer>") == (1.0, "ok")
    with pytest.raises(ValidationError, match="does nothing with a pattern"):
        ReasoningGymScore(strict=True, pattern="(a)")


NO_ENTRIES = ["5", "not json", None, 7, "[]", '{"question": "?"}', '{"metadata": {}}', entry_of("no_such_task")]


def test_what_is_no_entry_is_reported_before_the_run_and_gives_no_verdict():
    reward = ReasoningGymScore(column="task")
    assert reward.columns == ("task",)
    faults = reward.row_faults({"task": [entry_of("chain_sum"), *NO_ENTRIES]})
    assert list(faults) == list(range(1, 1 + len(NO_ENTRIES)))
    assert faults[1].startswith("column 'task': no entry of a reasoning-gym task")
    assert faults[7] == "column 'task': the entry's metadata names no source_dataset"
    assert faults[8] == "column 'task': reasoning-gym has no task 'no_such_task'"
    for entry in NO_ENTRIES:
        value, status = reward.grade(entry, "<answer>5</answer>")
        assert math.isnan(value)
        assert status == "unparsed_gold"


def test_a_verifier_that_fails_or_hangs_gives_no_verdict(monkeypatch):
    def verifier(answer, entry):
        if answer == "hang":
            time.sleep(60)
        if answer == "leave":
            raise SystemExit
        return {"5": 1.0}[answer]

    monkeypatch.setattr(ours, "_verifier", lambda name: (verifier, False))
    ours._task.cache_clear()
    reward, entry = ReasoningGymScore(timeout=0.2), entry_of("chain_sum")
    found = {answer: reward.grade(entry, f"<answer>{answer}</answer>") for answer in ("5", "6", "leave", "hang")}
    ours._task.cache_clear()
    assert found["5"] == (1.0, "ok")
    assert {answer: status for answer, (_, status) in found.items()} == {
        "5": "ok",
        "6": "error",
        "leave": "error",
        "hang": "timeout",
    }
    assert all(math.isnan(value) for answer, (value, _) in found.items() if answer != "5")


def test_a_power_in_an_answer_that_is_evaluated_ends_in_time():
    (entry,) = entries("countdown", count=1)
    started = time.monotonic()
    value, status = ReasoningGymScore(timeout=0.5).grade(json.dumps(entry), "<answer>9**9**9**9</answer>")
    assert time.monotonic() - started < 8
    assert math.isnan(value) or value < 1
    assert status in ("timeout", "error", "ok")


CODE = [
    "__import__('os').system('touch {}')",
    "exit()",
    "open('{}', 'w')",
    "[].append(1)",
    "\uff45val('1')",
    "print(1)",
]


@pytest.mark.parametrize("answer", CODE)
@pytest.mark.parametrize("task", ["spiral_matrix", "countdown", "simple_integration"])
def test_code_in_an_answer_is_not_run(task, answer, tmp_path, capsys):
    (entry,) = entries(task, count=1)
    file = tmp_path / "ran"
    answer = answer.replace("{}", str(file))
    assert ReasoningGymScore().grade(json.dumps(entry), f"<answer>{answer}</answer>") == (0.0, "refused")
    assert not file.exists()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "task", ["spiral_matrix", "binary_matrix", "string_insertion", "n_queens", "countdown", "puzzle24"]
)
@pytest.mark.parametrize("size", [3])
def test_right_answers_are_never_refused(task, size):
    for entry in entries(task, count=size):
        assert ReasoningGymScore().grade(json.dumps(entry), f"<answer>{entry['answer']}</answer>") == (1.0, "ok")
    assert ours._verifier(task)[1]


def test_other_tasks_take_any_words():
    (entry,) = entries("spell_backward", count=1)
    entry["answer"] = "open print.eval"
    assert ReasoningGymScore().grade(json.dumps(entry), "<answer>open print.eval</answer>") == (1.0, "ok")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(ours, "find_spec", lambda name: None)
    _, mistakes, _ = parse_recipe({"rewards": {"gym": {"kind": "reasoning_gym"}}})
    assert any(
        line.startswith("rewards.gym: ") and "pip install 'grpo-kit[reasoning-gym]'" in line for line in mistakes
    ), mistakes


@pytest.mark.parametrize("task", ["polynomial_multiplication", "countdown", "puzzle24"])
def test_the_gold_answer_of_an_entry_is_not_run_either(task, tmp_path):
    (entry,) = entries(task, count=1)
    entry["answer"] = f"__import__('pathlib').Path('{tmp_path / 'ran'}').touch()"
    assert "holds code" in ReasoningGymScore().row_faults({"entry": [json.dumps(entry)]})[0]
    assert ReasoningGymScore().grade(json.dumps(entry), "<answer>1</answer>")[1] == "unparsed_gold"
    assert not (tmp_path / "ran").exists()


def test_what_is_only_made_of_tasks_has_no_verifier():
    entry = {"question": "?", "answer": "1", "metadata": {"source_dataset": "composite"}}
    assert list(ReasoningGymScore().row_faults({"entry": [json.dumps(entry)]})) == [0]
