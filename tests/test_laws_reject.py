"""Each law rejects a part that is broken in a way that a trainer really shipped."""

import pytest
import torch
from einops import reduce

from grpo_kit import (
    Clip,
    Component,
    EqualRows,
    EqualTokens,
    GroupMean,
    Learner,
    PolicyGradient,
    SequenceRatio,
    objective,
)
from grpo_kit.masked import group_sum, select
from grpo_kit.terms import EntropyBonus
from laws import (
    advantages,
    broken_advantages,
    broken_divergences,
    broken_selections,
    broken_surrogates,
    corrections,
    divergences,
    levels,
    rewards as reward_laws,
    selections,
    signatures,
    splits,
    surrogates,
    terms,
    theorem,
    weightings,
)
from laws.check import breaks

pytestmark = pytest.mark.usefixtures("float64")


def plus_eps(rewards, groups):
    """(r - mean) / (std + 1e-8) without asking whether the group is flat (B001, trl#6365)."""
    out = torch.zeros_like(rewards)
    for group in groups.unique():
        own = rewards[groups == group]
        out[groups == group] = (own - own.mean()) / (own.std(unbiased=len(own) > 1) + 1e-8)
    return out


def raw_reward_alone(rewards, groups):
    """A group of one has mean 0 and deviation 1, so that its advantage is its reward (verl)."""
    one = group_sum(torch.ones_like(rewards), groups) == 1
    return torch.where(one, rewards, GroupMean()(rewards, groups))


def nan_alone(rewards, groups):
    """The unbiased deviation of one value is NaN (B002, trl#4662)."""
    out = torch.zeros_like(rewards)
    for group in groups.unique():
        own = rewards[groups == group]
        out[groups == group] = (own - own.mean()) / (((own - own.mean()).square().sum() / (len(own) - 1)).sqrt() + 1e-4)
    return out


def by_reshape(rewards, groups):
    """Rows are taken to come group after group (B031, R1-V#67)."""
    size = next(size for size in (4, 3, 2, 1) if len(rewards) % size == 0)
    rows = rewards.reshape(-1, size)
    return (rows - rows.mean(1, keepdim=True)).reshape(-1)


def missing_is_zero(rewards, groups):
    """A reward that is None becomes 0 and shifts the baseline of its siblings (B003, trl#5902)."""
    return GroupMean()(rewards.nan_to_num(0), groups)


def one_nan_for_all(rewards, groups):
    """A plain mean over the batch, which one NaN silences (B004, ms-swift#8123)."""
    return rewards - rewards.mean()


def no_baseline(rewards, groups):
    """The reward itself."""
    return rewards


BROKEN_ADVANTAGES = [
    (advantages.equal_rewards_give_zero, plus_eps),
    (advantages.equal_rewards_give_zero, no_baseline),
    (advantages.a_group_of_one_gets_zero, raw_reward_alone),
    (advantages.a_group_of_one_gets_zero, nan_alone),
    (advantages.rows_may_be_permuted, by_reshape),
    (advantages.groups_do_not_see_each_other, one_nan_for_all),
    (advantages.absent_rows_change_nothing, missing_is_zero),
    (advantages.absent_rows_change_nothing, one_nan_for_all),
    (advantages.the_offset_of_rewards_does_not_matter, no_baseline),
    (advantages.the_offset_of_rewards_does_not_matter, raw_reward_alone),
]


def first_two(rewards, groups):
    """Keeps the first rows of the batch, whatever their group."""
    return torch.arange(len(rewards)) < 2


def top_of_nan(rewards, groups):
    """NaN sorts as the largest value, so that a missing reward is the best (torch.topk)."""
    kept = torch.zeros_like(rewards, dtype=torch.bool)
    kept[rewards.topk(min(2, len(rewards))).indices] = True
    return kept


first_two.keep = top_of_nan.keep = 3
BROKEN_SELECTIONS = [
    (selections.groups_do_not_see_each_other, top_of_nan),
    (selections.rows_may_be_permuted, first_two),
    (selections.absent_rows_change_nothing, top_of_nan),
    (selections.small_groups_are_kept_whole, top_of_nan),
]


def by_padded_width(mask):
    """Dr. GRPO's constant taken from the width of the padded mask (verl: loss_mask.shape[-1])."""
    return mask.to(torch.get_default_dtype()) / (len(mask) * mask.shape[1])


def unguarded(mask):
    """A mean over the mask without a guard: 0/0 when every row was cut (B010, trl#3248)."""
    return mask.to(torch.get_default_dtype()) / mask.sum()


def empty_rows_count(mask):
    """The mean over rows counts the rows with nothing to train (B010's kind)."""
    counts = mask.to(torch.get_default_dtype())
    return counts / reduce(counts, "row token -> row 1", "sum").clamp(min=1) / len(mask)


