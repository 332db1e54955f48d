"""What is asked of vLLM and what is made of its answers, without vLLM."""

from types import SimpleNamespace

import pytest

from grpo_kit import Sampling
from grpo_kit.engines import Limits, Request
from grpo_kit.engines.conversion import scored, settings_of, written

REQUEST = Request(prompt=(4, 5), samples=3, seed=17)


def limits(stop=(), **sampling):
    return Limits(sampling=Sampling(**sampling), max_new_tokens=9, stop=stop, eos_ids=frozenset({7, 1}))


def test_a_request_says_all_that_vllm_would_else_decide():
    asked = settings_of(REQUEST, limits(temperature=0.7, top_p=0.9, top_k=5, min_p=0.1), None)
    assert asked == {
        "n": 3,
        "seed": 17,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "max_tokens": 9,
        "logprobs": 0,
        "stop": [],
        "stop_token_ids": [1, 7],
        "ignore_eos": True,
        "detokenize": False,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "allowed_token_ids": None,
    }


def test_stop_strings_need_text_and_greedy_rows_no_cuts():
    asked = settings_of(REQUEST, limits(stop=("a", "b"), temperature=0, top_k=4), [0, 1])
    assert (asked["stop"], asked["detokenize"], asked["allowed_token_ids"]) == (["a", "b"], True, [0, 1])
    assert asked["temperature"] == 0
    assert not {"top_k", "top_p", "min_p"} & set(asked)


def output(tokens, values, finish="length", stop=None):
    said = [
        {token: SimpleNamespace(logprob=value), 99: SimpleNamespace(logprob=-9.0)}
        for token, value in zip(tokens, values, strict=True)
    ]
    return SimpleNamespace(token_ids=tokens, logprobs=said, finish_reason=finish, stop_reason=stop)


@pytest.mark.parametrize(
    ("finish", "stop", "reason"),
    [
        ("stop", 7, "eos"),
        ("stop", None, "eos"),
        ("stop", "\n", "stop"),
        ("length", None, "length"),
        ("abort", None, "error"),
        (None, None, "error"),
    ],
)
def test_a_completion_ended_for_a_reason(finish, stop, reason):
    found = written(output([3, 7], [-0.5, -1.5], finish, stop), limits())
    assert found.stop_reason == reason
    assert found.tokens == (3, 7)
    assert found.logprobs == found.model_logprobs == (-0.5, -1.5)


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}], ids=str)
def test_of_a_cut_distribution_the_models_own_is_not_known(cut):
    assert written(output([3], [-0.5]), limits(**cut)).model_logprobs is None
    assert written(output([3], [-0.5]), limits(temperature=0, **cut)).model_logprobs == (-0.5,)


def test_a_token_without_a_log_probability_is_a_fault():
    fewer = output([3, 4], [-0.5, -1.0])
    fewer.logprobs.pop()
    with pytest.raises(ValueError, match="1 log-probabilities for a completion of 2 tokens"):
        written(fewer, limits())
    nothing = SimpleNamespace(token_ids=[], logprobs=None, finish_reason="abort", stop_reason=None)
    assert written(nothing, limits()).tokens == ()


def entry(**values):
    return {int(token[1:]): SimpleNamespace(logprob=value) for token, value in values.items()}


POSITIONS = [None, entry(t5=-3.0, t8=-0.1), entry(t6=-4.0, t2=-0.2, t9=-0.3), entry(t7=-0.4, t3=-0.5)]
"""Of the row (4, 5, 6, 7): nothing of its first token; each later one itself first, then the likeliest two."""


def test_scores_are_those_of_the_tokens_behind_the_prompt():
    found = scored(POSITIONS, (4, 5, 6, 7), 2, 2)
    assert found.logprobs == (-4.0, -0.4)
    assert found.top_ids == ((2, 9), (7, 3))
    assert found.top_logprobs == ((-0.2, -0.3), (-0.4, -0.5))
    assert scored(POSITIONS, (4, 5, 6, 7), 2, 1).top_ids == ((2,), (7,))
    alone = scored(POSITIONS, (4, 5, 6, 7), 1, 0)
    assert (alone.logprobs, alone.top_ids, alone.top_logprobs) == ((-3.0, -4.0, -0.4), (), ())


def test_nothing_is_said_of_a_first_token():
    with pytest.raises(ValueError, match="a prompt has at least one token"):
        scored(POSITIONS, (4, 5, 6, 7), 0, 0)
