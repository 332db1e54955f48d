# ruff: noqa: RUF001
"""Formulas as `explain` prints them, worked out with numbers."""

import re

import torch

WORDS = {
    "·": "*",
    "^": "**",
    "∞": "inf",
    "log ρ_it": "log(ρ_it)",
    "log π_θ(o_it)": "now",
    "log μ(o_it)": "writer",
    "|o_i|": "length",
    "Σ_j |o_j|": "all_lengths",
    "Σ_(u ≤ t) b_iu": "b_it.cumsum(1)",
    "Σ_u b_iu": "row_sum(b_it)",
    "mean_u(b_iu)": "row_mean(b_it)",
    "mean_t(d_it)": "row_mean(d_it)",
    "r_g without r_i": "others",
}
NAMES = {
    "e": torch.tensor(torch.e, dtype=torch.float64),
    "inf": float("inf"),
    "log": torch.log,
    "min": lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)),
    "max": torch.maximum,
    "clip": torch.clamp,
    "mean": torch.mean,
    "std": torch.std,
    "sg": lambda x: x.detach(),
    "row_sum": lambda x: x.sum(1, keepdim=True).expand_as(x),
    "row_mean": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "inside": lambda x, low, high: torch.where((x >= low) & (x <= high), x, 0),
}


def work_out(text, **values):
    """The value of a formula's right side; every symbol in it must be given."""
    inside = re.fullmatch(r"(.*) inside \[(.*), (.*)\], else 0", text)
    text = f"inside({inside[1]}, {inside[2]}, {inside[3]})" if inside else text
    text = re.sub(r"log π_(\w+)\(o_it\)", lambda match: f"then_{match[1]}" if match[1] != "θ" else match[0], text)
    for words in sorted(WORDS, key=len, reverse=True):
        text = text.replace(words, WORDS[words])
    text = re.sub(r"sg\[([^\]]*)\]", r"sg(\1)", text).replace("[", "(").replace("]", ")")
    return eval(text, {"__builtins__": {}}, NAMES | values)
