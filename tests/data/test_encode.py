"""Rows to token ids: every row that cannot be used is named, none is cut."""

import re

import datasets
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import tiny
from grpo_kit.data import Rows, encode_prompts
from grpo_kit.data.encode import CHUNK
from grpo_kit.data.rows import Fault, tally

TEMPLATE = "{% for m in messages %}j {{ m.content }}{% endfor %}{% if add_generation_prompt %} i{% endif %}"


def table(prompts, answers=None):
    return datasets.Dataset.from_dict({"prompt": prompts, "answer": answers or ["1"] * len(prompts)})


def test_rows_that_cannot_be_used_are_skipped_counted_and_named():
    rows = table(["a b", None, "a b c d", "", "c"], ["1", "2", "3", "4", None])
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=3, needed=["answer"])
    assert prompts.ids == ((2, 3),)
    assert prompts.columns == {"prompt": ("a b",), "answer": ("1",)}
    assert tuple(map(str, prompts.skipped)) == (
        "row 1: no prompt (a text that is not empty, or chat messages with chat = true)",
        "row 2: 4 tokens, over max_prompt_tokens = 3",
        "row 3: no prompt (a text that is not empty, or chat messages with chat = true)",
        "row 4: column 'answer' has no value (or extract does not match it)",
    )
    assert tally(prompts.skipped) == {"no prompt": 2, "too long": 1, "no value": 1}


def test_a_prompt_of_just_the_limit_is_kept():
    assert len(encode_prompts(table(["a b c"]), tiny.tokenizer(), max_tokens=3)) == 1


def test_the_limit_counts_good_rows():
    prompts = encode_prompts(table(["", "a", "b", "c"]), tiny.tokenizer(), max_tokens=3, limit=2)
    assert prompts.ids == ((2,), (3,))


def test_no_row_left_is_an_error_with_the_first_reasons():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        encode_prompts(table(["a b c", ""]), tiny.tokenizer(), max_tokens=2)
    assert str(caught.value) == (
        "the data: 0 of 2 rows left, limit 2 tokens (max_prompt_tokens): 1 too long, 1 no prompt. "
        "row 0: 3 tokens, over max_prompt_tokens = 2; "
        "row 1: no prompt (a text that is not empty, or chat messages with chat = true)"
    )


def test_a_column_that_a_reward_needs_is_named():
    with pytest.raises(ValueError, match=r"^the data has no column 'gold'\. It has: prompt, answer\. Map it"):
        encode_prompts(table(["a"]), tiny.tokenizer(), max_tokens=2, needed=["gold"])


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
    with pytest.raises(ValueError, match=r"^the data: 0 of 1 rows left, .*" + re.escape(f"row 0: {fault}")):
        encode_prompts(rows, tiny.tokenizer(), max_tokens=3, needed=["answer"])


def test_chat_messages_need_a_template():
    rows = datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": "a"}]]})
    with pytest.raises(ValueError, match="no chat template: remove chat = true"):
        encode_prompts(rows, tiny.tokenizer(), max_tokens=3)


def chatting(template=TEMPLATE):
    tokenizer = tiny.tokenizer().__class__(
        tokenizer_object=tiny.tokenizer()._tokenizer, pad_token="<pad>", eos_token="<eos>"
    )
    tokenizer.chat_template = template
    return tokenizer


def chats(*contents):
    return datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": content}] for content in contents]})


def test_many_rows_are_encoded_as_one_by_one():
    texts = [" ".join("abcdefghij"[digit] for digit in map(int, str(number))) for number in range(CHUNK + 40)]
    tokenizer, prompting = tiny.tokenizer(), chatting()
    assert encode_prompts(table(texts), tokenizer, max_tokens=9).ids == tuple(
        tuple(tokenizer(text)["input_ids"]) for text in texts
    )
    assert encode_prompts(chats(*texts), prompting, max_tokens=9).ids == tuple(
        tuple(
            prompting.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )
        for text in texts
    )


