"""Faults of other trainers' data loading (B numbers are those of the collection), each as a user would meet it."""

import json
import shutil

import datasets
import pytest
import torch

import tiny
from grpo_kit import Correctness, PolicySpec, RecipeError, TransformersSampler
from grpo_kit.data import encode_prompts
from grpo_kit.grading import grade
from grpo_kit.policies import load_tokenizer
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run import setup
from grpo_kit.run.session import describe
from grpo_kit.run.setup import open_recipe


@pytest.fixture
def opened(tmp_path):
    """Open grpo.toml on files of rows; a dictionary is written as JSON, a text as it is."""

    def open_on(rows, *settings, questions=None, allow_code=False):
        paths = []
        for name, lines in (("train", rows), ("eval", rows if questions is None else questions)):
            path = tmp_path / f"{name}.jsonl"
            path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
            paths.append(path)
        given = [
            f"data={{kind='dataset', path='{paths[0]}'}}",
            f"evaluation.data={{kind='dataset', split='eval', path='{paths[1]}'}}",
        ]
        return open_recipe("grpo", settings=[*given, *settings], allow_code=allow_code)[1]

    return open_on


def mistakes_of(opened, *arguments, **settings):
    with pytest.raises(RecipeError) as caught:
        opened(*arguments, **settings)
    return caught.value.mistakes


def sums(count):
    return [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(count)]


def test_b123_a_missing_reward_column_is_named_with_its_file_before_any_model_loads(opened, monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "load_policy", lambda *given, **settings: pytest.fail("a model was loaded"))
    rows = [{"prompt": "1+1=", "gold": "2"}]
    assert mistakes_of(opened, rows) == tuple(
        f"{place}: data file '{tmp_path / split}.jsonl' (split {split}) has no column 'answer', which "
        'rewards.correctness reads. It has: prompt, gold. Map it, for example columns = { answer = "gold" }.'
        for place, split in (("data", "train"), ("evaluation.data", "eval"))
    )
    only_eval = mistakes_of(opened, sums(2), questions=rows)
    assert len(only_eval) == 1
    assert only_eval[0].startswith(f"evaluation.data: data file '{tmp_path / 'eval.jsonl'}' (split eval) has no column")


def test_b124_a_missing_prompt_column_is_named_with_those_there_are_and_a_guess(opened):
    (first, second) = mistakes_of(opened, [{"id": 1, "question": "1+1=", "answer": "2"}])
    assert first.endswith(
        "(split train) has no column 'prompt'. It has: id, question, answer. Map it, for example "
        'columns = { prompt = "question" }.'
    )
    assert second.startswith("evaluation.data: ")


def test_b126_a_set_of_which_nothing_is_left_says_why(opened):
    rows = [{"prompt": "1+" * 9 + "1=", "answer": "10"}] * 2 + [{"prompt": "", "answer": "1"}, "{broken"]
    (first, _) = mistakes_of(opened, rows, "max_prompt_tokens=10")
    assert "0 of 4 rows left, limit 10 tokens (max_prompt_tokens): 2 too long, 1 malformed, 1 no prompt. " in first
    assert "line 1: 20 tokens, over max_prompt_tokens = 10" in first


def test_b126_a_file_of_bad_lines_alone_says_so(opened):
    (first, _) = mistakes_of(opened, ["{broken", "[1]"])
    assert "0 of 2 rows can be read (2 malformed). line 1: not JSON" in first


def test_b127_the_limit_counts_the_tokens_of_the_chat_template(opened, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_path("small"), model)
    # 8 tokens of prompt (7 digits and =), 6 of template.
    (model / "chat_template.jinja").write_text("{% for m in messages %}123{{ m.content }}456{% endfor %}")
    rows = [{"prompt": "1234567=", "answer": "1"}, {"prompt": "1+1=", "answer": "2"}]
    settings = [f"policies.small.model={model}", "data.chat=true", "evaluation.data.chat=true"]
    assert len(opened(rows, *settings, "max_prompt_tokens=14").prompts) == 2
    left = opened(rows, *settings, "max_prompt_tokens=10")
    assert len(left.prompts) == 1
    assert [str(fault) for fault in left.prompts.skipped] == ["line 1: 14 tokens, over max_prompt_tokens = 10"]


def test_b128_the_sampler_and_the_learner_get_the_same_tokens_and_no_prompt_is_cut():
    rows = [" ".join("abcdefghij"[: number % 9 + 1]) for number in range(9)]
    tokenizer = tiny.tokenizer()
    tokenizer.model_max_length = 3  # a tokenizer's own limit cuts nothing either
    policy = tiny.policy(dtype=torch.float32)
    prompts = encode_prompts(datasets.Dataset.from_dict({"prompt": rows}), tokenizer, max_tokens=6)
    assert [len(ids) for ids in prompts.ids] == [1, 2, 3, 4, 5, 6]
    sampler = TransformersSampler(policy=policy.name, samples=2, max_new_tokens=2)
    rollouts = sampler(prompts.take(range(6)), {policy.name: policy}, torch.Generator().manual_seed(0))
    assert rollouts.prompts == tuple(ids for ids in prompts.ids for _ in range(2))


