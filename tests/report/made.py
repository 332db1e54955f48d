"""Run folders made by hand, with what a report reads of them."""

import json
from pathlib import Path

HOSTILE = '</script><img src=x onerror="window.__pwned=1;alert(1)"><!-- & \u2028\u202e\x00\x1b[31m\ud800 {{DATA}}'
"""Ends a script, is an image that runs a program, turns the direction of writing around, is no text at all."""


def lines_of(values) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def metrics(steps: int = 3, shift: float = 0.0, **more):
    """An evaluation before the first step, then a line a step."""
    first = {"step": 0, "eval/small/accuracy": 0.25 + shift, "eval/small/greedy": 0.5}
    return [first] + [
        {
            "step": step,
            "reward/small/total": 0.1 * step + shift,
            "reward/small/task": 0.1 * step + shift,
            "reward/small/task_no_answer": 0.125,
            "learner/small/policy/ratio_mean": 1.0,
            "learner/small/version": float(step),
            "sampler/length_mean": 10.0 + step,
            "time/sample": 0.5,
            "time/update/small": 0.25 * step,
            "time/step": 0.5 + 0.25 * step,
            "time/tokens_per_second": 1000.0,
            **({"eval/small/accuracy": 0.5 + shift, "eval/small/pass@2": None} if step == steps else {}),
            **more,
        }
        for step in range(1, steps + 1)
    ]


def sample(step: int = 1, group: int = 0, pieces=("a", "b", "<eos>"), **changes):
    """A line of samples.jsonl of two policies."""
    count = len(pieces)
    line = {
        "step": step,
        "group": group,
        "kept": True,
        "greedy": False,
        "prompt": f"prompt {group}",
        "completion": "".join(pieces),
        "stop_reason": "eos",
        "columns": {"prompt": "x", "answer": "8"},
        "rewards": {"task": 1.0},
        "statuses": {"task": "ok"},
        "tokens": list(range(count)),
        "pieces": list(pieces),
        "behavior": [-0.5] * count,
        "logprobs": {"small": [-0.5] * count, "large": [-0.25 * (place + 1) for place in range(count)]},
        "entropy": {"small": [0.5] * count, "large": [0.125] * count},
        "advantage": {"small/policy": [0.75] * count},
        "correction": {"small/policy": [1.5] * count},
        "counted": {"small/policy": [1] * count},
    }
    return line | changes


def run_folder(path: Path, *, name: str = "grpo", seed: int = 0, lines=None, samples=(), rewards=("task",)) -> Path:
    """A folder with the three files."""
    path.mkdir(parents=True)
    tables = "".join(f"[rewards.{reward}]\nkind = 'correctness'\n" for reward in rewards)
    (path / "recipe.resolved.toml").write_text(f"name = {json.dumps(name)}\nseed = {seed}\n{tables}")
    (path / "metrics.jsonl").write_text(lines_of(metrics() if lines is None else lines))
    (path / "samples.jsonl").write_text(lines_of(samples))
    return path


def comparison(folder: Path, arms=("grpo",), seeds=(0,), *, begun=None, controls=(), **changes) -> Path:
    """A folder of a comparison: the plan with its arms, and the runs of those that have begun."""
    (folder / "recipes").mkdir(parents=True)
    tables = "".join(f"[arms.{arm}]\ntrain = {str(arm not in controls).lower()}\n" for arm in arms)
    (folder / "plan.toml").write_text(f"name = 'x'\nseeds = {list(seeds)}\n{tables}")
    for arm in arms if begun is None else begun:
        for seed in seeds:
            run_folder(folder / "runs" / arm / f"seed-{seed}" / "run", name="same", seed=seed, **changes)
    return folder
