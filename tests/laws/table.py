"""The table law x part: holds, or the reason why not. A part that is added to a role must enter it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_kit import (
    Clip,
    Correctness,
    CosineLength,
    DivergenceTerm,
    EntropyBonus,
    EqualRows,
    EqualTokens,
    FixedLength,
    Format,
    GroupMean,
    ImportanceWeight,
    Learner,
    LeaveOneOut,
    MaxVariance,
    NumberMatch,
    OnPolicyKD,
    PolicyGradient,
    Python,
    ReasoningGymScore,
    Reinforce,
    Repetition,
    SampledKL,
    SequenceRatio,
    SoftOverlong,
    StringMatch,
    TokenRatio,
    TopBottom,
)
from grpo_kit.advantages import ADVANTAGES
from grpo_kit.corrections import CORRECTIONS
from grpo_kit.divergences import DIVERGENCES
from grpo_kit.ratios import RATIOS
from grpo_kit.rewards import REWARDS
from grpo_kit.selections import SELECTIONS
from grpo_kit.surrogates import SURROGATES
from grpo_kit.terms import TERMS
from grpo_kit.weightings import WEIGHTINGS
from laws import (
    advantages,
    corrections,
    divergences,
    levels,
    rewards,
    selections,
    signatures,
    splits,
    surrogates,
    terms,
    weightings,
)

ROLES = {
    role.name: role
    for role in (ADVANTAGES, RATIOS, SURROGATES, CORRECTIONS, DIVERGENCES, WEIGHTINGS, SELECTIONS, REWARDS, TERMS)
}
ELSEWHERE = {
    "samplers": "they draw from a model; tests/samplers",
    "data": "they make prompts; tests/data",
}
"""Roles whose parts the laws of section 6 say nothing about, and where they are tested."""


def lengths(completions, **columns):
    """A reward function for the table."""
    return [None if not text else float(len(text)) for text in completions]


KL = {"teacher": "large", "student": "small"}
CLIPPED = {"advantage": GroupMean(), "surrogate": Clip()}
PARTS: dict[str, dict[str, Any]] = {
    "advantages": {
        "group_mean": GroupMean(),
        "group_mean/group": GroupMean(scale="group"),
        "group_mean/batch": GroupMean(scale="batch"),
        "leave_one_out": LeaveOneOut(),
    },
    "ratios": {"token": TokenRatio(), "sequence": SequenceRatio()},
    "surrogates": {
        "reinforce": Reinforce(),
        "clip": Clip(),
        "clip/higher": Clip(low=0.2, high=0.28),
        "clip/cap": Clip(cap=3.0),
    },
    "corrections": {
        f"importance_weight/{level}/{action}": ImportanceWeight(level=level, action=action, low=low, high=high)
        for level, low, high in (("token", 0, 2), ("prefix", 0.5, 2), ("sequence", 0, 5), ("geometric", 0.9, 1.1))
        for action in ("truncate", "mask")
    },
    "divergences": {"sampled_kl": SampledKL(), "sampled_kl/k3": SampledKL(estimator="k3")},
    "weightings": {
        "equal_tokens": EqualTokens(),
        "equal_rows": EqualRows(),
        "fixed_length": FixedLength(length=4),
    },
    "selections": {
        "max_variance": MaxVariance(keep=2),
        "max_variance/three": MaxVariance(keep=3),
        "top_bottom": TopBottom(top=1, bottom=2),
        "top_bottom/top": TopBottom(top=2, bottom=0),
    },
    "rewards": {
        "correctness": Correctness(),
        "number_match": NumberMatch(),
        "number_match/near": NumberMatch(relative=0.5),
        "string_match": StringMatch(),
        "reasoning_gym": ReasoningGymScore(),
        "cosine_length": CosineLength(max_length=4, grading=NumberMatch()),
        "soft_overlong": SoftOverlong(max_length=4, cache=3),
        "repetition": Repetition(size=1),
        "repetition/tokens": Repetition(size=1, unit="tokens"),
        "format": Format(),
        "format/several": Format(pattern=("boxed", "12")),
        "on_policy_kd": OnPolicyKD(**KL, length=4),
        "on_policy_kd/sequence": OnPolicyKD(**KL, length_norm="sequence"),
        "python": Python(function=lengths),
    },
    "terms": {
        "policy_gradient": PolicyGradient(**CLIPPED),
        "policy_gradient/behavior": PolicyGradient(**CLIPPED, anchor="behavior"),
        "policy_gradient/sequence": PolicyGradient(**CLIPPED, ratio=SequenceRatio()),
        "policy_gradient/corrected": PolicyGradient(**CLIPPED, correction=ImportanceWeight(level="sequence")),
        "policy_gradient/reinforce": PolicyGradient(
            advantage=LeaveOneOut(), surrogate=Reinforce(), correction=ImportanceWeight(), baseline="sampled"
        ),
        "divergence": DivergenceTerm(to="other", divergence=SampledKL()),
        "entropy": EntropyBonus(weight=0.5),
    },
}
"""Each kind, in the variants that its options make: `kind` or `kind/variant`."""


def split_of(role: str) -> Callable[[Any, Any], None]:
    """Law 1 for one part of a role, inside an otherwise usual learner."""

    def around(part) -> Learner:
        term = {
            "advantages": lambda: PolicyGradient(advantage=part, surrogate=Clip()),
            "ratios": lambda: PolicyGradient(advantage=GroupMean(), surrogate=Clip(), ratio=part),
            "surrogates": lambda: PolicyGradient(advantage=GroupMean(), surrogate=part),
            "corrections": lambda: PolicyGradient(advantage=GroupMean(), surrogate=Clip(), correction=part),
            "divergences": lambda: DivergenceTerm(to="other", divergence=part),
            "weightings": lambda: PolicyGradient(**CLIPPED),
            "terms": lambda: part,
        }[role]()
        weighting = part if role == "weightings" else EqualRows()
        return Learner(rewards={"task": 1.0}, terms={"only": term}, weighting=weighting, optimizer=splits.OPTIMIZER)

    def law(part, draw):
        splits.micro_batches_change_nothing(around(part), draw)

    law.__name__, law.__module__ = "micro_batches_change_nothing", f"laws.splits[{role}]"
    return law


@dataclass(frozen=True)
class WhyNot:
    """The reason why a law does not hold for a part; `shown`: a counter-example is searched and must be found."""

    reason: str
    shown: bool = True


@dataclass(frozen=True)
class Row:
    """One law of the table: its number in the design, the role it is about, and which parts it holds for."""

    number: int
    role: str
    law: Callable[[Any, Any], None]
    holds: tuple[str, ...]
    why_not: dict[str, WhyNot]
    examples: int = 30

    @property
    def name(self) -> str:
        return f"{self.number}-{self.role}-{self.law.__name__}"


def row(number, role, law, *holds, why_not=None, examples=30) -> Row:
    return Row(number, role, law, holds, why_not or {}, examples)


BATCH = WhyNot("the deviation of the whole batch is in its denominator; batch-scaled advantages keep the zero only")
NO_CLIP = WhyNot("it has no clip at all, so nothing stops a ratio")
ADVANTAGE_KINDS = ("group_mean", "group_mean/group", "group_mean/batch", "leave_one_out")
RATIO_KINDS = ("token", "sequence")
SURROGATE_KINDS = ("reinforce", "clip", "clip/higher", "clip/cap")
CORRECTION_KINDS = (
    "importance_weight/token/truncate",
    "importance_weight/token/mask",
    "importance_weight/prefix/truncate",
    "importance_weight/prefix/mask",
    "importance_weight/sequence/truncate",
    "importance_weight/sequence/mask",
    "importance_weight/geometric/truncate",
    "importance_weight/geometric/mask",
)
DIVERGENCE_KINDS = ("sampled_kl", "sampled_kl/k3")
WEIGHTING_KINDS = ("equal_tokens", "equal_rows", "fixed_length")
SELECTION_KINDS = ("max_variance", "max_variance/three", "top_bottom", "top_bottom/top")
REWARD_KINDS = (
    "correctness",
    "number_match",
    "number_match/near",
    "string_match",
    "reasoning_gym",
    "cosine_length",
    "soft_overlong",
    "repetition",
    "repetition/tokens",
    "format",
    "format/several",
    "on_policy_kd",
    "on_policy_kd/sequence",
    "python",
)
GRADIENT_KINDS = (
    "policy_gradient",
    "policy_gradient/behavior",
    "policy_gradient/sequence",
    "policy_gradient/corrected",
    "policy_gradient/reinforce",
)
TERM_KINDS = (*GRADIENT_KINDS, "divergence", "entropy")
NO_ADVANTAGE = {
    "divergence": WhyNot("it has no advantage", shown=False),
    "entropy": WhyNot("it has no advantage", shown=False),
}

TABLE: tuple[Row, ...] = (
    # 1: the split of a step
    row(1, "advantages", split_of("advantages"), *ADVANTAGE_KINDS, examples=3),
    row(1, "ratios", split_of("ratios"), *RATIO_KINDS, examples=3),
    row(1, "surrogates", split_of("surrogates"), *SURROGATE_KINDS, examples=3),
    row(1, "corrections", split_of("corrections"), *CORRECTION_KINDS, examples=2),
    row(1, "divergences", split_of("divergences"), *DIVERGENCE_KINDS, examples=3),
    row(1, "weightings", split_of("weightings"), *WEIGHTING_KINDS, examples=3),
    row(1, "terms", split_of("terms"), *TERM_KINDS, examples=3),
    # 2: order, padding, absent rows
    row(2, "advantages", advantages.rows_may_be_permuted, *ADVANTAGE_KINDS),
    row(2, "advantages", advantages.absent_rows_change_nothing, *ADVANTAGE_KINDS),
    row(2, "ratios", levels.rows_may_be_permuted, *RATIO_KINDS),
    row(2, "ratios", levels.padding_changes_nothing, *RATIO_KINDS),
    row(2, "ratios", levels.absent_rows_change_nothing, *RATIO_KINDS),
    row(2, "surrogates", surrogates.tokens_do_not_see_each_other, *SURROGATE_KINDS),
    row(2, "corrections", levels.rows_may_be_permuted, *CORRECTION_KINDS),
    row(2, "corrections", levels.padding_changes_nothing, *CORRECTION_KINDS),
    row(2, "corrections", levels.absent_rows_change_nothing, *CORRECTION_KINDS),
    row(2, "divergences", divergences.tokens_do_not_see_each_other, *DIVERGENCE_KINDS),
    row(2, "weightings", weightings.rows_may_be_permuted, *WEIGHTING_KINDS),
    row(2, "weightings", weightings.padding_changes_nothing, *WEIGHTING_KINDS),
    row(2, "weightings", weightings.absent_rows_change_nothing, *WEIGHTING_KINDS),
    row(2, "selections", selections.groups_do_not_see_each_other, *SELECTION_KINDS),
    row(2, "selections", selections.rows_may_be_permuted, *SELECTION_KINDS),
    row(2, "selections", selections.absent_rows_change_nothing, *SELECTION_KINDS),
    row(2, "selections", selections.small_groups_are_kept_whole, *SELECTION_KINDS),
    row(2, "rewards", rewards.rows_may_be_permuted, *REWARD_KINDS),
    row(2, "rewards", rewards.rows_do_not_see_each_other, *REWARD_KINDS),
    row(2, "terms", terms.rows_may_be_permuted, *TERM_KINDS),
    row(2, "terms", terms.absent_rows_change_nothing, *TERM_KINDS),
    # 3: what is under the mask
    row(3, "ratios", levels.what_is_masked_does_not_matter, *RATIO_KINDS),
    row(3, "surrogates", surrogates.huge_ratios_stay_finite, *SURROGATE_KINDS),
    row(3, "corrections", levels.what_is_masked_does_not_matter, *CORRECTION_KINDS),
    row(3, "weightings", weightings.nothing_counts_outside_the_mask, *WEIGHTING_KINDS),
    row(3, "rewards", rewards.padding_and_what_is_masked_do_not_matter, *REWARD_KINDS),
    row(3, "terms", terms.padding_and_what_is_masked_do_not_matter, *TERM_KINDS),
    # 4: baselines
    row(4, "advantages", advantages.equal_rewards_give_zero, *ADVANTAGE_KINDS),
    row(4, "advantages", advantages.a_group_of_one_gets_zero, *ADVANTAGE_KINDS),
    row(4, "advantages", advantages.the_offset_of_rewards_does_not_matter, *ADVANTAGE_KINDS),
    row(
        4,
        "advantages",
        advantages.groups_do_not_see_each_other,
        "group_mean",
        "group_mean/group",
        "leave_one_out",
        why_not={"group_mean/batch": BATCH},
    ),
    # 5: on-policy it is REINFORCE; clips
    row(5, "ratios", levels.a_ratio_of_one_stays_one, *RATIO_KINDS),
    row(5, "surrogates", surrogates.on_policy_it_is_reinforce, *SURROGATE_KINDS),
    row(
        5,
        "surrogates",
        surrogates.clipped_is_not_pushed_further,
        "clip",
        "clip/higher",
        "clip/cap",
        why_not={"reinforce": NO_CLIP},
    ),
    row(5, "surrogates", surrogates.a_wrong_move_is_always_pulled_back, *SURROGATE_KINDS),
    row(5, "terms", terms.on_policy_it_is_reinforce, *GRADIENT_KINDS, why_not=NO_ADVANTAGE),
    # 6: corrections
    row(6, "corrections", corrections.one_when_the_two_agree, *CORRECTION_KINDS),
    row(6, "corrections", corrections.kept_in_its_bounds, *CORRECTION_KINDS),
    row(6, "corrections", corrections.detached, *CORRECTION_KINDS),
    # 7: divergences
    row(7, "divergences", divergences.nothing_at_the_teacher, *DIVERGENCE_KINDS),
    row(7, "divergences", divergences.never_negative, *DIVERGENCE_KINDS),
    row(7, "divergences", divergences.the_teacher_matters, *DIVERGENCE_KINDS),
    row(
        7,
        "divergences",
        divergences.expected_gradient_is_that_of(divergences.reverse_kl),
        "sampled_kl",
        why_not={"sampled_kl/k3": WhyNot("its expected gradient is the forward KL's, as its docstring says")},
    ),
    row(
        7,
        "divergences",
        divergences.expected_gradient_is_that_of(divergences.forward_kl),
        "sampled_kl/k3",
        why_not={"sampled_kl": WhyNot("its expected gradient is the reverse KL's, as its docstring says")},
    ),
    # 12: shapes
    *(row(12, role, signatures.shapes_are_stated, *PARTS[role], examples=1) for role in ROLES),
)

NOT_ABOUT: dict[tuple[int, str], str] = {
    (1, "selections"): "the rows of a step are chosen before it is split",
    (1, "rewards"): "rewards are fixed before a step is split",
    (3, "advantages"): "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    (3, "divergences"): "they see selected inputs; their term is under law 3",
    (3, "selections"): "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    **{(4, role): "it has no baseline" for role in ROLES if role != "advantages"},
    **{(5, role): "it has no ratio" for role in ROLES if role not in ("ratios", "surrogates", "terms")},
    **{(6, role): "it is no correction" for role in ROLES if role != "corrections"},
    **{(7, role): "it is no divergence" for role in ROLES if role != "divergences"},
}
"""Why a law has no row for a role. Laws 8, 9 are about whole compositions (test_laws.py), 10, 11 about later parts."""
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 12)