def test_b129_backslashes_of_a_gold_answer_stay_and_doubled_ones_are_graded_or_flagged(opened):
    golds = [r"\frac{1}{2}", r"\\frac{1}{2}"]
    rows = [{"prompt": f"{number}+1=", "answer": gold} for number, gold in enumerate(golds)]
    prompts = opened(rows).prompts
    assert list(prompts.columns["answer"]) == golds[: len(prompts)]
    if len(prompts) == 2:  # not flagged: then it means what it means with single ones
        assert grade(golds[1], r"\boxed{\frac{1}{2}}").value == 1


def test_bad_rows_are_counted_and_a_bounded_list_is_printed(opened):
    rows = [*sums(3), *["{broken"] * 7, {"prompt": "9+9=", "answer": None}]
    lines = describe(opened(rows, questions=[{"prompt": "8+8=", "answer": "16"}]))
    assert lines[:2] == [
        "3 prompts to train on, 1 to evaluate on",
        "data: 8 of 11 rows cannot be used (7 malformed, 1 no value) and are skipped:",
    ]
    assert len(lines) == 2 + 5 + 1
    assert lines[2].startswith("  line 4: not JSON")
    assert lines[-1] == "  ... and 3 more"


def test_bad_rows_can_stop_the_run(opened):
    rows = [*sums(3), "{broken", {"prompt": "9+9=", "answer": None}]
    (mistake,) = mistakes_of(opened, rows, "on_bad_row=stop", questions=sums(1))
    assert mistake.startswith("data: data file '")
    assert "2 of 5 rows cannot be used (1 malformed, 1 no value) and on_bad_row is 'stop': line 4: not JSON" in mistake
    assert "; line 5: column 'answer' has no value" in mistake
    assert len(opened(sums(3), "on_bad_row=stop", questions=sums(1)).prompts) == 3
    with pytest.raises(RecipeError, match=r"on_bad_row: unknown choice 'halt'\. Known: skip, stop\."):
        opened(sums(3), "on_bad_row=halt")


def test_repeats_and_prompts_trained_on_are_counted(opened):
    lines = describe(opened([*sums(2), *sums(2)], questions=[*sums(1), {"prompt": "5+5=", "answer": "10"}]))
    assert lines == [
        "4 prompts to train on, 2 to evaluate on",
        "data: 2 of 4 prompts are the same as an earlier one",
        "evaluation.data: 1 of 2 prompts are among those trained on",
    ]


def test_a_reward_says_before_the_run_which_rows_it_cannot_judge(opened, monkeypatch):
    def row_faults(self, columns):
        return {row: f"{gold!r} is no number" for row, gold in enumerate(columns["answer"]) if gold == "?"}

    monkeypatch.setattr(Correctness, "row_faults", row_faults, raising=False)
    prompts = opened([*sums(2), {"prompt": "7+7=", "answer": "?"}]).prompts
    assert len(prompts) == 2
    assert [(fault.kind, str(fault)) for fault in prompts.skipped] == [
        ("not gradable", "line 3: rewards.correctness: '?' is no number")
    ]


def test_whole_numbers_are_gold_answers(opened):
    prompts = opened([{"prompt": "40+2=", "answer": 42}]).prompts
    assert prompts.columns["answer"] == (42,)


def test_a_function_needs_its_columns_but_no_value_in_every_row(opened, tmp_path, monkeypatch):
    (tmp_path / "rewards_of_b.py").write_text(
        "def right(completions, tests, **columns):\n    return [0.0 for _ in tests]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = ["rewards.own={kind='python', function='rewards_of_b:right'}", "learners.small.rewards.own=1.0"]
    tests = [["x"], None, ["y", "z"]]
    rows = [row | {"tests": test} for row, test in zip(sums(3), tests, strict=True)]
    assert opened(rows, *settings, allow_code=True).prompts.columns["tests"] == tuple(tests)
    with pytest.raises(RecipeError, match=r"has no column 'tests', which rewards\.own reads"):
        opened(sums(2), *settings, allow_code=True)


def test_few_shot_examples_and_puzzles_are_read_from_a_recipe(opened):
    shots = "[{ prompt = '1+1', answer = '2' }]"
    inputs = opened(sums(1), f"data.few_shot={shots}", "data.few_shot_template='{prompt}={answer};'")
    tokenizer = load_tokenizer(PolicySpec(model="tiny:small"))
    assert inputs.prompts.ids == (tuple(tokenizer("1+1=2;0+1=")["input_ids"]),)
    found = mistakes_of(opened, sums(1), "data.few_shot=[{ prompt = '1+1', anser = '2' }]")
    assert any(line.startswith("data.few_shot.0.anser: unknown key 'anser'. Did you mean 'answer'?") for line in found)
    found = mistakes_of(opened, sums(1), "data={ kind = 'reasoning_gym', tasks = { leg_countin = {} } }")
    assert found[0].startswith("data.tasks: there is no task 'leg_countin'. Did you mean 'leg_counting'?")
