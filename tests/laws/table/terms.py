"""Terms in the table law x part."""

from grpo_kit import (
    AdaptiveCoefficient,
    DivergenceTerm,
    EntropyBonus,
    ImportanceWeight,
    LeaveOneOut,
    PolicyGradient,
    Reinforce,
    SampledKL,
    SequenceRatio,
)
from laws import divergences, signatures, terms as laws
from laws.row import CLIPPED, WhyNot, all_but, row, split_of

ROLE = "terms"
ADAPTIVE = AdaptiveCoefficient(start=0.7, target=0.1)
PARTS = {
    "policy_gradient": PolicyGradient(**CLIPPED),
    "policy_gradient/behavior": PolicyGradient(**CLIPPED, anchor="behavior"),
    "policy_gradient/sequence": PolicyGradient(**CLIPPED, ratio=SequenceRatio()),
    "policy_gradient/corrected": PolicyGradient(**CLIPPED, correction=ImportanceWeight(level="sequence")),
    "policy_gradient/reinforce": PolicyGradient(
        advantage=LeaveOneOut(), surrogate=Reinforce(), correction=ImportanceWeight(), baseline="sampled"
    ),
    "divergence": DivergenceTerm(to="other", divergence=SampledKL(), weight=0.3),
    "divergence/k3": DivergenceTerm(to="other", divergence=SampledKL(estimator="k3")),
    "divergence/importance": DivergenceTerm(
        to="other", divergence=SampledKL(estimator="k3"), importance=True, weight=0.3
    ),
    "divergence/importance_k1": DivergenceTerm(
        to="other", divergence=SampledKL(estimator="k1"), importance=True, adaptive=ADAPTIVE
    ),
    "divergence/adaptive": DivergenceTerm(to="other", divergence=SampledKL(estimator="k3+"), adaptive=ADAPTIVE),
    "entropy": EntropyBonus(weight=0.5),
}
NO_ADVANTAGE = {
    kind: WhyNot("it has no advantage", shown=False) for kind in PARTS if not kind.startswith("policy_gradient")
}
NOT_OFF_POLICY = {
    kind: WhyNot("tokens of another writer need `importance`, as its docstring says")
    for kind in ("divergence", "divergence/k3", "divergence/adaptive")
} | {kind: WhyNot("it is no divergence", shown=False) for kind in PARTS if not kind.startswith("divergence")}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, laws.padding_and_what_is_masked_do_not_matter, *PARTS),
    row(5, ROLE, laws.on_policy_it_is_reinforce, *all_but(PARTS, NO_ADVANTAGE), why_not=NO_ADVANTAGE),
    row(
        7,
        ROLE,
        divergences.off_policy_gradient_is_that_of(divergences.reverse_kl),
        *all_but(PARTS, NOT_OFF_POLICY),
        why_not=NOT_OFF_POLICY,
    ),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {4: "it has no baseline", 6: "it is no correction"}
