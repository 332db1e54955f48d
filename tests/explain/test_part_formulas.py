"""Every part's formula is what its call computes, and says every one of its options."""

import re
from dataclasses import fields

import pytest
import torch

from explain import advantages, distributions, off_policy
from explain.formulas import work_out
from grpo_kit import (
    AdamW,
    EqualRows,
    EqualTokens,
    FixedLength,
    OnPolicyKD,
    ReverseKL,
    SampledKL,
    SequenceRatio,
    TokenRatio,
)
from grpo_kit.formula import plain
from grpo_kit.memory import Memory
from grpo_kit.offers import call_with
from grpo_kit.roles import ROLES

VARIANTS = {
    "advantages": advantages.VARIANTS + advantages.LIVE,
    "ratios": [TokenRatio(), SequenceRatio()],
    "surrogates": off_policy.SURROGATES,
    "corrections": off_policy.CORRECTIONS,
    "divergences": [SampledKL(estimator=estimator) for estimator in ("k1", "k2", "k3", "k1+", "k3+")]
    + distributions.VARIANTS,
    "weightings": [EqualTokens(), EqualRows(), FixedLength(length=48), FixedLength(length=7)],
}
FLAT = [(role, part) for role, parts in VARIANTS.items() for part in parts]
by_part = pytest.mark.parametrize(("role", "part"), FLAT, ids=lambda value: value if isinstance(value, str) else None)
pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("role", VARIANTS)
def test_every_kind_of_the_role_is_here_with_every_option(role):
    for part in ROLES[role].built_in.values():
        variants = [variant for variant in VARIANTS[role] if isinstance(variant, part)]
        assert variants, f"{role} {part.kind}: give the part a property `formula`, and its variants here"
        for field in fields(part):
            assert len({getattr(variant, field.name) for variant in variants}) > 1, field.name


@pytest.mark.parametrize("role", VARIANTS)
def test_no_two_settings_have_one_formula(role):
    formulas = [part.formula for part in VARIANTS[role]]
    assert len(set(formulas)) == len(formulas)
    assert not any("\\" in plain(formula) for formula in formulas)


MASK = torch.tensor([[True] * 3, [True] * 3])
LOG_RATIO = torch.tensor([[0.1, -0.5, 0.6], [0.2, 0.05, -0.9]], dtype=torch.float64)


def given(role):
    return [part for other, part in FLAT if other == role]


@pytest.mark.parametrize("part", advantages.VARIANTS, ids=str)
def test_advantages(part):
    batch = advantages.Batch()
    computed = Memory().call("", part, batch.rewards, batch.groups, **batch.offers())
    torch.testing.assert_close(computed, advantages.advantages_of(plain(part.formula), batch))


@pytest.mark.parametrize("part", [p for p in given("advantages") if p.kind == "ema_baseline"], ids=str)
def test_the_baseline_that_moves(part):
    batch = advantages.Batch(baseline=0.25)
    computed, moved = part(batch.rewards, batch.groups, state=0.25)
    formula = plain(part.formula)
    torch.testing.assert_close(computed, advantages.advantages_of(formula, batch))
    assert moved == pytest.approx(float(work_out(formula.split(" ← ")[1], b=0.25, r_batch=batch.rewards)))


@pytest.mark.parametrize("part", advantages.LIVE, ids=str)
def test_advantages_taken_at_every_update(part):
    """The control variate is the divergence of the same settings, by the formula of that part."""
    import tiny
    from grpo_kit.detail import Detail

    rows = tiny.rollouts([3, 3], [0, 0])
    now, then = (tiny.policy(seed=seed).score_all(rows, detail=Detail(top_k=3, full=True)) for seed in range(2))
    text, variate = plain(part.formula), 0.0
    aside = re.fullmatch(rf"(sg\[.*) \+ KL\(π_θ‖ π_{part.teacher}\)_it(\])(.*)", text)
    assert (aside is None) == (part.control_variate is None)
    if aside:
        text = aside[1] + aside[2]
        divergence = plain(ReverseKL().formula) + aside[3].replace(f"π_{part.teacher}", "q")
        student, teacher = (each.distributions.logprobs().exp() for each in (now, then))
        variate = distributions.losses_of(divergence, student, teacher)
    expected = work_out(text, **{"now": now.logprobs, f"then_{part.teacher}": then.logprobs}) + variate
    computed = part(now.logprobs, then.logprobs)
    if part.control_variate is not None:
        computed = computed + part.baseline(now, then, rows.mask)
    torch.testing.assert_close(computed, expected)