def by_position(mask):
    """Earlier rows count more: the order matters."""
    counts = mask.to(torch.get_default_dtype())
    return counts / (1 + torch.arange(len(mask)))[:, None]


BROKEN_WEIGHTINGS = [
    (weightings.padding_changes_nothing, by_padded_width),
    (weightings.nothing_counts_outside_the_mask, unguarded),
    (weightings.absent_rows_change_nothing, empty_rows_count),
    (weightings.absent_rows_change_nothing, by_padded_width),
    (weightings.rows_may_be_permuted, by_position),
]


def product_masked(log_ratio, mask):
    """The product is masked instead of the input: inf x 0 is NaN (B018, Soup#342)."""
    return log_ratio * mask


def mean_over_width(log_ratio, mask):
    """GSPO's mean over the padded width."""
    own = select(log_ratio, mask)
    return select(own.mean(1, keepdim=True).expand_as(own), mask)


def batch_mean(log_ratio, mask):
    """One ratio for the whole batch."""
    own = select(log_ratio, mask)
    return select((own.sum() / mask.sum().clamp(min=1)).expand_as(own), mask)


def against_neighbors(log_ratio, mask):
    """Each row minus the row before it: rows see each other."""
    own = select(log_ratio, mask)
    return select(own - own.roll(1, 0), mask)


BROKEN_LEVELS = [
    (levels.what_is_masked_does_not_matter, product_masked),
    (levels.padding_changes_nothing, mean_over_width),
    (levels.absent_rows_change_nothing, against_neighbors),
    (levels.rows_may_be_permuted, against_neighbors),
    (levels.a_ratio_of_one_stays_one, lambda log_ratio, mask: select(log_ratio.exp(), mask)),
    (levels.a_ratio_of_one_stays_one, batch_mean),
]


def undetached(log_ratio, mask):
    """The weight lets the gradient through."""
    return select(log_ratio, mask).exp().clamp(max=2.0)


def unbounded(log_ratio, mask):
    """No cap at all."""
    return select(select(log_ratio.detach(), mask).exp(), mask)


def biased_to_half(log_ratio, mask):
    """A sigmoid in place of the exponential: 1/2 where the two agree."""
    return select(2 * 0.5 * select(log_ratio.detach(), mask).sigmoid(), mask)


def product_masked_weight(log_ratio, mask):
    """exp before the mask: NaN and inf reach the loss (B018, B089's kind)."""
    return log_ratio.detach().exp().clamp(max=2.0) * mask


def bypass_and_correction(current, anchor, behavior):
    """The sampler's log-probabilities are the anchor, and the weight is applied all the same (double counting)."""
    return current - behavior, anchor - behavior


BROKEN_CORRECTIONS = [
    (corrections.detached, undetached),
    (corrections.kept_in_its_bounds, unbounded),
    (corrections.one_when_the_two_agree, biased_to_half),
    (levels.what_is_masked_does_not_matter, product_masked_weight),
    (corrections.quotients_telescope, bypass_and_correction),
]


def clip_of_the_wrong_sign(log_ratio, advantages, logprobs=None):
    """max in place of min: the optimistic clip (B021, trl#3435)."""
    ratio = log_ratio.exp()
    return -torch.maximum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def clip_alone(log_ratio, advantages, logprobs=None):
    """The clipped product without the min: a wrong move is not pulled back."""
    return -log_ratio.exp().clamp(0.8, 1.2) * advantages


def absolute_bound(log_ratio, advantages, logprobs=None):
    """CISPO with `epsilon_high` = 0.2 taken as an absolute bound of the ratio (trl)."""
    return -log_ratio.exp().detach().clamp(max=0.2) * advantages * log_ratio


def forgotten_sign(log_ratio, advantages, logprobs=None):
    """Ascends the loss (B015's kind)."""
    return advantages * log_ratio.exp()


def whitened(log_ratio, advantages, logprobs=None):
    """Advantages whitened over whatever is in the micro-batch."""
    return -(advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8) * log_ratio.exp()


def overflowing(log_ratio, advantages, logprobs=None):
    """The usual form: exp first, clamp afterwards; inf - inf in the min's gradient."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) + 0 * ratio


BROKEN_SURROGATES = [
    (surrogates.clipped_is_not_pushed_further, clip_of_the_wrong_sign),
    (surrogates.a_wrong_move_is_always_pulled_back, clip_alone),
    (surrogates.on_policy_it_is_reinforce, absolute_bound),
    (surrogates.on_policy_it_is_reinforce, forgotten_sign),
    (surrogates.tokens_do_not_see_each_other, whitened),
    (surrogates.huge_ratios_stay_finite, overflowing),
]


def k1(current, other):
    """The log-ratio itself as a loss: the teacher drops out of the gradient (B016)."""
    return current - other


def k3_swapped(current, other):
    """k3 with its arguments swapped (B016: 0.718 in place of 0.3679)."""
    return (current - other).exp() - 1 - (current - other)


def k3(current, other):
    return (other - current).exp() - 1 + current - other


def batch_centered(current, other):
    """Distances minus the batch's mean: tokens see each other."""
    return (current - other).square() - (current - other).square().mean()


