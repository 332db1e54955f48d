"""Terms in the table law x part."""

from grpo_kit import (
    DivergenceTerm,
    EntropyBonus,
    ImportanceWeight,
    LeaveOneOut,
    PolicyGradient,
    Reinforce,
    SampledKL,
    SequenceRatio,
)
from laws import signatures, terms as laws
from laws.row import CLIPPED, WhyNot, all_but, row, split_of

ROLE = "terms"
PARTS = {
    "policy_gradient": PolicyGradient(**CLIPPED),
    "policy_gradient/behavior": PolicyGradient(**CLIPPED, anchor="behavior"),
    "policy_gradient/sequence": PolicyGradient(**CLIPPED, ratio=SequenceRatio()),
    "policy_gradient/corrected": PolicyGradient(**CLIPPED, correction=ImportanceWeight(level="sequence")),
    "policy_gradient/reinforce": PolicyGradient(
        advantage=LeaveOneOut(), surrogate=Reinforce(), correction=ImportanceWeight(), baseline="sampled"
    ),
    "divergence": DivergenceTerm(to="other", divergence=SampledKL()),
    "entropy": EntropyBonus(weight=0.5),
}
NO_ADVANTAGE = {
    kind: WhyNot("it has no advantage", shown=False) for kind in PARTS if not kind.startswith("policy_gradient")
}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, examples=3),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, laws.padding_and_what_is_masked_do_not_matter, *PARTS),
    row(5, ROLE, laws.on_policy_it_is_reinforce, *all_but(PARTS, NO_ADVANTAGE), why_not=NO_ADVANTAGE),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {4: "it has no baseline", 6: "it is no correction", 7: "it is no divergence"}