@pytest.mark.parametrize("part", given("ratios"), ids=str)
def test_ratios_with_their_gradient(part):
    log_ratio = LOG_RATIO.clone().requires_grad_()
    right = work_out(plain(part.formula), d_it=log_ratio)
    torch.testing.assert_close(part(log_ratio, MASK).exp(), right)
    (computed,) = torch.autograd.grad(part(log_ratio, MASK).exp().square().sum(), log_ratio)
    (expected,) = torch.autograd.grad(right.square().sum(), log_ratio)
    torch.testing.assert_close(computed, expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("part", given("surrogates"), ids=str)
def test_surrogates(part, sign):
    log_ratio = torch.linspace(-1.5, 1.5, 13)[None]
    advantages = torch.full_like(log_ratio, 0.7 * sign)
    right = off_policy.losses_of(plain(part.formula), log_ratio, advantages)
    torch.testing.assert_close(call_with(part, log_ratio, advantages, **off_policy.asked_of(log_ratio)), right)


@pytest.mark.parametrize("part", given("corrections"), ids=str)
def test_corrections(part):
    moved = 0.5 * LOG_RATIO.flip(0) if getattr(part, "at_update", False) else torch.zeros_like(LOG_RATIO)
    asked = {"groups": torch.tensor([0, 1]), "advantages": torch.tensor([[1.0, -1.0, -1.0]] * 2)}
    right = off_policy.weights_of(plain(part.formula), LOG_RATIO, MASK, moved=moved, **asked)
    torch.testing.assert_close(call_with(part, LOG_RATIO + moved, MASK, **asked), right)


@pytest.mark.parametrize("part", [p for p in given("divergences") if p.kind == "sampled_kl"], ids=str)
def test_divergences(part):
    other = torch.full_like(LOG_RATIO, -1.0)
    torch.testing.assert_close(part(LOG_RATIO + other, other), work_out(plain(part.formula), d_it=LOG_RATIO))


@pytest.mark.parametrize("part", [*distributions.VARIANTS, *distributions.ENDS], ids=str)
def test_divergences_over_the_vocabulary(part):
    from laws.distributions import loss_of

    student, teacher = torch.randn(2, 2, 3, 6, generator=torch.Generator().manual_seed(0))
    right = distributions.losses_of(plain(part.formula), student.softmax(-1), teacher.softmax(-1))
    torch.testing.assert_close(loss_of(part, student, teacher), right)


@pytest.mark.parametrize("part", given("weightings"), ids=str)
def test_weightings(part):
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    weights = part(mask)
    for row, length in ((0, 3), (1, 1)):
        right = work_out(plain(part.formula), R=2, length=length, all_lengths=4)
        assert float(weights[row, 0]) == pytest.approx(right)


@pytest.mark.parametrize("length", [48, None])
def test_the_distillation_reward(length):
    import tiny
    from grpo_kit import SignalKey, Signals
    from grpo_kit.signals import Scores

    rows = tiny.rollouts([3, 2], [0, 0], writer="b")
    scores = {name: torch.randn(2, 3, generator=torch.Generator().manual_seed(i)) for i, name in enumerate("ab")}
    signals = Signals({SignalKey(n, 0): Scores(logprobs=v, entropy=None) for n, v in scores.items()})
    norm = "constant" if length else "sequence"
    reward = OnPolicyKD(teacher="a", student="b", length=length, length_norm=norm, alpha=0.5)
    text = plain(reward.formula)
    assert text.endswith(" · Σ_t [log π_a(o_it) - log π_b(o_it)]")
    factor = text.removesuffix(" · Σ_t [log π_a(o_it) - log π_b(o_it)]")
    for row, tokens in ((0, 3), (1, 2)):
        total = (scores["a"] - scores["b"])[row, :tokens].sum()
        right = work_out(factor, length=tokens) * total
        torch.testing.assert_close(reward(rows, signals).values[row], right)


@pytest.mark.parametrize("warmup", [0, 4, 50])
@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_the_learning_rate(decay, warmup):
    from math import cos, pi

    adamw, total = AdamW(lr=3e-4, warmup_steps=warmup, decay=decay), 20
    formulas = adamw.formulas(total)
    for step in range(total):
        latex, _ = formulas[0 if step < warmup else -1]
        text = plain(latex).replace("·", "*").replace("π", "pi").replace("^", "**")
        assert eval(text, {"k": step, "cos": cos, "pi": pi}) == pytest.approx(3e-4 * adamw.rate(step, total))
    said = [when for _, when in formulas]
    first = [f"for k < {min(warmup, total)}"] if warmup else []
    assert said == [*first, *([f"for k = {warmup} to 19"] if warmup < total else [])]
