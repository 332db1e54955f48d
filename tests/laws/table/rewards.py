"""Rewards in the table law x part."""

from grpo_kit import (
    AdaptiveCoefficient,
    Correctness,
    CosineLength,
    Format,
    KLPenalty,
    NumberMatch,
    OnPolicyKD,
    Python,
    ReasoningGymScore,
    Repetition,
    SoftOverlong,
    StringMatch,
)
from laws import rewards as laws, signatures
from laws.row import row

ROLE = "rewards"


def lengths(completions, **columns):
    """A reward function for the table."""
    return [None if not text else float(len(text)) for text in completions]


KL = {"teacher": "large", "student": "small"}
PARTS = {
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
    "kl_penalty": KLPenalty(policy="small", reference="large"),
    "kl_penalty/adaptive": KLPenalty(
        policy="small", reference="large", adaptive=AdaptiveCoefficient(start=0.7, target=0.1)
    ),
    "python": Python(function=lengths),
}

ROWS = (
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.rows_do_not_see_each_other, *PARTS),
    row(3, ROLE, laws.padding_and_what_is_masked_do_not_matter, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    1: "rewards are fixed before a step is split",
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
