# ruff: noqa: RUF001
"""Surrogates and corrections in all their settings, and what a formula of `explain` gives for them."""

import re

import torch

from explain.formulas import work_out
from grpo_kit import (
    CISPO,
    DPPO,
    GMPO,
    SAPO,
    Clip,
    DivergenceMask,
    ImportanceWeight,
    LogProbs,
    Product,
    Reinforce,
)

INF = float("inf")
SURROGATES = [
    Reinforce(),
    *(Clip(), Clip(low=0.3), Clip(high=0.28), Clip(cap=3.0)),
    *(CISPO(), CISPO(high=1.5), CISPO(low=0.5), CISPO(bound="relative", high=0.3, low=0.2)),
    *(SAPO(), SAPO(tau_positive=2.0), SAPO(tau_negative=3.0)),
    *(GMPO(), GMPO(low=0.3), GMPO(high=0.2)),
    *(DPPO(), DPPO(low=0.05), DPPO(high=0.05), DPPO(cap=2.0), DPPO(divergence="kl", low=0.05, high=0.02)),
]
CORRECTIONS = [
    ImportanceWeight(),
    *(ImportanceWeight(level=level) for level in ("prefix", "sequence", "geometric")),
    ImportanceWeight(level="window", window=2),
    ImportanceWeight(low=0.5),
    ImportanceWeight(high=1.5),
    ImportanceWeight(action="mask", low=0.5, high=1.5),
    ImportanceWeight(action="mask", level="sequence", low=0.5, high=INF),
    ImportanceWeight(temper=0.5),
    ImportanceWeight(action="mask", low=0.9, temper=0.5, level="geometric"),
    ImportanceWeight(action="mask", low=0.9, temper=0),
    *(ImportanceWeight(level=level, normalize=over) for level in ("token", "sequence") for over in ("group", "batch")),
    *(DivergenceMask(metric=metric, high=0.1) for metric in ("k1", "k2", "k3")),
    *(DivergenceMask(level=level, high=0.2) for level in ("token", "prefix", "sequence")),
    DivergenceMask(level="window", window=2, high=0.2),
    DivergenceMask(metric="k1", level="token", low=-0.2, high=0.3),
    DivergenceMask(metric="k1", level="sequence", high=0.1, only_negative=True),
    DivergenceMask(metric="k1", high=0.1, at="update"),
    Product(of=(ImportanceWeight(), DivergenceMask(metric="k1", level="token", high=0.3))),
    Product(of=(ImportanceWeight(low=0.5), ImportanceWeight(level="sequence", action="mask"))),
]
LIKELY = -1.55
"""What the current policy gives each token, so that a log-ratio of 1.5 and of -1.5 leaves DPPO's trust regions."""


def asked_of(log_ratio):
    """What a surrogate may ask for."""
    now = torch.full_like(log_ratio, LIKELY)
    record = LogProbs(current=now, anchor=now - log_ratio, behavior=now - log_ratio)
    return {"mask": torch.ones_like(log_ratio, dtype=torch.bool), "logprobs": record}


def losses_of(text, log_ratio, advantages):
    """The loss of each token by the formula of a surrogate."""
    given = {"ρ_it": log_ratio.exp(), "d_it": log_ratio, "A_i": advantages}
    given["p_it"] = torch.full_like(log_ratio, LIKELY).exp()
    text = text.replace("π_θ(o_it)", "p_it")
    if aside := re.fullmatch(r"(.*), with (\w+) = (.*) where A_i (>|≥) 0, else (.*)", text):
        text, name, above, sign, below = aside.groups()
        positive = advantages > 0 if sign == ">" else advantages >= 0
        sides = [torch.as_tensor(work_out(side, **given), dtype=log_ratio.dtype) for side in (above, below)]
        given[name] = torch.where(positive, *sides)
        return work_out(text.replace("mean_u(c_iu)", "row_mean(c_it)"), **given)
    if aside := re.fullmatch(
        r"(.*), but 0 where A_i > 0 and D_it > (.*) or A_i < 0 and D_it < (.*), with D_it = (.*)", text
    ):
        loss, high, low, moved = aside[1], float(aside[2]), float(aside[3]), work_out(aside[4], **given)
        dropped = ((advantages > 0) & (moved > high)) | ((advantages < 0) & (moved < low))
        return torch.where(dropped, 0, work_out(loss, **given))
    return work_out(text, **given)


def weights_of(text, log_ratio, mask, groups, advantages, moved):
    """The weight of each token by the formula of a correction; every token counts."""
    if text.startswith("["):
        found = [part.removeprefix("[").removesuffix("]") for part in text.split("] · [")]
        first, second = (weights_of(part, log_ratio, mask, groups, advantages, moved) for part in found)
        return first * second
    if aside := re.fullmatch(r"(.*), divided by the mean over the (group|batch)'s (rows|tokens)", text):
        weights = weights_of(aside[1], log_ratio, mask, groups, advantages, moved)
        means = [weights[groups == group].mean() if aside[2] == "group" else weights.mean() for group in groups]
        return weights / torch.stack(means)[:, None]
    given = {"b_it": log_ratio, "d_it": moved}
    text = text.replace("iu", "it")
    text = re.sub(r"Σ_\(t - (\d+) < u ≤ t\) (\[.*?\]|b_it)", r"window(\1, \2)", text)
    text = re.sub(r"Σ_\(u ≤ t\) (\[.*?\]|b_it)", r"window(99, \1)", text)
    text = re.sub(r"Σ_u (\[.*?\]|b_it)", r"row_sum(\1)", text).replace("mean_u", "row_mean")
    if aside := re.fullmatch(r"(.*) where (.*) inside \[(.*), (.*)\], else 0", text):
        value, raw = work_out(aside[1], **given), work_out(aside[2], **given)
        return torch.where((raw >= float(aside[3])) & (raw <= float(aside[4])), value, torch.zeros_like(raw))
    if aside := re.fullmatch(r"1 where (?:(-?[\d.]+) ≤ )?(.*) ≤ ([\d.]+)( or A_i ≥ 0)?, else 0", text):
        found = work_out(aside[2], **given)
        kept = (found >= float(aside[1] or -INF)) & (found <= float(aside[3])) | ((advantages >= 0) & bool(aside[4]))
        return kept.to(log_ratio)
    return work_out(text, **given)
