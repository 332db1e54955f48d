"""Mixtures of samplers: how many prompts each gets, which, and how the rows are joined."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

import tiny
from grpo_kit import DataRows, Mixed, Prompts, Sampling, Share, TransformersSampler
from grpo_kit.batch import NOBODY, Sampled
from grpo_kit.samplers.mixed import has_data_rows, has_sampled_rows, portions, writers

DATA = DataRows(policy="small", max_new_tokens=4)
WRITING = TransformersSampler(policy="small", samples=2, max_new_tokens=6)
TEXTS = ("a", "b c", "d", "e f", "g", "h i", "j", "a a")
PROMPTS = Prompts(
    ids=tuple((2 + number,) for number in range(8)),
    groups=(15, 3, 12, 8, 9, 10, 2, 11),
    columns={"completion": TEXTS, "number": tuple(range(8))},
)


def mixed(*pairs) -> Mixed:
    return Mixed(of=tuple(Share(share=share, sampler=sampler) for share, sampler in pairs))


HALVES = mixed((0.5, WRITING), (0.5, DATA))


def write(sampler, seed=0, prompts=PROMPTS):
    policies = {name: tiny.policy(name) for name in ("small", "large")}
    return sampler(prompts, policies, torch.Generator().manual_seed(seed))


def by_hand(parts, prompts):
    """The largest remainder in exact fractions: whole quotas, then one more to the largest remainders, first first."""
    quotas = [Fraction(part, sum(parts)) * prompts for part in parts]
    counts = [quota.numerator // quota.denominator for quota in quotas]
    for _ in range(prompts - sum(counts)):
        remainders = [quota - count for quota, count in zip(quotas, counts, strict=True)]
        counts[remainders.index(max(remainders))] += 1
    return tuple(counts)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.integers(0, 300))
def test_counts_are_the_largest_remainder_s_for_any_shares(parts, prompts):
    total = sum(parts)
    counts = mixed(*((part / total, DATA) for part in parts)).counts(prompts)
    assert counts == by_hand(parts, prompts)
    assert sum(counts) == prompts
    assert all(abs(count - part / total * prompts) < 1 for count, part in zip(counts, parts, strict=True))


def test_counts_by_hand():
    assert HALVES.counts(8) == (4, 4)
    assert HALVES.counts(3) == (2, 1)  # equal remainders: the first
    assert mixed((0.333, DATA), (0.333, DATA), (0.333, DATA)).counts(9) == (3, 3, 3)
    # Shares that are 1.004 together: 0.335 / 1.004 * 3000 = 1000.996, 0.334 / 1.004 * 3000 = 998.008.
    assert mixed((0.335, DATA), (0.335, DATA), (0.334, DATA)).counts(3000) == (1001, 1001, 998)
    assert mixed((0.9, DATA), (0.1, DATA)).counts(4) == (4, 0)  # 3.6 and 0.4


def test_rows_come_prompt_after_prompt_and_each_prompt_has_one_writer():
    rows = write(HALVES)
    groups = rows.groups.tolist()
    assert list(dict.fromkeys(groups)) == list(PROMPTS.groups)
    sizes = [groups.count(group) for group in PROMPTS.groups]
    assert sorted(sizes) == [1] * 4 + [2] * 4
    assert groups == [group for group, size in zip(PROMPTS.groups, sizes, strict=True) for _ in range(size)]
    at = [PROMPTS.groups.index(group) for group in groups]
    assert rows.prompts == tuple(PROMPTS.ids[number] for number in at)
    assert rows.columns["number"] == tuple(at)
    assert rows.sampled.tolist() == [groups.count(group) == 2 for group in groups]


def test_each_row_is_what_its_sampler_alone_gives():
    rows = write(HALVES)
    data = write(DATA)
    writing = [PROMPTS.groups.index(group) for group in dict.fromkeys(rows.groups[rows.sampled].tolist())]
    # The mixture draws its order of the prompts first, then hands the generator on.
    generator = torch.Generator().manual_seed(0)
    torch.randperm(8, generator=generator)
    chosen = Prompts(
        ids=tuple(PROMPTS.ids[number] for number in writing),
        groups=tuple(PROMPTS.groups[number] for number in writing),
        columns={},
    )
    alone = WRITING(chosen, {"small": tiny.policy("small")}, generator)
    sampled = rows.take(torch.nonzero(rows.sampled).flatten().tolist())
    assert sampled.texts == alone.texts
    assert torch.equal(sampled.tokens * sampled.mask, alone.tokens * alone.mask)
    assert torch.equal(sampled.mask, alone.mask)
    assert sampled.stop_reasons == alone.stop_reasons
    torch.testing.assert_close(sampled.behavior.logprobs * sampled.mask, alone.behavior.logprobs * alone.mask)
    for row in torch.nonzero(~rows.sampled).flatten().tolist():
        own = PROMPTS.groups.index(int(rows.groups[row]))
        assert rows.texts[row] == TEXTS[own]
        assert rows.tokens[row][rows.mask[row]].tolist() == data.tokens[own][data.mask[own]].tolist()
        assert rows.stop_reasons[row] == "eos"


def test_the_behavior_policy_is_nobody_s_on_rows_of_the_data():
    rows = write(HALVES)
    (writer,) = rows.behavior.writers
    assert (writer.policy, writer.sampling) == ("small", Sampling())
    data = rows.mask & ~rows.sampled[:, None]
    assert (rows.behavior.writer[data] == NOBODY).all()
    assert (rows.behavior.logprobs[data] == 0).all()
    assert (rows.behavior.writer[rows.mask & rows.sampled[:, None]] == 0).all()
    assert (rows.behavior.logprobs[rows.mask & rows.sampled[:, None]] < 0).all()
    assert rows.temperature == 1


def test_data_of_two_columns_has_no_behavior_policy():
    assert write(mixed((0.5, DATA), (0.5, DATA))).behavior is None


def test_the_generator_decides_and_nothing_else():
    first, again, other = (write(HALVES, seed) for seed in (3, 3, 4))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.sampled, again.sampled)
    assert first.texts == again.texts
    assert first.sampled.tolist() != other.sampled.tolist()


def test_every_prompt_goes_to_each_sampler_by_its_share():
    """200 draws of 4 among 8 prompts: each is with the first sampler half of the time."""
    half = mixed((0.5, DATA), (0.5, DataRows(policy="small", column="other", max_new_tokens=4)))
    columns = {"completion": ("a",) * 8, "other": ("b",) * 8}
    prompts = Prompts(ids=PROMPTS.ids, groups=PROMPTS.groups, columns=columns)
    policies, generator = {"small": tiny.policy("small")}, torch.Generator().manual_seed(0)
    drawn = [[text == "a" for text in half(prompts, policies, generator).texts] for _ in range(200)]
    assert all(sum(draw) == 4 for draw in drawn)
    # Five standard deviations of a share of 200 draws: 5 * sqrt(0.25 / 200) = 0.18.
    assert all(abs(sum(column) / 200 - 0.5) < 0.18 for column in zip(*drawn, strict=True))


def test_two_policies_may_write_and_mixtures_may_hold_mixtures():
    large = TransformersSampler(policy="large", samples=3, max_new_tokens=5, stop=("j",), rows_per_batch=7)
    inner = mixed((0.5, large), (0.5, DATA))
    both = mixed((0.5, WRITING), (0.5, inner))
    rows = write(both)
    assert {writer.policy for writer in rows.behavior.writers} == {"small", "large"}
    groups = rows.groups.tolist()
    assert sorted(groups.count(group) for group in PROMPTS.groups) == [1, 1, 2, 2, 2, 2, 3, 3]
    assert (rows.written_by("large").any(1).sum(), rows.written_by("small").any(1).sum()) == (6, 8)
    assert both.reads == ("small", "large")
    assert (both.samples, both.max_new_tokens, both.temperature) == (3, 6, 1.0)
    assert (both.stop, both.rows_per_batch) == (("j",), 7)
    assert list(portions(both, 8)) == [
        ("sampler.of.0.sampler", WRITING, 4),
        ("sampler.of.1.sampler.of.0.sampler", large, 2),
        ("sampler.of.1.sampler.of.1.sampler", DATA, 2),
    ]
    assert writers(both) == ("small", "large")
    assert writers(DATA) == ()
    assert (has_data_rows(both), has_sampled_rows(both)) == (True, True)
    assert (has_data_rows(WRITING), has_sampled_rows(WRITING)) == (False, True)
    assert (has_data_rows(DATA), has_sampled_rows(DATA)) == (True, False)


def test_functions_that_say_nothing_of_themselves_may_be_mixed():
    """What none of them says the mixture does not say either, so that readers take their defaults."""
    own = mixed((0.5, lambda prompts, policies, generator: DATA(prompts, policies, generator)), (0.5, print))
    assert (own.samples, own.reads, own.stop) == (1, (), ())
    for name in ("max_new_tokens", "rows_per_batch", "temperature"):
        assert getattr(own, name, "unknown") == "unknown"


def test_a_step_with_fewer_prompts_than_samplers_leaves_some_out():
    one = Prompts(ids=((2,),), groups=(5,), columns={"completion": ("a",)})
    assert len(write(HALVES, prompts=one)) == 2  # the first sampler's two samples


class Supplying:
    supplies_signals = True

    def __call__(self, prompts, policies, generator):
        return Sampled(rollouts=DATA(prompts, policies, generator), signals={})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (((0.5, DATA), (0.4, DATA)), "the shares sum to 0.9; make them sum to 1"),
        (((0.5, DATA), (0.51, DATA)), "the shares sum to 1.01; make them sum to 1"),
        (((0.5, DATA),), "at least 2 items"),
        (((0.0, DATA), (1.0, DATA)), "greater than 0"),
        (((0.5, DATA), (0.5, TransformersSampler(policy="s", samples=2, max_new_tokens=4, greedy=True))), "greedy"),
        (
            ((0.5, WRITING), (0.5, TransformersSampler(policy="s", samples=2, max_new_tokens=4, temperature=0.7))),
            r"temperatures \[0.7, 1.0\]",
        ),
        (((0.5, DATA), (0.5, Supplying())), "a sampler that supplies signals"),
    ],
)
def test_mistakes_are_refused(pairs, message):
    with pytest.raises(ValidationError, match=message):
        mixed(*pairs)


def test_signals_that_come_without_a_word_are_refused_when_they_come():
    own = mixed((0.5, DATA), (0.5, lambda *given: Supplying()(*given)))
    with pytest.raises(ValueError, match="supplies signals with its rows cannot be mixed"):
        write(own)
