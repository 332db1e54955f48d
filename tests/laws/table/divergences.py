"""Divergences in the table law x part."""

from grpo_kit import JSD, ForwardKL, ReverseKL, SampledKL, TopK, TopKCrossEntropy
from laws import distributions, divergences as laws, signatures
from laws.enumerated import K
from laws.row import WhyNot, all_but, row, split_of

ROLE = "divergences"
ESTIMATORS = {"k1": "sampled_kl/k1", "k2": "sampled_kl", "k3": "sampled_kl/k3"}
ESTIMATORS |= {"k1+": "sampled_kl/k1+", "k3+": "sampled_kl/k3+"}
SAMPLED = {kind: SampledKL(estimator=estimator) for estimator, kind in ESTIMATORS.items()}
TAIL, RENORMALIZED = TopK(k=K), TopK(k=K, outside="renormalized")
WHOLE = {
    "forward_kl": ForwardKL(),
    "forward_kl/temperature": ForwardKL(temperature=2.0),
    "reverse_kl": ReverseKL(),
    "reverse_kl/temperature": ReverseKL(temperature=0.7),
    "jsd": JSD(),
    "jsd/near_student": JSD(beta=0.1),
    "jsd/0": JSD(beta=0.0),
    "jsd/1": JSD(beta=1.0),
    "jsd/temperature": JSD(beta=0.7, temperature=2.0),
}
WITH_TAIL = {
    "forward_kl/tail": ForwardKL(top_k=TAIL),
    "reverse_kl/tail": ReverseKL(top_k=TAIL),
    "jsd/tail": JSD(beta=0.3, top_k=TAIL),
    "jsd/0_tail": JSD(beta=0.0, top_k=TAIL),
}
INSIDE = {
    "forward_kl/renormalized": ForwardKL(top_k=RENORMALIZED),
    "reverse_kl/renormalized": ReverseKL(top_k=RENORMALIZED),
    "jsd/renormalized": JSD(beta=0.3, top_k=RENORMALIZED),
}
ENDS = {"jsd/0", "jsd/1"}
LABELS = {"top_k_cross_entropy": TopKCrossEntropy(k=K)}
OVER_VOCABULARY = WHOLE | WITH_TAIL | INSIDE | LABELS
PARTS = SAMPLED | OVER_VOCABULARY


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


def not_about(parts, reason: str) -> dict[str, WhyNot]:
    return dict.fromkeys(parts, WhyNot(reason, shown=False))


OTHER_INPUTS = "it is given log-probabilities of {}, for which the law stands under another name"
OF_TOKENS = not_about(OVER_VOCABULARY, OTHER_INPUTS.format("whole distributions"))
OF_DISTRIBUTIONS = not_about(SAMPLED, OTHER_INPUTS.format("the sampled tokens alone"))
NO_DIVERGENCE = {"top_k_cross_entropy": WhyNot("it is no divergence" + SAID)}
ABOVE = {kind: WhyNot("inside the top k the two may be farther apart than as a whole") for kind in INSIDE}
NO_END = not_about([kind for kind in OVER_VOCABULARY if kind not in ENDS], "it is no end of a JSD")
EVERYTHING = not_about(WHOLE, "it sees the whole vocabulary")
NO_TOP_K = EVERYTHING | not_about(LABELS, "it has no form without top k")


def law_7(law, not_for):
    return row(7, ROLE, law, *all_but(PARTS, OF_TOKENS | not_for), why_not=OF_TOKENS | not_for)


def of_distributions(law, not_for=None, number=7):
    why_not = OF_DISTRIBUTIONS | (not_for or {})
    return row(number, ROLE, law, *all_but(PARTS, why_not), why_not=why_not)


ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.tokens_do_not_see_each_other, *SAMPLED, why_not=OF_TOKENS),
    of_distributions(distributions.tokens_are_apart, number=2),
    of_distributions(distributions.ids_have_no_order, number=2),
    of_distributions(distributions.impossible_events_are_harmless, number=3),
    law_7(laws.nothing_at_the_teacher, USELESS),
    law_7(laws.never_negative, SIGNED),
    law_7(laws.the_teacher_matters, USELESS),
    law_7(laws.expected_gradient_is_that_of(laws.reverse_kl), NOT_REVERSE),
    law_7(laws.expected_gradient_is_that_of(laws.forward_kl), NOT_FORWARD),
    law_7(laws.expected_gradient_is_that_of(laws.nothing), NOT_ZERO),
    law_7(laws.expected_value_is_the_reverse_kl, NOT_ITS_VALUE),
    of_distributions(distributions.nothing_at_an_equal_teacher, NO_DIVERGENCE),
    of_distributions(distributions.never_below_zero),
    of_distributions(distributions.equal_to_enumeration),
    of_distributions(distributions.another_teacher_is_another_gradient),
    of_distributions(distributions.a_top_k_sees_nothing_outside, EVERYTHING),
    of_distributions(distributions.a_part_is_not_above_the_whole, NO_TOP_K | ABOVE),
    of_distributions(distributions.the_top_of_everything_is_everything, NO_TOP_K),
    of_distributions(distributions.the_ends_are_a_jump, NO_END),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
}