def test_special_tokens_come_from_the_tokenizer_or_from_the_chat_template():
    tokenizer = chatting()
    tokenizer._tokenizer = Tokenizer.from_str(tokenizer._tokenizer.to_str())  # the shared one stays as it is
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", tiny.EOS)])
    plain, chat = (encode_prompts(rows, tokenizer, max_tokens=9).ids[0] for rows in (table(["a"]), chats("a")))
    assert plain[0] == tiny.EOS
    assert tiny.EOS not in chat


def test_the_limit_holds_over_many_rows():
    texts = ["" if number % 3 else "a" for number in range(3 * CHUNK)]
    prompts = encode_prompts(table(texts), tiny.tokenizer(), max_tokens=3, limit=CHUNK - 1)
    assert len(prompts) == CHUNK - 1
    assert prompts.skipped[-1].place == f"row {3 * (CHUNK - 2) - 1}"


def test_options_reach_the_chat_template_and_unknown_ones_are_refused():
    template = TEMPLATE + "{% if enable_thinking %} h{% endif %}"
    rows = Rows(columns={"prompt": chats("a")["prompt"][:]}, places=["line 1"], chat_options={"enable_thinking": True})
    prompts = encode_prompts(rows, chatting(template), max_tokens=9)
    assert prompts.ids == (tuple(tiny.tokenizer()("j a i h")["input_ids"]),)
    with pytest.raises(ValueError, match=r"^chat_options\.enable_thinking: the tokenizer's chat template has no such"):
        encode_prompts(rows, chatting(), max_tokens=9)


def test_messages_that_the_template_refuses_are_named():
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + TEMPLATE
    columns = {
        "prompt": [
            [{"role": "system", "content": "a"}],
            [{"role": "user", "content": "a"}],
            ["a"],
            [{"role": "user", "content": None}],
        ]
    }
    rows = Rows(columns=columns, places=["line 1", "line 2", "line 3", "line 4"])
    prompts = encode_prompts(rows, chatting(template), max_tokens=9)
    assert len(prompts) == 1
    assert [(fault.kind, fault.place) for fault in prompts.skipped] == [
        ("odd chat", "line 1"),
        ("odd chat", "line 3"),
        ("odd chat", "line 4"),
    ]
    assert "no system here" in prompts.skipped[0].reason


def test_half_a_surrogate_pair_costs_one_row():
    rows = Rows(
        columns={"prompt": ["a", "\ud800", "b"], "answer": ["1", "2", "\udfff"]}, places=["row 0", "row 1", "row 2"]
    )
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=9, needed=["answer"])
    assert prompts.ids == ((2,),)
    assert tally(prompts.skipped) == {"broken unicode": 2}


def test_a_judge_sees_the_rows_that_are_left_and_its_word_counts():
    seen = []

    def judge(columns):
        seen.extend(columns["answer"])
        return {number: f"{gold} is odd" for number, gold in enumerate(columns["answer"]) if gold == "x"}

    rows = table(["a", "", "b", "c", "d"], ["1", "2", "x", "4", "5"])
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=9, judges=[judge], limit=2)
    assert prompts.columns["answer"] == ("1", "4")
    assert seen == ["1", "x", "4"]
    assert [(fault.kind, str(fault)) for fault in prompts.skipped[-1:]] == [("not gradable", "row 2: x is odd")]


def test_values_of_a_free_column_may_be_anything_but_missing():
    rows = Rows(columns={"prompt": ["a", "b"], "tests": [["x"], None]}, places=["row 0", "row 1"])
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=9, needed=["tests"], free=["tests"])
    assert prompts.columns["tests"] == (["x"],)
    assert tally(prompts.skipped) == {"no value": 1}


def test_faults_that_the_rows_bring_come_first():
    fault = Fault(place="line 1", kind="malformed", reason="not JSON")
    rows = Rows(columns={"prompt": ["", "a"]}, places=["line 2", "line 3"], faults=(fault,))
    prompts = encode_prompts(rows, tiny.tokenizer(), max_tokens=9)
    assert prompts.skipped[0] == fault
    assert prompts.skipped[1].place == "line 2"


def test_a_table_without_rows_says_so():
    with pytest.raises(ValueError, match=r"^the data has no rows$"):
        encode_prompts(table([]), tiny.tokenizer(), max_tokens=9)
