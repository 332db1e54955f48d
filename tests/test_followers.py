"""Followers: exact moving averages and hard copies, their turns, tied weights, buffers, dtypes, and independence."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tiny
from grpo_kit import (
    AdamW,
    Arithmetic,
    Correctness,
    DivergenceTerm,
    EqualTokens,
    Learner,
    PolicySpec,
    Recipe,
    SampledKL,
    TransformersSampler,
)
from grpo_kit.loop import follow
from grpo_kit.run.setup import load_policies
from tolerances import EXACT


def recipe(**follower) -> Recipe:
    kl = DivergenceTerm(to="slow", divergence=SampledKL(), weight=0.1)
    return Recipe(
        name="followers",
        steps=1,
        prompts_per_step=1,
        policies={"small": PolicySpec(model="tiny:small"), "slow": PolicySpec(follows="small", **follower)},
        data=Arithmetic(),
        sampler=TransformersSampler(policy="small", samples=2, max_new_tokens=4),
        rewards={"correctness": Correctness()},
        learners={"small": Learner(terms={"kl": kl}, weighting=EqualTokens(), optimizer=AdamW(lr=1e-3))},
    )


def pair(**settings) -> dict:
    return {"small": tiny.policy("small", seed=0, **settings), "slow": tiny.policy("slow", seed=1, **settings)}


def weights_of(policy) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()]).clone()


@torch.no_grad()
def moved(policy, step: int) -> torch.Tensor:
    """Put random weights into a policy, as a step of training would, and return them."""
    generator = torch.Generator().manual_seed(step)
    for weight in policy.model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return weights_of(policy)


@pytest.mark.parametrize(("decay", "every"), [(0.0, 1), (0.9, 1), (0.5, 3), (0.25, 2)])
def test_the_weights_after_n_steps_are_the_written_out_average(decay, every):
    own = pair()
    start, lives = weights_of(own["slow"]), []
    for step in range(1, 9):
        live = moved(own["small"], step)
        follow(recipe(decay=decay, every=every), own, step)
        if step % every == 0:
            lives.append(live)
        turns = len(lives)
        # theta_n = d^n theta_0 + (1 - d) sum_j d^(n - 1 - j) live_j, over the steps whose turn it was
        expected = decay**turns * start
        for number, each in enumerate(lives):
            expected = expected + (1 - decay) * decay ** (turns - 1 - number) * each
        torch.testing.assert_close(weights_of(own["slow"]), expected, **EXACT)
        assert own["slow"].version == turns
        assert torch.equal(weights_of(own["small"]), live)
    assert own["small"].version == 0


def test_a_hard_copy_is_exact_in_float32():
    own = pair(dtype=torch.float32)
    live = moved(own["small"], 1)
    follow(recipe(), own, 1)
    assert torch.equal(weights_of(own["slow"]), live)


def test_tied_weights_are_moved_once_and_stay_tied():
    config = LlamaConfig(
        vocab_size=12, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    config.tie_word_embeddings = True
    own = {name: replace(policy, model=LlamaForCausalLM(config).double()) for name, policy in pair().items()}
    before, live = (own[name].model.get_input_embeddings().weight.detach().clone() for name in ("slow", "small"))
    follow(recipe(decay=0.75), own, 1)
    after, head = own["slow"].model.get_input_embeddings().weight, own["slow"].model.get_output_embeddings().weight
    assert after.data_ptr() == head.data_ptr()
    torch.testing.assert_close(after.detach(), 0.75 * before + 0.25 * live, **EXACT)


def test_a_follower_of_another_precision_keeps_its_own():
    own = {"small": tiny.policy("small", seed=0, dtype=torch.bfloat16), "slow": tiny.policy("slow", seed=1)}
    start, live = weights_of(own["slow"]), weights_of(own["small"]).double()
    follow(recipe(decay=0.9), own, 1)
    assert {weight.dtype for weight in own["slow"].model.parameters()} == {torch.float64}
    torch.testing.assert_close(weights_of(own["slow"]), 0.9 * start + 0.1 * live, **EXACT)


def test_a_loaded_follower_is_a_copy_of_its_own_in_the_stored_precision():
    spec = replace(
        recipe(),
        policies={
            "small": PolicySpec(model="tiny:small", dtype="bfloat16", device="cpu"),
            "slow": PolicySpec(follows="small", decay=0.999, micro_batch_tokens=77),
        },
    )
    own = load_policies(spec)
    slow, small = own["slow"], own["small"]
    assert (slow.name, slow.micro_batch_tokens, slow.autocast) == ("slow", 77, torch.bfloat16)
    # Not bfloat16, in which a thousandth of a small difference would be lost
    assert {weight.dtype for weight in slow.model.parameters()} == {torch.float32}
    assert torch.equal(weights_of(slow), weights_of(small))
    assert not any(weight.requires_grad for weight in slow.model.parameters())
    assert all(weight.requires_grad for weight in small.model.parameters())
    for one, other in zip(slow.model.parameters(), small.model.parameters(), strict=True):
        assert one.data_ptr() != other.data_ptr()
    named = dict(small.model.named_buffers())
    assert named  # the rotary frequencies: no training step moves them, so a copy of the weights is a copy
    for name, buffer in slow.model.named_buffers():
        assert torch.equal(buffer, named[name])
        assert buffer.data_ptr() != named[name].data_ptr()


def test_a_small_step_is_not_lost_in_a_slow_average():
    own = pair(dtype=torch.float32)
    own["slow"].model.load_state_dict(own["small"].model.state_dict())
    start = weights_of(own["slow"])
    with torch.no_grad():
        for weight in own["small"].model.parameters():
            weight.mul_(1 + 1e-2)
    for step in range(1, 1001):
        follow(recipe(decay=0.999), own, step)
    # 1 - 0.999^1000 = 0.632 of the way
    way = (weights_of(own["slow"]) - start)[start.abs() > 0.1] / (weights_of(own["small"]) - start)[start.abs() > 0.1]
    torch.testing.assert_close(way, torch.full_like(way, 1 - 0.999**1000), rtol=0.05, atol=0)


@pytest.mark.parametrize("score", ["before", "after"])
def test_a_follower_scores_as_the_live_policy_only_after_its_turn(score):
    own, rows = pair(), tiny.rollouts([3, 2], [0, 0])
    if score == "after":
        follow(recipe(every=2), own, 2)
    else:
        follow(recipe(every=2), own, 1)
    one, other = (own[name].score_all(rows).logprobs for name in ("slow", "small"))
    assert torch.equal(one, other) == (score == "after")
