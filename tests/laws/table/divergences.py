"""Divergences in the table law x part."""

from grpo_kit import SampledKL
from laws import divergences as laws, signatures
from laws.row import WhyNot, all_but, row, split_of

ROLE = "divergences"
ESTIMATORS = {"k1": "sampled_kl/k1", "k2": "sampled_kl", "k3": "sampled_kl/k3"}
ESTIMATORS |= {"k1+": "sampled_kl/k1+", "k3+": "sampled_kl/k3+"}
PARTS = {kind: SampledKL(estimator=estimator) for estimator, kind in ESTIMATORS.items()}


def why_not(reason: str, *estimators: str) -> dict[str, WhyNot]:
    return {ESTIMATORS[estimator]: WhyNot(reason) for estimator in estimators}


SAID = ", as its docstring says"
SIGNED = why_not("it is the log-ratio itself, of either sign", "k1", "k1+")
USELESS = why_not("its gradient is that of log pi, which is 1 everywhere" + SAID, "k1")
NOT_REVERSE = why_not("its expected gradient is the forward KL's" + SAID, "k3") | why_not(
    "its expected gradient is zero" + SAID, "k1"
)
NOT_FORWARD = why_not("its expected gradient is the reverse KL's" + SAID, "k2", "k1+", "k3+") | why_not(
    "its expected gradient is zero" + SAID, "k1"
)
NOT_ZERO = why_not("its expected gradient is that of a KL" + SAID, "k2", "k3", "k1+", "k3+")
NOT_ITS_VALUE = why_not("its value is half the mean square of the log-ratio" + SAID, "k2")


def law_7(law, not_for):
    return row(7, ROLE, law, *all_but(PARTS, not_for), why_not=not_for)


ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.tokens_do_not_see_each_other, *PARTS),
    law_7(laws.nothing_at_the_teacher, USELESS),
    law_7(laws.never_negative, SIGNED),
    law_7(laws.the_teacher_matters, USELESS),
    law_7(laws.expected_gradient_is_that_of(laws.reverse_kl), NOT_REVERSE),
    law_7(laws.expected_gradient_is_that_of(laws.forward_kl), NOT_FORWARD),
    law_7(laws.expected_gradient_is_that_of(laws.nothing), NOT_ZERO),
    law_7(laws.expected_value_is_the_reverse_kl, NOT_ITS_VALUE),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    3: "they see selected inputs; their term is under law 3",
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
}
