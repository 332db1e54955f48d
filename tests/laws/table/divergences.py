"""Divergences in the table law x part."""

from grpo_kit import SampledKL
from laws import divergences as laws, signatures
from laws.row import WhyNot, all_but, row, split_of

ROLE = "divergences"
PARTS = {"sampled_kl": SampledKL(), "sampled_kl/k3": SampledKL(estimator="k3")}
NOT_REVERSE = {"sampled_kl/k3": WhyNot("its expected gradient is the forward KL's, as its docstring says")}
NOT_FORWARD = {"sampled_kl": WhyNot("its expected gradient is the reverse KL's, as its docstring says")}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, examples=3),
    row(2, ROLE, laws.tokens_do_not_see_each_other, *PARTS),
    row(7, ROLE, laws.nothing_at_the_teacher, *PARTS),
    row(7, ROLE, laws.never_negative, *PARTS),
    row(7, ROLE, laws.the_teacher_matters, *PARTS),
    row(
        7,
        ROLE,
        laws.expected_gradient_is_that_of(laws.reverse_kl),
        *all_but(PARTS, NOT_REVERSE),
        why_not=NOT_REVERSE,
    ),
    row(
        7,
        ROLE,
        laws.expected_gradient_is_that_of(laws.forward_kl),
        *all_but(PARTS, NOT_FORWARD),
        why_not=NOT_FORWARD,
    ),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {
    3: "they see selected inputs; their term is under law 3",
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
}
