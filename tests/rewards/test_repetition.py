"""The n-gram repetition penalty."""

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import Repetition, Signals
from tolerances import EXACT


def by_counting(items, size):
    """Every n-gram that was there before, over all of them."""
    grams = [tuple(items[start : start + size]) for start in range(len(items) - size + 1)]
    again = sum(gram in grams[:place] for place, gram in enumerate(grams))
    return -again / len(grams) if grams else 0.0


TEXTS = ["a b a b a b", "no no no", "one two", "", "A b\n a\tB c", "x y z"]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_words(size):
    found = Repetition(size=size, max_penalty=2.0)(tiny.with_texts(TEXTS), Signals({}))
    expected = [2 * by_counting(text.lower().split(), size) for text in TEXTS]
    torch.testing.assert_close(found.values, torch.tensor(expected), **EXACT)
    assert found.statuses == ("ok",) * len(TEXTS)
    assert {0.0} < set(found.values.tolist())


@pytest.mark.usefixtures("float64")
def test_tokens_are_those_of_the_completion_alone():
    rows = tiny.rollouts([6, 2], [0, 0], width=9, texts=["same same same", "same same same"])
    rows.tokens[0] = torch.tensor([4, 5, 4, 5, 4, 5, 9, 9, 9])
    rows.tokens[1] = 7
    found = Repetition(size=2, unit="tokens")(rows, Signals({}))
    assert found.values.tolist() == pytest.approx([-3 / 5, 0.0])  # 45 54 45 54 45: 5 pairs, 2 distinct


@pytest.mark.parametrize("settings", [{"size": 0}, {"max_penalty": 0.0}, {"max_penalty": -1.0}, {"unit": "letters"}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        Repetition(**settings)
