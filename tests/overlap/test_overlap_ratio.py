"""The overlap ratio and what belongs to it on a chunk of logits: laws, each with what breaks it, and plain loops."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from grpo_kit.overlap import compare, likeliest, overlap_ratio
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


@st.composite
def pairs(draw):
    """Logits of two policies, with many ties, and a k."""
    tokens, vocabulary = draw(st.integers(1, 4)), draw(st.integers(2, 9))
    number = st.integers(-2, 2).map(float)
    rows = st.lists(st.lists(number, min_size=vocabulary, max_size=vocabulary), min_size=tokens, max_size=tokens)
    return torch.tensor(draw(rows)), torch.tensor(draw(rows)), draw(st.integers(1, vocabulary))


def top(row, k):
    """The k likeliest tokens of a list of logits, of equal ones the lowest ids."""
    return set(sorted(range(len(row)), key=lambda token: (-row[token], token))[:k])


def in_range(ratio, student, teacher, k):
    found = ratio(student, teacher, k)
    return found.shape == student.shape[:-1] and bool(((found >= 0) & (found <= 1)).all())


def one_for_equal_logits(ratio, student, teacher, k):
    return bool((ratio(student, student.clone(), k) == 1).all())


def symmetric(ratio, student, teacher, k):
    return torch.equal(ratio(student, teacher, k), ratio(teacher, student, k))


def unmoved_by_temperature(ratio, student, teacher, k):
    return torch.equal(ratio(student, teacher, k), ratio(student / 2, teacher * 4 - 1, k))


def the_formula(ratio, student, teacher, k):
    both = zip(student.tolist(), teacher.tolist(), strict=True)
    expected = [len(top(own, k) & top(other, k)) / k for own, other in both]
    return ratio(student, teacher, k).tolist() == pytest.approx(expected)


LAWS = (in_range, one_for_equal_logits, symmetric, unmoved_by_temperature, the_formula)


def counted(student, teacher, k):
    return overlap_ratio(student, teacher, k) * k


def of_the_vocabulary(student, teacher, k):
    return overlap_ratio(student, teacher, k) * k / student.shape[-1]


def among_twice_as_many(student, teacher, k):
    wider = likeliest(teacher, min(2 * k, teacher.shape[-1]))
    return (likeliest(student, k) & wider).sum(-1) / k


def all_that_tie(student, teacher, k):
    both = [logits >= logits.topk(k).values[..., -1:] for logits in (student, teacher)]
    return (both[0] & both[1]).sum(-1) / k


def other_ties_for_the_teacher(student, teacher, k):
    return (likeliest(student, k) & likeliest(teacher.flip(-1), k).flip(-1)).sum(-1) / k


def by_value(student, teacher, k):
    return ((student > 0.5) & (teacher > 0.5)).sum(-1) / student.shape[-1]


def of_the_union(student, teacher, k):
    both = likeliest(student, k), likeliest(teacher, k)
    return (both[0] & both[1]).sum(-1) / (both[0] | both[1]).sum(-1)


BROKEN = {
    in_range: (counted, all_that_tie),
    one_for_equal_logits: (of_the_vocabulary, other_ties_for_the_teacher),
    symmetric: (among_twice_as_many,),
    unmoved_by_temperature: (by_value,),
    the_formula: (of_the_union, all_that_tie, other_ties_for_the_teacher),
}


@pytest.mark.parametrize("law", LAWS)
@given(pairs())
def test_the_ratio_obeys(law, pair):
    assert law(overlap_ratio, *pair)


@pytest.mark.parametrize(("law", "broken"), [(law, each) for law in LAWS for each in BROKEN[law]])
def test_a_broken_ratio_is_rejected(law, broken):
    @given(pairs())
    def holds(pair):
        assert law(broken, *pair)

    with pytest.raises(AssertionError):
        holds()


def test_all_of_the_vocabulary_overlaps_and_more_is_refused():
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    assert torch.equal(overlap_ratio(student, teacher, 5), torch.ones(2, 3))
    for k in (0, 6):
        with pytest.raises(ValueError, match=rf"k = {k}: give 1 to 5, the size of the vocabulary"):
            overlap_ratio(student, teacher, k)


def test_other_vocabularies_are_refused():
    said = "the student has 5 logits a token and the teacher 6; cut both to their common vocabulary"
    with pytest.raises(ValueError, match=said):
        overlap_ratio(torch.randn(2, 5), torch.randn(2, 6), 2)


def test_a_token_of_no_probability_is_the_last_to_be_taken():
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 0.0]])
    assert likeliest(logits, 3).tolist() == [[True, True, False, True]]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_everything_compared_is_the_formula(k, temperature):
    generator = torch.Generator().manual_seed(0)
    student, teacher = (2 * torch.randn(5, 6, generator=generator) for _ in range(2))
    tokens = torch.randint(6, (5,), generator=generator)
    found = compare(student, teacher, tokens, k, temperature)
    for place in range(5):
        own, other = (_probabilities(each[place].tolist(), temperature) for each in (student, teacher))
        tops = top(own, k), top(other, k)
        common, token = tops[0] & tops[1], int(tokens[place])
        expected = {
            "overlap": len(common) / k,
            "student_common": sum(own[each] for each in common),
            "teacher_common": sum(other[each] for each in common),
            "student_top": sum(own[each] for each in tops[0]),
            "teacher_top": sum(other[each] for each in tops[1]),
            "log_ratio": math.log(other[token] / own[token]),
            "teacher_logprob": math.log(other[token]),
            "reverse_kl": sum(p * math.log(p / q) for p, q in zip(own, other, strict=True)),
        }
        assert expected.keys() == set(found._fields)
        for name, value in expected.items():
            assert torch.allclose(getattr(found, name)[place], torch.tensor(float(value)), **EXACT), name


def _probabilities(logits, temperature):
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def test_half_precision_is_compared_in_float32():
    student, teacher = torch.randn(2, 5).bfloat16(), torch.randn(2, 5).bfloat16()
    assert overlap_ratio(student, teacher, 2).dtype == torch.float32
    assert compare(student, teacher, torch.tensor([0, 1]), 2).reverse_kl.dtype == torch.float32
