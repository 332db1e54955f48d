"""Rows to token ids, and the stream of them."""

import re

import datasets
import pytest

import tiny
from grpo_kit import PromptSet, PromptStream
from grpo_kit.data import encode_prompts


def table(prompts, answers=None):
    return datasets.Dataset.from_dict({"prompt": prompts, "answer": answers or ["1"] * len(prompts)})


def test_rows_that_cannot_be_used_are_skipped_counted_and_named():
    rows = table(["a b", None, "a b c d", "", "c"], ["1", "2", "3", "4", None])
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=3, needed=["answer"])
    assert prompts.ids == ((2, 3),)
    assert prompts.columns == {"prompt": ("a b",), "answer": ("1",)}
    assert prompts.skipped == (
        "row 1: no prompt (a text that is not empty, or chat messages with chat = true)",
        "row 2: 4 tokens, over max_prompt_tokens = 3",
        "row 3: no prompt (a text that is not empty, or chat messages with chat = true)",
        "row 4: column 'answer' has no value (or extract does not match it)",
    )


def test_a_prompt_of_just_the_limit_is_kept():
    assert len(encode_prompts(table(["a b c"]), tiny.tokenizer(), max_tokens=3)) == 1


def test_the_limit_counts_good_rows():
    prompts = encode_prompts(table(["", "a", "b", "c"]), tiny.tokenizer(), max_tokens=3, limit=2)
    assert prompts.ids == ((2,), (3,))


def test_no_row_left_is_an_error_with_the_first_reasons():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        encode_prompts(table(["a b c", ""]), tiny.tokenizer(), max_tokens=2)
    assert str(caught.value) == (
        "0 of 2 prompts left. row 0: 3 tokens, over max_prompt_tokens = 2; "
        "row 1: no prompt (a text that is not empty, or chat messages with chat = true)"
    )


def test_a_column_that_a_reward_needs_is_named():
    with pytest.raises(
        ValueError, match=r"^the data has no column 'gold' that a reward reads\. It has: prompt, answer\."
    ):
        encode_prompts(table(["a"]), tiny.tokenizer(), max_tokens=2, needed=["gold"])


def stream(seed=0, size=5):
    prompts = PromptSet(ids=tuple((row,) for row in range(size)), columns={"row": tuple(range(size))}, skipped=())
    return PromptStream(prompts, seed=seed)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7, 12])
def test_each_epoch_visits_every_prompt_once(batch):
    numbers, prompts = [], stream()
    while len(numbers) < 15:
        numbers += prompts.take(batch).columns["row"]
    for epoch in range(3):
        assert sorted(numbers[5 * epoch : 5 * epoch + 5]) == [0, 1, 2, 3, 4]


def test_the_order_depends_on_the_seed_alone():
    def order(seed, batch):
        prompts = stream(seed, size=20)
        return [row for _ in range(40 // batch) for row in prompts.take(batch).columns["row"]]

    assert order(0, 4) == order(0, 10) == order(0, 40)
    assert order(0, 4) != order(1, 4)
    assert order(0, 40)[:20] != order(0, 40)[20:]


def test_groups_never_repeat_and_columns_stay_with_their_prompt():
    prompts, groups = stream(), []
    for _ in range(6):
        batch = prompts.take(4)
        assert [ids[0] for ids in batch.ids] == list(batch.columns["row"])
        groups += batch.groups
    assert groups == list(range(24))
    assert prompts.epoch == pytest.approx(24 / 5)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("  ", "column 'answer' has no value (or extract does not match it)"),
        (["2", "3"], "column 'answer' is a list; a text or a number is expected"),
        (True, "column 'answer' is a bool; a text or a number is expected"),
    ],
)
def test_a_gold_answer_that_cannot_be_graded_is_named(value, fault):
    rows = datasets.Dataset.from_dict({"prompt": ["a b"], "answer": [value]})
    with pytest.raises(ValueError, match=re.escape(f"0 of 1 prompts left. row 0: {fault}")):
        encode_prompts(rows, tiny.tokenizer(), max_tokens=3, needed=["answer"])


def test_chat_messages_need_a_template():
    rows = datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": "a"}]]})
    with pytest.raises(ValueError, match="no chat template: remove chat = true"):
        encode_prompts(rows, tiny.tokenizer(), max_tokens=3)
