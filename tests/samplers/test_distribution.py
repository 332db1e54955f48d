"""The chi-square test that the sampler, as it is called in a run, draws what it says; and that it tells faults."""

import math
from collections import Counter

import pytest
import torch

import tiny
from grpo_kit import Prompts, Sampling, TransformersSampler
from grpo_kit.samplers import decoding
from samplers.restricted import p_value, restricted, tempered

PROMPTS = Prompts(ids=((5, 3, 7), (8,)), groups=(0, 1), columns={})
"""Of two lengths, so that the shorter one is padded."""
ROWS = 4_000
"""Rows a prompt: 133 sequences of at most two tokens among twelve are possible."""
LIKELY, IMPOSSIBLE = 1e-3, 1e-9
"""p-values above the first are no sign of a fault (fixed seed); faults give ones below the second."""
OPTIONS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 0.7, "top_p": 0.8},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.9},
    {"temperature": 1.5, "min_p": 0.15, "top_p": 0.8},
    {"temperature": 0.8, "min_p": 0.05, "top_k": 6, "top_p": 0.9},
]


def logits_after(policy, prompt):
    """The next-token logits after each prompt with nothing and with every token behind it, without a cache."""

    def last(ids):
        return policy.model(input_ids=torch.tensor([ids])).logits[0, -1].tolist()

    with torch.no_grad():
        return last([*prompt]), [last([*prompt, first]) for first in range(tiny.VOCABULARY)]


def sequences(policy, prompt, distribution):
    """The chance of every completion of at most two tokens, by enumeration."""
    start, then = logits_after(policy, prompt)
    first = distribution(start)
    both = {
        (one, two): first[one] * chance
        for one in range(tiny.VOCABULARY)
        if one != tiny.EOS
        for two, chance in enumerate(distribution(then[one]))
    }
    return {(tiny.EOS,): first[tiny.EOS], **both}


def write(policy, **options):
    sampler = TransformersSampler(policy="small", samples=ROWS, max_new_tokens=2, rows_per_batch=2 * ROWS, **options)
    return sampler(PROMPTS, {"small": policy}, torch.Generator().manual_seed(7))


def p_values(rows, policy, sampling):
    """Of both prompts' completions, and of their first tokens and of the second ones after the likeliest first."""
    lengths = rows.lengths.tolist()
    found = [tuple(ids[:length]) for ids, length in zip(rows.tokens.tolist(), lengths, strict=True)]
    for group, prompt in enumerate(PROMPTS.ids):
        own = Counter(ids for ids, of in zip(found, rows.groups.tolist(), strict=True) if of == group)
        chances = sequences(policy, prompt, lambda logits: restricted(logits, sampling))
        yield p_value(own, chances)
        first, first_chances = Counter(), Counter()
        for ids, count in own.items():
            first[ids[0]] += count
        for ids, chance in chances.items():
            first_chances[ids[0]] += chance
        yield p_value(first, first_chances)
        given = max((ids[0] for ids in chances if len(ids) == 2), key=lambda one: first_chances[one])
        second = Counter({ids[1]: count for ids, count in own.items() if len(ids) == 2 and ids[0] == given})
        yield p_value(second, {two: chances[given, two] / first_chances[given] for two in range(tiny.VOCABULARY)})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_completions_have_their_chances(options):
    policy, sampling = tiny.policy("small"), Sampling(**options)
    rows = write(policy, **options)
    assert rows.behavior.writers[0].sampling == sampling
    for value in p_values(rows, policy, sampling):
        assert value > LIKELY
    for row in range(0, 2 * ROWS, 499):
        ids = rows.tokens[row][rows.mask[row]].tolist()
        start, then = logits_after(policy, rows.prompts[row])
        for place, (token, logits) in enumerate(zip(ids, [start, then[ids[0]]], strict=False)):
            drawn_from, of_model = restricted(logits, sampling)[token], tempered(logits, sampling)[token]
            assert float(rows.behavior.logprobs[row, place]) == pytest.approx(math.log(drawn_from), abs=1e-5)
            assert float(rows.behavior.model_logprobs[row, place]) == pytest.approx(math.log(of_model), abs=1e-5)


def replaced(**changes):
    """`restrict` with other settings than asked for."""
    right = decoding.restrict
    return lambda logprobs, sampling: right(
        logprobs, Sampling(**{name: change(getattr(sampling, name)) for name, change in changes.items()})
    )


def untempered(logits, temperature):
    return logits.log_softmax(1)


def multiplied(logits, temperature):
    return (logits * temperature).log_softmax(1)


def crossing_token_cut(logprobs, sampling):
    """Top-p that drops the token with which the mass is reached."""
    ranked, order = logprobs.sort(dim=1, descending=True)
    cut = ranked.exp().cumsum(1) > sampling.top_p
    cut[:, 0] = False
    kept = logprobs.masked_fill(torch.zeros_like(cut).scatter(1, order, cut), -torch.inf)
    return kept.log_softmax(1)


def min_p_of_the_whole(logprobs, sampling):
    """Min-p as a plain threshold, not times the likeliest one."""
    return logprobs.masked_fill(logprobs.exp() < sampling.min_p, -torch.inf).log_softmax(1)


def one_for_all(logprobs, uniforms):
    """Every row draws with the first row's number."""
    return decoding_draw(logprobs, uniforms[:1].expand(len(uniforms)))


decoding_draw = decoding.draw
FAULTS = {
    "no temperature": ({"temperature": 0.6}, "temper", untempered),
    "times temperature": ({"temperature": 0.6}, "temper", multiplied),
    "no top-k": ({"top_k": 3}, "restrict", replaced(top_p=float)),
    "one more": ({"top_k": 3}, "restrict", replaced(top_k=lambda k: k + 1)),
    "one less": ({"top_k": 3}, "restrict", replaced(top_k=lambda k: k - 1)),
    "no top-p": ({"top_p": 0.7}, "restrict", replaced(top_k=int)),
    "top-p without the crossing token": ({"top_p": 0.7}, "restrict", crossing_token_cut),
    "no min-p": ({"min_p": 0.2}, "restrict", replaced(top_k=int)),
    "min-p of 1": ({"min_p": 0.2}, "restrict", min_p_of_the_whole),
    "one number for all rows": ({}, "draw", one_for_all),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told(name, monkeypatch):
    options, place, fault = FAULTS[name]
    policy = tiny.policy("small")
    monkeypatch.setattr(decoding, place, fault)
    assert min(p_values(write(policy, **options), policy, Sampling(**options))) < IMPOSSIBLE
