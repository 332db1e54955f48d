"""Two policies compared over rollouts: against dense logits in loops; padding and chunks change nothing."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st

import tiny
from grpo_kit import Behavior, Sampling, Writer
from grpo_kit.batch import NOBODY
from grpo_kit.overlap import compare
from grpo_kit.overlap.measure import join, measure
from tolerances import MODEL

pytestmark = pytest.mark.usefixtures("float64")

K = 4


def padded(rollouts, columns):
    """The rollouts with columns of padding behind, full of a token that would count."""
    wide = torch.nn.functional.pad
    behavior = rollouts.behavior
    return replace(
        rollouts,
        tokens=wide(rollouts.tokens, (0, columns), value=5),
        mask=wide(rollouts.mask, (0, columns), value=False),
        behavior=replace(
            behavior, writer=wide(behavior.writer, (0, columns)), logprobs=wide(behavior.logprobs, (0, columns))
        ),
    )


def whole(student, teacher, rollouts, size):
    return measure(student, teacher, rollouts, K, size=size).values.overlap.mean()


def with_padding(student, teacher, rollouts, size):
    """Broken: counts padding as 0."""
    return measure(student, teacher, rollouts, K, size=size).values.overlap.sum() / rollouts.mask.numel()


def mean_of_chunks(student, teacher, rollouts, size):
    """Broken: the mean of the chunks' means."""
    found = measure(student, teacher, rollouts, K, size=size).values.overlap
    return torch.stack([part.mean() for part in found.split(max(1, size // tiny.VOCABULARY))]).mean()


def unmoved_by_padding(number, lengths, columns):
    rollouts = tiny.rollouts(lengths, range(len(lengths)))
    policies = tiny.policy(seed=1), tiny.policy("large", seed=2)
    found = [number(*policies, rows, 2**20) for rows in (rollouts, padded(rollouts, columns))]
    assert torch.allclose(*found, **MODEL)


def unmoved_by_chunks(number, lengths, columns):
    rollouts = tiny.rollouts(lengths, range(len(lengths)))
    policies = tiny.policy(seed=1), tiny.policy("large", seed=2)
    found = [number(*policies, rollouts, size) for size in (2**20, columns * tiny.VOCABULARY, 1)]
    assert torch.allclose(found[0], found[1], **MODEL)
    assert torch.allclose(found[0], found[2], **MODEL)


CASES = st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3)
BROKEN = {unmoved_by_padding: with_padding, unmoved_by_chunks: mean_of_chunks}


@pytest.mark.parametrize("law", BROKEN)
@given(*CASES)
def test_the_mean_is(law, lengths, columns):
    law(whole, lengths, columns)


@pytest.mark.parametrize(("law", "broken"), BROKEN.items())
def test_a_broken_mean_is_rejected(law, broken):
    @given(*CASES)
    def holds(lengths, columns):
        law(broken, lengths, columns)

    with pytest.raises(AssertionError):
        holds()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_every_token_is_compared_as_dense_logits_say(temperature):
    rollouts = tiny.rollouts([3, 5, 1, 0, 4], [7, 7, 8, 8, 9])
    writers = (Writer(policy="small", version=0, sampling=Sampling(temperature=temperature)),)
    rollouts = replace(rollouts, behavior=replace(rollouts.behavior, writers=writers))
    student, teacher = tiny.policy(seed=1), tiny.policy("large", seed=2, budget=8)
    found = measure(student, teacher, rollouts, K, size=30)
    with torch.no_grad():
        dense = [policy.logits(rollouts) for policy in (student, teacher)]
    place = 0
    for row, length in enumerate([3, 5, 1, 0, 4]):
        for token in range(length):
            logits = [each[row, token][None] for each in dense]
            expected = compare(*logits, rollouts.tokens[row, token][None], K, temperature)
            for name, value in expected._asdict().items():
                assert torch.allclose(getattr(found.values, name)[place], value[0], **MODEL), name
            assert int(found.prompts[place]) == [7, 7, 8, 8, 9][row]
            assert int(found.positions[place]) == token
            place += 1
    assert place == len(found.prompts) == len(found.values.overlap)
    assert found.lengths.tolist() == [3, 5, 1, 0, 4]
    assert found.stop_reasons == rollouts.stop_reasons


def test_a_policy_overlaps_with_itself():
    found = measure(tiny.policy(seed=1), tiny.policy("same", seed=1), tiny.rollouts([3, 5], [0, 1]), K).values
    assert torch.equal(found.overlap, torch.ones(8))
    assert torch.equal(found.log_ratio, torch.zeros(8))
    assert torch.allclose(found.reverse_kl, torch.zeros(8), **MODEL)


def test_a_padded_vocabulary_is_cut_to_the_common_part():
    rollouts, student, teacher = tiny.rollouts([3, 5], [0, 1]), tiny.policy(seed=1), tiny.policy("large", seed=2)
    before = measure(student, teacher, rollouts, K).values
    teacher.model.resize_token_embeddings(20)
    teacher.model.get_output_embeddings().weight.data[12:] = 9.0  # likely, where it counts
    teacher.vocabulary = 20
    for pair in ((student, teacher), (teacher, student)):
        found = measure(*pair, rollouts, K).values
        assert torch.allclose(found.overlap, before.overlap)
    assert torch.allclose(measure(student, teacher, rollouts, K).values.reverse_kl, before.reverse_kl, **MODEL)


def test_greedy_rows_and_data_rows_are_left_out():
    rollouts = tiny.rollouts([2, 3, 4], [0, 1, 2])
    writers = tuple(Writer(policy="small", version=0, sampling=Sampling(temperature=each)) for each in (1.0, 0.0))
    writer = torch.zeros_like(rollouts.tokens)
    writer[1], writer[2] = 1, NOBODY
    mixed = replace(rollouts, behavior=Behavior(writers=writers, writer=writer, logprobs=rollouts.behavior.logprobs))
    student, teacher = tiny.policy(seed=1), tiny.policy("large", seed=2)
    found = measure(student, teacher, mixed, K)
    assert found.lengths.tolist() == [2]
    alone = measure(student, teacher, rollouts.take([0]), K)
    assert torch.equal(found.values.overlap, alone.values.overlap)


def test_batches_joined_are_one_batch():
    rollouts = tiny.rollouts([3, 5, 1, 2], [0, 1, 2, 3])
    student, teacher = tiny.policy(seed=1), tiny.policy("large", seed=2)
    parts = [measure(student, teacher, rollouts.take(rows), K) for rows in ([0, 1], [2, 3])]
    together, at_once = join(parts), measure(student, teacher, rollouts, K)
    for name in at_once.values._fields:
        assert torch.allclose(getattr(together.values, name), getattr(at_once.values, name), **MODEL)
    for name in ("prompts", "positions", "lengths"):
        assert torch.equal(getattr(together, name), getattr(at_once, name))
    assert together.stop_reasons == at_once.stop_reasons


def test_damaged_weights_are_named():
    teacher = tiny.policy("large", seed=2)
    teacher.model.get_output_embeddings().weight.data[3] = torch.nan
    said = "'small' and 'large' cannot be compared at row 0, token 0: a log-probability is not finite there."
    with pytest.raises(ValueError, match=said):
        measure(tiny.policy(seed=1), teacher, tiny.rollouts([3, 5], [0, 1]), K)
