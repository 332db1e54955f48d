"""The texts of tokens, one after another, are the text of all."""

from functools import lru_cache

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import tiny
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run.pieces import LONGEST, pieces


@lru_cache
def of_bytes() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges, so that every character but ASCII is split, and a special token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    own = PreTrainedTokenizerFast(tokenizer_object=inner)
    own.add_special_tokens({"eos_token": "<eos>"})
    return own


def ids(text):
    return of_bytes()(text)["input_ids"]


def whole(tokens, tokenizer):
    return tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)


def test_a_character_of_several_tokens_is_the_piece_of_the_last():
    assert pieces(ids("a🙂é<eos>"), of_bytes()) == ["a", "", "", "", "🙂", "", "é", "<eos>"]


def test_bytes_that_are_no_character():
    assert pieces(ids("🙂")[:3], of_bytes()) == ["", "", "\ufffd"]
    assert pieces([*ids("🙂")[:2], *ids("ab")], of_bytes()) == ["", "", "\ufffda", "b"]
    assert pieces([], of_bytes()) == []
    spam = pieces(ids("é")[:1] * 100, of_bytes())
    assert spam.count("") == 100 - len([piece for piece in spam if piece])
    assert "".join(spam) == "\ufffd" * 100
    assert max(map(len, spam)) <= LONGEST


@given(st.text(max_size=24))
def test_pieces_of_a_text_are_the_text_without_a_broken_character(text):
    text = text.encode("utf-8", "ignore").decode()
    found = pieces(ids(text), of_bytes())
    assert "".join(found) == text
    assert len(found) == len(ids(text))
    assert all("\ufffd" not in piece for piece in found) or "\ufffd" in text


@given(st.lists(st.integers(0, 256), max_size=LONGEST - 1))
def test_pieces_of_any_tokens_are_their_text(tokens):
    assert "".join(pieces(tokens, of_bytes())) == whole(tokens, of_bytes())


@given(st.lists(st.integers(0, tiny.VOCABULARY - 1), max_size=30))
def test_spaces_between_words_are_kept(tokens):
    assert "".join(pieces(tokens, tiny.tokenizer())) == whole(tokens, tiny.tokenizer())


@pytest.mark.parametrize("text", ["12+3-4=11\n\\boxed{11}", ""])
def test_the_tiny_pair_s_tokens(text):
    tokenizer = AutoTokenizer.from_pretrained(tiny_path("small"))
    tokens = tokenizer(text)["input_ids"]
    assert "".join(pieces(tokens, tokenizer)) == whole(tokens, tokenizer)