BROKEN_DIVERGENCES = [
    (divergences.the_teacher_matters, k1),
    (divergences.nothing_at_the_teacher, k1),
    (divergences.never_negative, k1),
    (divergences.expected_gradient_is_that_of(divergences.reverse_kl), k1),
    (divergences.expected_gradient_is_that_of(divergences.reverse_kl), k3),
    (divergences.expected_gradient_is_that_of(divergences.forward_kl), k3_swapped),
    (divergences.tokens_do_not_see_each_other, batch_centered),
]


def scaled_in_the_batch(rollouts, signals):
    """A component normalized over the batch before it is added: rows see each other."""
    values = torch.tensor([float(len(text)) for text in rollouts.texts])
    return Component(values=values - values.mean(), statuses=("ok",) * len(rollouts))


def by_place(rollouts, signals):
    """Completions come back in another order than the prompts (B074)."""
    return Component(values=torch.arange(len(rollouts)).double(), statuses=("ok",) * len(rollouts))


def product_masked_kd(rollouts, signals):
    """The log-ratio times the mask (B089's kind)."""
    log_ratio = signals["large"].logprobs - signals["small"].logprobs
    return Component(values=(log_ratio * rollouts.mask).sum(1), statuses=("ok",) * len(rollouts))


BROKEN_REWARDS = [
    (reward_laws.rows_do_not_see_each_other, scaled_in_the_batch),
    (reward_laws.rows_may_be_permuted, by_place),
    (reward_laws.padding_and_what_is_masked_do_not_matter, product_masked_kd),
]


class Broken:
    """A term with its call replaced, all else as in a policy gradient."""

    def __init__(self, call, inner=PolicyGradient(advantage=GroupMean(), surrogate=Clip())):  # noqa: B008
        self.inner, self.call = inner, call
        self.advantage, self.baseline, self.weight = inner.advantage, inner.baseline, inner.weight
        self.needs_entropy = inner.needs_entropy

    def reads(self, learner):
        return self.inner.reads(learner)

    def freeze(self, *inputs):
        return self.inner.freeze(*inputs)

    def __call__(self, current, frozen, written, counted):
        return self.call(current, frozen, written, counted)


def usual_form(current, frozen, written, counted):
    """exp first, mask the product afterwards (B018)."""
    ratio = (current.logprobs - frozen["anchor"]).exp()
    return -torch.minimum(ratio, ratio.clamp(0.8, 1.2)) * frozen["advantages"] * counted


def whitened_rows(current, frozen, written, counted):
    """Centers the log-probabilities over all rows at hand, absent ones included."""
    logprobs = select(current.logprobs, counted)
    return -select(logprobs - logprobs.sum() / len(counted), counted)


def double_correction(current, frozen, written, counted):
    """Divides by the writer's probabilities and by the anchor's."""
    log_ratio = select(2 * current.logprobs - frozen["anchor"] - frozen["behavior"], written)
    return -select(log_ratio.exp() * select(frozen["advantages"], counted), counted)


def against_the_first_row(current, frozen, written, counted):
    """Subtracts the first row's loss: the order matters."""
    loss = select(-current.logprobs, counted)
    return select(loss - loss[:1], counted)


BROKEN_TERMS = [
    (terms.padding_and_what_is_masked_do_not_matter, Broken(usual_form)),
    (terms.absent_rows_change_nothing, Broken(whitened_rows)),
    (terms.on_policy_it_is_reinforce, Broken(double_correction)),
    (terms.rows_may_be_permuted, Broken(against_the_first_row)),
]

ALL = [
    *BROKEN_ADVANTAGES,
    *BROKEN_SELECTIONS,
    *BROKEN_WEIGHTINGS,
    *BROKEN_LEVELS,
    *BROKEN_CORRECTIONS,
    *BROKEN_SURROGATES,
    *BROKEN_DIVERGENCES,
    *BROKEN_REWARDS,
    *BROKEN_TERMS,
    *broken_selections.BROKEN,
    *broken_divergences.BROKEN,
    *broken_surrogates.BROKEN,
    *broken_advantages.BROKEN,
]


@pytest.mark.parametrize(
    ("law", "part"), ALL, ids=[f"{law.__name__}-{getattr(part, '__name__', 'term')}" for law, part in ALL]
)
def test_a_broken_part_is_rejected(law, part):
    assert breaks(law, part)


