"""What a comparison found: every arm's numbers a seed, means with intervals, paired differences, and what it cost."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_kit.compare.jobs import Job
from grpo_kit.compare.plan import Plan
from grpo_kit.compare.statistics import Difference, Estimate, area, corrected, difference, estimate
from grpo_kit.evaluation.estimates import sizes

BySeed = Mapping[int, float]
Failure = tuple[str, int, str]
"""Arm, seed and reason of a run without a result."""
COMPARED = ("accuracy", "greedy", "pass@", "entropy", "length", "area")
"""Which metrics are compared, in this order; pass@1 is the accuracy."""
BIGGEST_MISMATCH = 0.01
"""Share by which an amount may differ from the first arm's and still count as matched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One arm's metric: its values, and how far they are from those of each arm that it is held against."""

    arm: str
    values: BySeed
    estimate: Estimate
    differences: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A whole comparison.

    Attributes:
        plan: what was compared.
        chosen: each tuned arm's point, and the mean of the metric at every point.
        metrics: rows by `<policy>/<metric>`, in the order of the arms.
        costs: means over seeds by arm: seconds by stage, tokens, updates, FLOPs by policy.
        failures: arm, seed and reason of each run without a result.
        notes: what is not matched, and which points were lost, a line each.
    """

    plan: Plan
    chosen: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, Sequence[Row]]
    costs: Mapping[str, Mapping[str, float]]
    failures: Sequence[Failure]
    notes: Sequence[str]


def summarize(
    plan: Plan,
    jobs: Sequence[tuple[str, int, Job]],
    chosen: Mapping[str, Mapping[str, Any]],
    notes: Sequence[str],
    failed: Sequence[Failure] = (),
) -> Summary:
    """Everything about the runs that ended; the others are failures, beside those that are known already."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    costs: dict[str, list[dict[str, float]]] = {}
    failures = list(failed)
    for arm, seed, job in jobs:
        if job.state == "ended":
            lines, result = job.metrics(), job.result()
            for key, value in {**result["held_out"], **areas(lines)}.items():
                if value is not None and not math.isnan(value) and _rank(key) is not None and key[-7:] != "/pass@1":
                    values.setdefault(key, {}).setdefault(arm, {})[seed] = value
            costs.setdefault(arm, []).append(cost(lines, result))
        else:
            failures.append((arm, seed, job.failure() if job.state == "failed" else "not run"))
    ordered = sorted(values, key=lambda key: (key.partition("/")[0], _rank(key), key))
    means = {arm: _means(found) for arm, found in costs.items()}
    return Summary(
        plan=plan,
        chosen=chosen,
        metrics={key: _rows(plan, key, values[key]) for key in ordered},
        costs=means,
        failures=failures,
        notes=[*notes, *_unequal(plan, means)],
    )


def areas(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`<policy>/area`: the mean height of each accuracy curve of a run, on its own evaluation questions."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for key, value in line.items():
            if value is not None and (found := re.fullmatch(r"eval/([^/]+)/accuracy", key)):
                curves.setdefault(found[1], []).append((float(line["step"]), float(value)))
    return {f"{policy}/area": area(points) for policy, points in curves.items()}


def cost(lines: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> dict[str, float]:
    """What a run took: `seconds/*`, `tokens/*`, `updates/*` and `flops/*`; the filling of its buffer included."""
    found, renewed = {"seconds/total": 0.0}, 0.0
    steps = [line for line in lines if "time/step" in line]
    for line in steps:
        for key, value in line.items():
            if key.startswith("time/") and key not in ("time/step", "time/tokens_per_second"):
                _add(found, f"seconds/{key.removeprefix('time/')}", value)
            elif key.startswith("flops/"):
                _add(found, key, value)
            elif key == "sampler/tokens":
                _add(found, "tokens/sampled", line["time/tokens_per_second"] * line["time/sample"])
            elif key == "sampler/tokens_renewed":
                renewed += value
            elif match := re.fullmatch(r"learner/([^/]+)/tokens", key):
                _add(found, f"tokens/trained/{match[1]}", value)
        found["seconds/total"] += line["time/step"]
    for key, value in (steps[-1] if steps else {}).items():
        if match := re.fullmatch(r"learner/([^/]+)/version", key):
            found[f"updates/{match[1]}"] = value
    if filled := result["seconds"]["fill"]:
        found["seconds/fill"] = filled
        found["seconds/total"] += filled
        found["tokens/sampled"] = result["tokens_filled"] + renewed  # rows of a buffer are not sampled again
        for key, value in result["flops"].items():
            _add(found, f"flops/{key}", value)
    return found


def _rows(plan: Plan, key: str, by_arm: Mapping[str, BySeed]) -> list[Row]:
    """One metric of every arm that has it, with the differences of one family, corrected together."""
    arms, margin = [name for name in plan.arms if name in by_arm], plan.equivalence.get(key)
    pairs = plan.pairs(arms)
    found = corrected([difference(by_arm[other], by_arm[name], margin) for name, other in pairs])
    return [
        Row(
            arm=name,
            values=by_arm[name],
            estimate=estimate(list(by_arm[name].values())),
            differences={other: own for (arm, other), own in zip(pairs, found, strict=True) if arm == name},
        )
        for name in arms
    ]


def _unequal(plan: Plan, costs: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Tokens and updates of arms that are not those of the first, a line each."""
    arms = [name for name, arm in plan.arms.items() if name in costs and arm.train]
    for name in arms[1:]:
        for key, there in costs[arms[0]].items():
            here = costs[name].get(key)
            if here is None or not key.startswith(("tokens/", "updates/")) or not there:
                continue
            if abs(here / there - 1) > BIGGEST_MISMATCH:
                yield f"not matched: {name}: {key} is {here / there:.2f} times that of {arms[0]}"


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for one in found for key in one)
    return {key: math.fsum(one.get(key, 0.0) for one in found) / len(found) for key in keys}


def _add(found: dict[str, float], key: str, value: float | None) -> None:
    found[key] = found.get(key, 0.0) + (value or 0.0)


def compared(samples: int) -> list[str]:
    """The metrics of a policy that are compared, where so many completions of each held-out question are taken."""
    found = [name for name in COMPARED if not name.endswith("@")]
    return found + [f"pass@{k}" for k in sizes(samples) if k > 1]


def better_when_higher(samples: int) -> list[str]:
    """Those of an evaluation in a run by which a point of a grid may be chosen."""
    return ["accuracy", "greedy", *(f"pass@{k}" for k in sizes(samples))]


def _rank(key: str) -> int | None:
    metric = key.rpartition("/")[2]
    return next(
        (
            place
            for place, name in enumerate(COMPARED)
            if metric == name or (name.endswith("@") and metric.startswith(name))
        ),
        None,
    )
