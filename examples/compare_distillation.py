"""OPD, Semi-OPD and GKD on the tiny pair: equal numbers of updates, several seeds, accuracy on held-out questions.

Run it: python examples/compare_distillation.py OUT [--steps 30] [--seeds 0 1 2] [--questions 2000]
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from grpo_kit import Arithmetic, EvaluationSpec, Replay, TransformersSampler, read_recipe, train
from grpo_kit.overlap.measure import measure
from grpo_kit.policies import Policy
from grpo_kit.run.buffering import fill_buffer
from grpo_kit.run.evaluation import evaluate
from grpo_kit.run.inputs import Inputs
from grpo_kit.run.interrupt import Interrupt
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream

TERM = "learners.small.terms.distillation"
CONTROLLED = f"{TERM}.advantage.control_variate={{ kind = 'reverse_kl' }}"
FULL = f"{TERM}={{ kind = 'divergence', to = 'large', divergence = {{ kind = 'reverse_kl' }} }}"
ARMS = {
    "opd, sampled": ("opd", ()),
    "opd, control variate": ("opd", (CONTROLLED,)),
    "opd, full": ("opd", (FULL,)),
    "semi_opd, sampled": ("semi_opd", ()),
    "semi_opd, control variate": ("semi_opd", (CONTROLLED,)),
    "semi_opd, full": ("semi_opd", (FULL,)),
    "gkd": ("gkd", ()),
}
TOP = 4  # of the tiny pair's 19 tokens; 64 would be all of them


def overlap(policies: dict[str, Policy], inputs: Inputs) -> float:
    """The output-token overlap of the present student with the teacher, on rows that it writes now."""
    writes = TransformersSampler(policy="small", samples=1, max_new_tokens=48)
    assert inputs.questions is not None
    few = inputs.questions.take(range(min(256, len(inputs.questions))))
    rollouts = writes(few, policies, torch.Generator().manual_seed(1))
    return float(measure(policies["small"], policies["large"], rollouts, TOP).values.overlap.mean())


def run(arm: str, seed: int, steps: int, questions: int, out: Path) -> dict[str, float]:
    """Train one arm with one seed; what it came to and what it took."""
    name, settings = ARMS[arm]
    recipe = read_recipe(name, settings=[f"steps={steps}", f"seed={seed}", *settings])
    evaluation = EvaluationSpec(data=Arithmetic(split="eval"), reward="correctness", questions=questions, samples=1)
    if isinstance(recipe.sampler, Replay):  # another seed has other rollouts; the arms share them
        recipe = replace(recipe, sampler=replace(recipe.sampler, buffer=str(out / f"buffer-{seed}"), seed=seed))
    recipe = replace(recipe, evaluation=evaluation)
    inputs = load_inputs(recipe)
    policies = load_policies(recipe)
    before, started, filled = overlap(policies, inputs), time.perf_counter(), 0.0
    if name == "semi_opd":
        fill_buffer(recipe, inputs, policies, console=Console(quiet=True), interrupt=Interrupt())
        filled = time.perf_counter() - started
    spent = {"sample": 0.0, "score": 0.0, "step": 0.0}
    for report in train(recipe, policies, prompt_stream(recipe, inputs)):
        spent = {stage: seconds + report.metrics[f"time/{stage}"] for stage, seconds in spent.items()}
    found = evaluate(recipe, policies, inputs.questions) if inputs.questions else {}
    return {
        "accuracy": found["eval/small/accuracy"],
        "greedy": found["eval/small/greedy"],
        "overlap_before": before,
        "overlap_after": overlap(policies, inputs),
        "fill": filled,
        **{f"time_{stage}": seconds for stage, seconds in spent.items()},
    }


def main() -> None:
    """Run every arm with every seed, and print means with their spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--questions", type=int, default=2000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    for seed in options.seeds:
        for arm in ARMS:
            runs[arm].append(run(arm, seed, options.steps, options.questions, options.out))
            print(f"seed {seed}, {arm}: {json.dumps({k: round(v, 4) for k, v in runs[arm][-1].items()})}", flush=True)
    (options.out / "runs.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    columns = ("arm", "temperature 1", "greedy", "overlap", "seconds", "sampling", "scoring", "filling")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for arm, found in runs.items():
        of = {key: [one[key] for one in found] for key in found[0]}
        mean = {key: statistics.fmean(values) for key, values in of.items()}
        spread = {key: statistics.stdev(values) if len(values) > 1 else 0.0 for key, values in of.items()}
        shares = (f"{mean[f'time_{stage}'] / mean['time_step']:.0%}" for stage in ("sample", "score"))
        scores = (f"{mean[key]:.3f} ± {spread[key]:.3f}" for key in ("accuracy", "greedy"))
        overlaps = f"{mean['overlap_before']:.3f} -> {mean['overlap_after']:.3f}"
        seconds = f"{mean['time_step']:.1f} ({min(of['time_step']):.1f} to {max(of['time_step']):.1f})"
        row = (arm, *scores, overlaps, seconds, *shares, f"{mean['fill']:.1f}")
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
