"""`grpo-kit compare`: recipes by seeds in worker processes, tuned first where there are grids, then summed up."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout
from rich.console import Console

from grpo_kit.compare.jobs import Job, Jobs
from grpo_kit.compare.plan import Plan, default_folder
from grpo_kit.compare.pool import Pool
from grpo_kit.compare.reading import read_plan
from grpo_kit.compare.ready import Ready, make_ready
from grpo_kit.compare.statistics import refuse_without_libraries
from grpo_kit.compare.summary import summarize
from grpo_kit.compare.tables import document, markdown, show
from grpo_kit.disk import reason, whole_folder, write_text
from grpo_kit.parts import as_table
from grpo_kit.run.folder import versions
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt
from grpo_kit.terminal import say

PLAN, READY, CHOSEN = "plan.toml", "ready.json", "chosen.json"


def compare(plan: Plan, *, workers: int, out: Path | None, allow_code: bool, console: Console) -> int:
    """Make the folder of a comparison and run it; the exit code, 1 where a run has no result.

    ValueError lists every mistake of the plan and of its recipes before anything runs.
    """
    refuse_without_libraries()
    folder = out or default_folder(plan.name)
    if os.path.lexists(folder):
        raise ValueError(f"{folder} exists already; nothing was written. Give a new --out, or --resume {folder}.")
    ready = make_ready(plan, allow_code=allow_code)
    for line in ready.notes:
        say(console, line, style="yellow")
    try:
        with whole_folder(folder, replace=False) as inside:
            _write(inside, ready)
    except OSError as error:
        raise ValueError(f"the folder {folder} cannot be made: {reason(error)}. Give another --out.") from None
    return _work(folder, workers=workers, allow_code=allow_code, console=console)


def go_on(folder: Path, *, workers: int, allow_code: bool, console: Console) -> int:
    """Go on with a comparison: runs that ended stay, those that were cut short resume, failed ones are tried again."""
    refuse_without_libraries()
    if not (folder / PLAN).is_file():
        raise ValueError(f"--resume {folder}: no comparison, since it has no {PLAN}. Give its folder.")
    return _work(folder, workers=workers, allow_code=allow_code, console=console)


def _write(folder: Path, ready: Ready) -> None:
    """The plan, the recipes as they are now, and what was worked out about them."""
    (folder / PLAN).write_text(tomli_w.dumps(as_table(ready.plan)), encoding="utf-8")
    (folder / "recipes").mkdir()
    for name, source in ready.sources.items():
        (folder / "recipes" / f"{name}.toml").write_text(source, encoding="utf-8")
    known = {
        "matched": ready.matched,
        "steps": {name: recipe.steps for name, recipe in ready.recipes.items()},
        "notes": ready.notes,
    }
    (folder / READY).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n", encoding="utf-8")


def _work(folder: Path, *, workers: int, allow_code: bool, console: Console) -> int:
    lock = FileLock(folder / "lock", timeout=0)
    try:
        with lock:
            return _run_all(folder, workers=workers, allow_code=allow_code, console=console)
    except Timeout:
        raise ValueError(f"{folder}: another process is at work in it. Wait for it, or end it.") from None


def _run_all(folder: Path, *, workers: int, allow_code: bool, console: Console) -> int:
    plan = read_plan(str(folder / PLAN))
    known = json.loads((folder / READY).read_text(encoding="utf-8"))
    jobs = Jobs(plan=plan, root=folder, matched=known["matched"], steps=known["steps"], allow_code=allow_code)
    interrupt = Interrupt()
    pool = Pool(workers=workers, console=console, interrupt=interrupt)
    with interrupt.handling():
        chosen, notes = dict[str, Any](), list[str](known["notes"])
        if plan.tuning is not None:
            tuning = list(jobs.tuning())
            if (folder / CHOSEN).exists():  # runs that are reported were made by it
                chosen = json.loads((folder / CHOSEN).read_text(encoding="utf-8"))
            else:
                _run_jobs(pool, [job for _, _, job in tuning], "tuning")
                if interrupt.asked:
                    return _stopped(folder, console)
                chosen = choose(plan, tuning)
                write_text(folder / CHOSEN, json.dumps(chosen, indent=1) + "\n")
            failed = [job for _, _, job in tuning if job.state == "failed"]
            notes += [f"tuning, {job.label}: its point is out, since the run failed: {job.failure()}" for job in failed]
        lost = [name for name in plan.tuned if name not in chosen]
        failures = [(name, seed, "no point of its grid has a result") for name in lost for seed in plan.seeds]
        numbers = {name: found["number"] for name, found in chosen.items()}
        reported = [own for own in jobs.reported(numbers) if own[0] not in lost]
        whole = _run_jobs(pool, [job for _, _, job in reported], "runs")
    summary = summarize(plan, reported, chosen, notes, failures)
    write_text(folder / "summary.json", document(summary))
    write_text(folder / "summary.md", markdown(summary))
    show(summary, console)
    if not whole:
        return _stopped(folder, console)
    again = f"; --resume {folder} tries those without a result again" if summary.failures else ""
    say(console, f"comparison: {folder} (summary.md, summary.json){again}")
    return 1 if summary.failures else 0


def _run_jobs(pool: Pool, jobs: Sequence[Job], stage: str) -> bool:
    for job in jobs:
        job.refuse_another()
    return pool.run(jobs, stage)


def choose(plan: Plan, tuning: list[tuple[str, int, Job]]) -> dict[str, Any]:
    """The point of each tuned arm with the highest mean metric; a point with a failed run is out.

    An arm none of whose points is left is not among them.
    """
    scores: dict[str, dict[int, list[float]]] = {}
    for arm, number, job in tuning:
        found = _score(job, plan.metric_of(arm)) if job.state == "ended" else math.nan
        scores.setdefault(arm, {}).setdefault(number, []).append(found)
    chosen: dict[str, Any] = {}
    for arm, by_point in scores.items():
        means = {number: math.fsum(values) / len(values) for number, values in by_point.items()}
        whole = {number: mean for number, mean in means.items() if not math.isnan(mean)}
        if not whole:
            continue
        best, points = max(whole, key=lambda number: (whole[number], -number)), plan.arms[arm].points
        listed = [[points[number], None if math.isnan(mean) else mean] for number, mean in means.items()]
        chosen[arm] = {"number": best, "point": points[best], "metric": plan.metric_of(arm), "scores": listed}
    return chosen


def _score(job: Job, metric: str) -> float:
    """The metric at the last evaluation of a run; of a control the one it was asked at."""
    held_out: Mapping[str, float] = job.result()["held_out"]
    if metric in held_out:
        return held_out[metric]
    found = [line[f"eval/{metric}"] for line in job.metrics() if line.get(f"eval/{metric}") is not None]
    return found[-1] if found else math.nan


def _stopped(folder: Path, console: Console) -> int:
    say(console, f"stopped; what was done is kept: --resume {folder} goes on")
    return INTERRUPTED
