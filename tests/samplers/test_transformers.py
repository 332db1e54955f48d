"""Greedy rows beside the sampled ones."""

from dataclasses import replace

import pytest
import torch

import tiny
from grpo_kit import Prompts, Sampling, TransformersSampler

SAMPLER = TransformersSampler(policy="small", samples=3, max_new_tokens=6, greedy=True)
PROMPTS = Prompts(ids=((2, 3), (4,), (5, 6, 7), (8,)), groups=(7, 8, 9, 12), columns={"answer": tuple("abcd")})


def write(sampler, seed=0):
    policies = {"small": tiny.policy("small")}
    return sampler(PROMPTS, policies, torch.Generator().manual_seed(seed))


def test_one_greedy_row_of_each_prompt_comes_after_all_sampled_ones():
    rows = write(SAMPLER)
    assert rows.greedy.tolist() == [False] * 12 + [True] * 4
    assert rows.groups.tolist() == [7] * 3 + [8] * 3 + [9] * 3 + [12] * 3 + [7, 8, 9, 12]
    assert rows.columns["answer"] == (*"aaabbbcccddd", *"abcd")
    assert rows.prompts[12:] == PROMPTS.ids
    assert rows.temperature == 1
    assert [writer.sampling for writer in rows.behavior.writers] == [Sampling(), Sampling(temperature=0)]
    assert (rows.behavior.writer[rows.mask & rows.greedy[:, None]] == 1).all()
    assert (rows.behavior.writer[rows.mask & ~rows.greedy[:, None]] == 0).all()


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 4, "top_p": 0.9}, {"rows_per_batch": 4}])
def test_greedy_rows_are_those_of_greedy_decoding_and_chance_decides_none(settings):
    sampler = replace(SAMPLER, **settings)
    rows, other = write(sampler), write(sampler, seed=1)
    alone = write(TransformersSampler(policy="small", samples=1, max_new_tokens=6, temperature=0))
    for found in (rows, other):
        at_zero = found.take(range(12, 16))
        assert at_zero.texts == alone.texts
        assert torch.equal(at_zero.tokens, alone.tokens)
        assert at_zero.stop_reasons == alone.stop_reasons
        torch.testing.assert_close(at_zero.behavior.logprobs, alone.behavior.logprobs)
    assert not torch.equal(rows.take(range(12)).tokens, other.take(range(12)).tokens)


@pytest.mark.parametrize("per_batch", [1, 4, 512])
def test_sampled_rows_are_the_same_with_and_without_greedy_ones(per_batch):
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    policies = {"small": tiny.policy("small")}
    beside, alone = (
        replace(SAMPLER, greedy=greedy, rows_per_batch=per_batch)(PROMPTS, policies, generator)
        for greedy, generator in zip((True, False), generators, strict=True)
    )
    assert torch.equal(beside.take(range(12)).tokens, alone.tokens)
    assert len(alone.behavior.writers) == 1
    assert torch.equal(*(generator.get_state() for generator in generators))  # and so are those of the next step
