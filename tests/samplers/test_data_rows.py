"""Rows that are the data set's own completions: tokens, ends, bad rows, and what a run makes of them."""

import json

import pytest
import torch

import tiny
from grpo_kit import DataRows, Prompts, RecipeError, read_recipe
from grpo_kit.policies import load_policy
from grpo_kit.policies.load import PolicySpec
from grpo_kit.run.setup import load_inputs, open_recipe

SAMPLER = DataRows(policy="small", max_new_tokens=4)


def write(texts, *, policy=None, sampler=SAMPLER):
    count = len(texts)
    prompts = Prompts(ids=((2, 3), (4,), (5, 6, 7))[:count], groups=(9, 4, 7)[:count], columns={"completion": texts})
    return sampler(prompts, {"small": policy or tiny.policy("small")}, torch.Generator().manual_seed(0))


def test_each_prompt_has_the_tokens_of_its_completion_and_the_end_of_sequence():
    rows = write(("a b", "c", "d e f"))
    # The tiny tokenizer: a to j are 2 to 11, <eos> is 1.
    assert [row[keep].tolist() for row, keep in zip(rows.tokens, rows.mask, strict=True)] == [
        [2, 3, 1],
        [4, 1],
        [5, 6, 7, 1],
    ]
    assert rows.mask.tolist() == [[True, True, True, False], [True, True, False, False], [True] * 4]
    assert rows.prompts == ((2, 3), (4,), (5, 6, 7))
    assert rows.groups.tolist() == [9, 4, 7]
    assert rows.texts == rows.columns["completion"] == ("a b", "c", "d e f")
    assert rows.stop_reasons == ("eos",) * 3
    assert rows.behavior is None
    assert not rows.sampled.any()
    assert not rows.greedy.any()
    assert rows.temperature == 1


def test_an_end_that_is_there_is_not_doubled():
    rows = write(("a <eos>", "b", "<eos> c"))
    assert [row[keep].tolist() for row, keep in zip(rows.tokens, rows.mask, strict=True)] == [[2, 1], [3, 1], [1, 4, 1]]


def test_an_end_of_the_model_alone_is_not_doubled_either():
    policy = tiny.policy("small")
    policy.model.generation_config.eos_token_id = [1, 5]
    rows = write(("a d", "d a"), policy=policy)
    assert [row[keep].tolist() for row, keep in zip(rows.tokens, rows.mask, strict=True)] == [[2, 5], [5, 2, 1]]


def test_nothing_is_added_in_front():
    """A tokenizer that begins a text with a token of its own must not do so between prompt and completion."""
    from copy import deepcopy

    from tokenizers.processors import TemplateProcessing

    tokenizer = deepcopy(tiny.tokenizer())
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="j $A", special_tokens=[("j", 11)])
    assert tokenizer("a")["input_ids"] == [11, 2]
    policy = tiny.policy("small")
    policy.tokenizer = tokenizer
    assert write(("a b",), policy=policy).tokens.tolist() == [[2, 3, 1]]


def test_prompt_and_completion_are_the_ids_of_the_tiny_pair_s_whole_text():
    recipe, inputs = open_recipe("sft", settings=["data.rows=20", "evaluation.data.rows=4"])
    policy = load_policy("small", PolicySpec(model="tiny:small"), live=False)
    prompts = inputs.prompts.take(range(20))
    rows = recipe.sampler(prompts, {"small": policy}, torch.Generator())
    for row in range(20):
        text = prompts.columns["prompt"][row] + prompts.columns["completion"][row] + "<eos>"
        assert [*rows.prompts[row], *rows.tokens[row][rows.mask[row]].tolist()] == policy.tokenizer(text)["input_ids"]


def test_what_no_completion_can_be_made_of_is_named():
    values = ["a b c", "a b c d", "a b c <eos>", "", " ", None, 3, ["a"], "a b c d <eos>"]
    faults = SAMPLER.row_faults({"completion": values}, tiny.tokenizer())
    long = "column 'completion' has 5 tokens with the end-of-sequence token, over max_new_tokens = 4"
    assert dict(sorted(faults.items())) == {
        1: long,
        3: "column 'completion' is empty; the text of a completion is expected",
        4: "column 'completion' is empty; the text of a completion is expected",
        5: "column 'completion' is a NoneType; the text of a completion is expected",
        6: "column 'completion' is a int; the text of a completion is expected",
        7: "column 'completion' is a list; the text of a completion is expected",
        8: long,
    }


def test_a_tokenizer_without_an_end_is_refused():
    from copy import deepcopy

    tokenizer = deepcopy(tiny.tokenizer())
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="the tokenizer has no end-of-sequence token"):
        SAMPLER.row_faults({"completion": ["a"]}, tokenizer)


@pytest.fixture
def table(tmp_path):
    def write(rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [f"data={{kind='dataset', path='{path}'}}", "evaluation.data={kind='arithmetic', split='eval', rows=4}"]

    return write


ROW = {"prompt": "1+2=", "answer": "3", "completion": "1+2=3"}
BAD = [{**ROW, "completion": value} for value in ("", None, 7, "1+2=3\n" * 9)]


def test_bad_completions_are_skipped_and_named_before_the_run(table):
    recipe = read_recipe("sft", settings=table([ROW, *BAD, ROW]))
    prompts = load_inputs(recipe).prompts
    assert len(prompts) == 2
    assert [(fault.kind, str(fault)) for fault in prompts.skipped] == [
        ("no value", "line 2: column 'completion' has no value (or extract does not match it)"),
        ("no value", "line 3: column 'completion' has no value (or extract does not match it)"),
        ("no completion", "line 4: sampler: column 'completion' is a int; the text of a completion is expected"),
        (
            "no completion",
            "line 5: sampler: column 'completion' has 55 tokens with the end-of-sequence token, over "
            "max_new_tokens = 48",
        ),
    ]


def test_on_bad_row_stop_ends_the_run_before_it_starts(table):
    with pytest.raises(RecipeError, match=r"2 of 3 rows cannot be used .* and on_bad_row is 'stop'"):
        open_recipe("sft", settings=[*table([ROW, *BAD[2:]]), "on_bad_row=stop"])


@pytest.mark.parametrize(
    ("recipe", "place", "column"),
    [
        ("sft", "sampler", []),
        ("gkd", "sampler.of.1.sampler", []),
        ("sft", "sampler", ["sampler.column=worked"]),
    ],
)
def test_a_missing_column_names_the_sampler(recipe, place, column, table):
    name = "worked" if column else "completion"
    with pytest.raises(RecipeError) as caught:
        open_recipe(recipe, settings=[*table([{"prompt": "1+2=", "answer": "3", "output": "3"}]), *column])
    (mistake,) = caught.value.mistakes
    assert f"has no column '{name}', which {place} reads. It has: prompt, answer, output." in mistake
    assert column or mistake.endswith('columns = { completion = "output" }.')


def test_the_questions_of_the_evaluation_need_no_completion(table, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"prompt": "1+2=", "answer": "3"}) + "\n")
    settings = [table([ROW])[0], f"evaluation.data={{kind='dataset', path='{questions}'}}"]
    assert len(open_recipe("sft", settings=settings)[1].questions) == 1
