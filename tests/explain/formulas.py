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
    "mean_t(d_it)": "row_mean(d_it)",
    "r_g without r_i": "others",
    "r_i^greedy": "greedy",
    "Σ_(j ∈ g) |o_j| · r_j": "(l_g * r_g).sum()",
    "Σ_(j ∈ g) |o_j|": "l_g.sum()",
    "mean_(i, t)(a)": "mean(a_it)",
    "std_(i, t)(a)": "std(a_it)",
}
NAMES = {
    "e": torch.tensor(torch.e, dtype=torch.float64),
    "inf": float("inf"),
    "log": torch.log,
    "σ": torch.sigmoid,
    "sign": torch.sign,
    "kl": lambda q, p: q * torch.log(q / p) + (1 - q) * torch.log((1 - q) / (1 - p)),
    "window": lambda size, x: torch.stack([x[:, max(0, t + 1 - size) : t + 1].sum(1) for t in range(x.shape[1])], 1),
    "min": lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)),
    "max": lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype)),
    "clip": torch.clamp,
    "mean": torch.mean,
    "std": torch.std,
    "sg": lambda x: x.detach(),
    "row_sum": lambda x: x.sum(1, keepdim=True).expand_as(x),
    "row_mean": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "inside": lambda x, low, high: torch.where((x >= low) & (x <= high), x, 0),
}


def to_go(tokens, gamma):
    """The discounted sum from each token on, added up one by one."""
    width = tokens.shape[1]
    sums = [sum(gamma ** (u - t) * tokens[:, u] for u in range(t, width)) for t in range(width)]
    return torch.stack(sums, dim=1)


NAMES["to_go"] = to_go


def work_out(text, **values):
    """The value of a formula's right side; every symbol in it must be given."""
    inside = re.fullmatch(r"(.*) inside \[(.*), (.*)\], else 0", text)
    text = f"inside({inside[1]}, {inside[2]}, {inside[3]})" if inside else text
    text = re.sub(r"Σ_\(u ≥ t\) (?:([\d.]+)\^\(u - t\) · )?r_iu", lambda match: f"to_go(r_it, {match[1] or 1})", text)
    text = re.sub(r"mean_\(i ∈ S, \|S\| = (\d+)\) \[max r_S - max r_\(S without i\)\]", r"best_of(\1)", text)
    text = re.sub(r"log π_(\w+)\(o_it\)", lambda match: f"then_{match[1]}" if match[1] != "θ" else match[0], text)
    for words in sorted(WORDS, key=len, reverse=True):
        text = text.replace(words, WORDS[words])
    text = re.sub(r"sg\[([^\]]*)\]", r"sg(\1)", text).replace("[", "(").replace("]", ")")
    return eval(text, {"__builtins__": {}}, NAMES | values)
