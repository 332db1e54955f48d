"""Tasks of reasoning-gym as rows: distinct, in one split each, ready for their own verifier."""

import json
import re
import sys

import pytest
from pydantic import ValidationError

from grpo_kit import ReasoningGymTasks
from grpo_kit.data.reasoning_gym import split_of

TASKS = {"leg_counting": {"max_animals": 5}, "basic_arithmetic": {}}


def test_tasks_take_turns_and_bring_their_entries():
    rows = ReasoningGymTasks(tasks=TASKS, rows=6)()
    entries = [json.loads(entry) for entry in rows["entry"]]
    assert [entry["metadata"]["source_dataset"] for entry in entries] == [*TASKS] * 3
    assert [entry["question"] for entry in entries] == rows["prompt"][:]
    assert [entry["answer"] for entry in entries] == rows["answer"][:]
    assert all(entry["metadata"]["num_animals"] <= 5 for entry in entries[::2])


def test_splits_never_meet_whatever_the_seeds():
    # Few numbers of few digits: the same questions come again under every seed.
    tasks = {"basic_arithmetic": {"max_terms": 2, "max_digits": 1}}
    train = {text for seed in range(3) for text in ReasoningGymTasks(tasks=tasks, rows=120, seed=seed)()["prompt"]}
    evaluation = set(ReasoningGymTasks(tasks=tasks, rows=60, split="eval")()["prompt"])
    assert not train & evaluation
    assert len(evaluation) == 60
    assert {split_of(text) for text in train} == {"train"}


def test_the_seed_decides_the_rows():
    first, again, other = (ReasoningGymTasks(tasks=TASKS, rows=20, seed=seed)()["prompt"][:] for seed in (3, 3, 4))
    assert first == again != other
    assert len(set(first)) == 20


@pytest.mark.slow
def test_a_task_that_runs_out_is_passed_over_and_all_of_them_named():
    tasks = {"basic_arithmetic": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "operators": ["+"]}}
    with pytest.raises(ValueError, match=r"^rows = 999, but basic_arithmetic has only ") as caught:
        ReasoningGymTasks(tasks=tasks, rows=999, split="eval")()
    known = int(re.findall(r"only (\d+) different questions in the split 'eval'", str(caught.value))[0])
    both = ReasoningGymTasks(tasks={**tasks, "leg_counting": {}}, rows=2 * known + 9, split="eval")()
    sources = [json.loads(entry)["metadata"]["source_dataset"] for entry in both["entry"]]
    assert sources.count("basic_arithmetic") == known
    assert sources[-8:] == ["leg_counting"] * 8


def test_prompts_are_worded_as_told():
    rows = ReasoningGymTasks(tasks={"basic_arithmetic": {}}, rows=1, template="Q: {prompt}", chat=True, system="s")()
    question = json.loads(rows["entry"][0])["question"]
    assert rows["prompt"][0] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": f"Q: {question}"},
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": {"leg_countin": {}}}, "there is no task 'leg_countin'. Did you mean 'leg_counting'? Known: "),
        ({"tasks": {"leg_counting": {"max_animal": 3}}}, "has no setting 'max_animal'. Did you mean 'max_animals'?"),
        ({"tasks": {"leg_counting": {"seed": 3}}}, "task 'leg_counting' has no setting 'seed'"),
        ({"tasks": {"leg_counting": {"min_animals": -3}}}, "refuses its settings: min_animals must be positive"),
        ({"tasks": {}}, "at least 1 item"),
        ({"tasks": TASKS, "system": "s"}, "system is a chat message: set chat = true"),
        ({"tasks": TASKS, "split": "test"}, "Input should be 'train' or 'eval'"),
    ],
)
def test_mistakes_are_refused(settings, message):
    with pytest.raises(ValidationError) as caught:
        ReasoningGymTasks(**settings)
    assert message in str(caught.value)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(ValidationError, match=r"needs reasoning-gym: pip install 'grpo-kit\[reasoning-gym\]'"):
        ReasoningGymTasks(tasks=TASKS)


def test_the_same_settings_are_equal_and_hash_alike():
    one, two = (ReasoningGymTasks(tasks=TASKS) for _ in "ab")
    assert one == two
    assert hash(one) == hash(two)
