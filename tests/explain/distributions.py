"""Divergences over whole distributions in all their settings, and what a formula of `explain` gives for them."""

import re

import torch

from explain.formulas import work_out
from grpo_kit import JSD, ForwardKL, ReverseKL, TopK, TopKCrossEntropy

TAIL, RENORMALIZED = TopK(k=3), TopK(k=3, outside="renormalized")
VARIANTS = [
    *(ForwardKL(), ForwardKL(temperature=2.0), ForwardKL(top_k=TAIL), ForwardKL(top_k=RENORMALIZED)),
    *(ReverseKL(), ReverseKL(temperature=0.5), ReverseKL(top_k=TAIL), ReverseKL(top_k=TopK(k=4))),
    *(JSD(), JSD(beta=0.1), JSD(temperature=2.0), JSD(top_k=TAIL), JSD(beta=0.1, top_k=RENORMALIZED)),
    *(TopKCrossEntropy(k=3), TopKCrossEntropy(k=5)),
]
ENDS = [JSD(beta=0.0), JSD(beta=1.0)]
"""Of one formula with the forward and the reverse KL."""


def losses_of(text, student, teacher):
    """The loss of each token by the formula of a divergence, from two tensors of probabilities."""
    if aside := re.fullmatch(r"(.*), at temperature ([\d.]+)", text):
        text, power = aside[1], 1 / float(aside[2])
        student, teacher = (each**power / (each**power).sum(-1, keepdim=True) for each in (student, teacher))
    if aside := re.fullmatch(r"(.*), over the top (\d+) of q(?:, (with the rest as one event|renormalized))?", text):
        text, chosen = aside[1], teacher.argsort(-1, descending=True)[..., : int(aside[2])]
        student, teacher = (each.gather(-1, chosen) for each in (student, teacher))
        if aside[3] == "renormalized":
            student, teacher = (each / each.sum(-1, keepdim=True) for each in (student, teacher))
        elif aside[3]:
            student, teacher = (torch.cat([each, 1 - each.sum(-1, keepdim=True)], -1) for each in (student, teacher))
    given = {"q_v": teacher, "π_v": student, "sum_v": lambda values: values.sum(-1)}
    if aside := re.fullmatch(r"(.*), with m_v = (.*)", text):
        text, given["m_v"] = aside[1], work_out(aside[2], **given)
    text = re.sub(r"Σ_v (\w+ · (?:\[[^\]]*\]|log \w+))", r"sum_v(\1)", text)
    return work_out(re.sub(r"log (\w+)", r"log(\1)", text), **given)