def test_every_law_of_the_table_rejects_something():
    from laws.table import TABLE

    # Law 1's rows are one law around each part, rejected below; so is law 12's.
    rejecting = {law for law, _ in ALL} | {signatures.shapes_are_stated}
    assert [row.name for row in TABLE if row.number != 1 and row.law not in rejecting] == []


def learner(**changes) -> Learner:
    settings = {
        "rewards": {"task": 1.0},
        "terms": {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip(), ratio=SequenceRatio())},
        "weighting": EqualTokens(),
        "optimizer": splits.OPTIMIZER,
    }
    return Learner(**settings | changes)


def weights_of_the_micro_batch(live, batch, rows, *, step):
    """Each micro-batch is averaged by itself and the averages are summed (B008, B014)."""
    live.optimizer.zero_grad(set_to_none=True)
    for micro in live.policy.micro_batches(batch.rollouts, rows):
        part = batch.take(micro)
        current = live.policy.score(part.rollouts)
        weights = live.settings.weighting(part.counted)
        for name, term in live.settings.terms.items():
            (weights * term(current, part.frozen[name], part.rollouts.mask, part.counted)).sum().backward()


def test_averaging_each_micro_batch_is_rejected():
    assert breaks(
        lambda part, draw: splits.micro_batches_change_nothing(part, draw, weights_of_the_micro_batch),
        learner(),
        examples=5,
    )


def test_a_surrogate_whitened_in_the_micro_batch_is_rejected():
    term = PolicyGradient(advantage=GroupMean(), surrogate=whitened)
    assert breaks(splits.micro_batches_change_nothing, learner(terms={"policy": term}), examples=5)


def test_weights_of_each_rank_are_rejected():
    assert breaks(
        lambda part, draw: splits.ranks_change_nothing(part, draw, weights_of="own rows"), learner(), examples=20
    )


def test_a_mean_entropy_of_the_micro_batch_is_rejected():
    """The bonus as the mean over the micro-batch, spread over its tokens."""

    def mean_entropy(current, frozen, written, counted):
        mean = select(current.entropy, counted).sum() / counted.sum()
        return select((-mean).expand_as(current.entropy), counted)

    term = Broken(mean_entropy, EntropyBonusLike())
    assert breaks(
        splits.micro_batches_change_nothing,
        learner(rewards={}, terms={"entropy": term}, weighting=EqualRows()),
        examples=5,
    )


class EntropyBonusLike(EntropyBonus):
    """An entropy term with the fields that `Broken` copies."""

    advantage, baseline = None, "selected"


def test_codistill_theorem_rejects_a_kd_reward_that_is_swapped(monkeypatch):
    """KL(large || small)'s sign: the student is pushed away from the teacher."""
    real = theorem.OnPolicyKD.__call__

    def swapped(self, rollouts, signals):
        component = real(self, rollouts, signals)
        return Component(values=-component.values, statuses=component.statuses)

    monkeypatch.setattr(theorem.OnPolicyKD, "__call__", swapped)
    with pytest.raises(AssertionError):
        theorem.codistill_theorem(theorem.Setting(vocabulary=2, longest=2, group=2))


def test_codistill_theorem_rejects_a_kd_reward_credited_token_by_token():
    """Own-token credit drops the KL of what follows (gamma = 0): another gradient."""

    def per_token(setting):
        small, large = (theorem.Tree(setting.vocabulary, setting.longest, seed) for seed in (0, 1))
        rows = small.completions
        of_small, of_large = small.logprobs(rows), large.logprobs(rows).detach()
        probability = of_small.detach().sum(1).exp()[:, None]
        kd = theorem.ALPHA / setting.longest * (of_large - of_small.detach())
        task = theorem.task_rewards(small)[:, None]
        loss = (probability * (task + kd) * of_small).sum()
        return torch.autograd.grad(loss, small.logits)[0]

    setting = theorem.Setting(vocabulary=3, longest=3, group=2)
    scale = setting.group * setting.longest / (setting.group - 1)
    stated = theorem.stated_gradient(setting) * scale
    assert (per_token(setting) - stated).abs().max() > 1e-3


def test_an_unstated_shape_is_rejected():
    def untyped(rewards: torch.Tensor, groups) -> torch.Tensor:
        return rewards

    assert signatures.bare_tensors(untyped) == ["rewards", "groups", "return"]
    with pytest.raises(AssertionError):
        signatures.shapes_are_stated(untyped)


def test_the_real_accumulate_is_what_the_broken_one_replaces():
    assert not breaks(splits.micro_batches_change_nothing, learner(), examples=3)
    assert objective.accumulate is splits.micro_batches_change_nothing.__defaults__[0]
