"""Experiment d: CoDistill's time over that of GRPO of both models, and the large learner's over that of its own GRPO.

Reads the folder that `grpo-kit compare --plan examples/experiments/cost.toml` left. Ratios are of the runs of one seed;
the first step of a run, in which everything is set up, is left out.

Run it: python examples/experiments/cost.py runs/compare-cost
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from grpo_kit.compare.summary import cost

NOTHING = {"seconds": {"fill": 0.0}, "flops": {}, "tokens_filled": 0}


def cost_of(comparison: Path, arm: str, seed: int) -> dict[str, float]:
    """Seconds by stage and FLOPs of a run, from its second step on."""
    text = (comparison / "runs" / arm / f"seed-{seed}" / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return cost([line for line in lines if line["step"] > 1], NOTHING)


def of_large_learner(found: Mapping[str, float]) -> float:
    """Seconds that the large learner needs in CoDistill: all writing, its updates, and its share of the scoring.

    Both models are scored in one stage, whose seconds are divided as their FLOPs are.
    """
    small, large = (found[f"flops/{policy}/score"] for policy in ("small", "large"))
    return found["seconds/sample"] + found["seconds/update/large"] + found["seconds/score"] * large / (small + large)


def ratios(comparison: Path, seed: int) -> dict[str, float]:
    """Every ratio, of the runs of a seed."""
    small, large = (cost_of(comparison, f"grpo_{name}", seed)["seconds/total"] for name in ("small", "large"))
    found: dict[str, float] = {}
    for arm in ("codistill", "codistill_paper"):
        own = cost_of(comparison, arm, seed)
        found[f"{arm} / (GRPO small + GRPO large)"] = own["seconds/total"] / (small + large)
        found[f"{arm} / GRPO large"] = own["seconds/total"] / large
        found[f"large learner of {arm} / GRPO large"] = of_large_learner(own) / large
    return found


def main(comparison: Annotated[Path, typer.Argument(help="Folder of the comparison.")]) -> None:
    """Print the median of each ratio over the seeds, and their least and greatest."""
    seeds = json.loads((comparison / "summary.json").read_text(encoding="utf-8"))["plan"]["seeds"]
    found = [ratios(comparison, seed) for seed in seeds]
    print(f"| ratio of seconds | median of {len(seeds)} | least to greatest |\n|---|---:|---|")
    for name in found[0]:
        values = [own[name] for own in found]
        print(f"| {name} | {median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")


if __name__ == "__main__":
    typer.run(main)
