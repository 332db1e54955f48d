"""Terms in the table law x part."""

from grpo_kit import (
    AdaptiveCoefficient,
    CrossEntropy,
    DivergenceTerm,
    EntropyBonus,
    ImportanceWeight,
    LeaveOneOut,
    PolicyGradient,
    Reinforce,
    ReverseKL,
    SampledKL,
    SequenceRatio,
    TeacherLogRatio,
    Where,
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
    "policy_gradient/where": PolicyGradient(**CLIPPED, where=Where(reward="task", at_least=0.0)),
    "policy_gradient/teacher": PolicyGradient(advantage=TeacherLogRatio(teacher="other"), surrogate=Reinforce()),
    "policy_gradient/control_variate": PolicyGradient(
        advantage=TeacherLogRatio(teacher="other", control_variate=ReverseKL()), surrogate=Reinforce()
    ),
    "divergence": DivergenceTerm(to="other", divergence=SampledKL(), weight=0.3),
    "divergence/where": DivergenceTerm(to="other", divergence=SampledKL(), where=Where(rows="data", denominator="own")),
    "divergence/k3": DivergenceTerm(to="other", divergence=SampledKL(estimator="k3")),
    "divergence/importance": DivergenceTerm(
        to="other", divergence=SampledKL(estimator="k3"), importance=True, weight=0.3
    ),
    "divergence/importance_k1": DivergenceTerm(
        to="other", divergence=SampledKL(estimator="k1"), importance=True, adaptive=ADAPTIVE
    ),
    "divergence/adaptive": DivergenceTerm(to="other", divergence=SampledKL(estimator="k3+"), adaptive=ADAPTIVE),
    "cross_entropy": CrossEntropy(),
    "cross_entropy/where": CrossEntropy(where=Where(reward="task", at_most=0.5, denominator="own"), weight=0.3),
    "entropy": EntropyBonus(weight=0.5),
    "entropy/where": EntropyBonus(where=Where(rows="sampled")),
}
NO_ADVANTAGE = {
    kind: WhyNot("it has no advantage", shown=False) for kind in PARTS if not kind.startswith("policy_gradient")
}
LIVE = {
    kind: WhyNot("its advantages come at the update; laws/live_advantages.py", shown=False)
    for kind in ("policy_gradient/teacher", "policy_gradient/control_variate")
}
COUPLED = {
    "policy_gradient/sequence": WhyNot("its ratio is the row's"),
}
NOT_OFF_POLICY = {
    kind: WhyNot("tokens of another writer need `importance`, as its docstring says")
    for kind in ("divergence", "divergence/where", "divergence/k3", "divergence/adaptive")
} | {kind: WhyNot("it is no divergence", shown=False) for kind in PARTS if not kind.startswith("divergence")}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(1, ROLE, laws.tokens_are_apart, *all_but(PARTS, COUPLED), why_not=COUPLED),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, laws.padding_and_what_is_masked_do_not_matter, *PARTS),
    row(
        5,
        ROLE,
        laws.on_policy_it_is_reinforce,
        *all_but(PARTS, NO_ADVANTAGE | LIVE),
        why_not=NO_ADVANTAGE | LIVE,
    ),
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
