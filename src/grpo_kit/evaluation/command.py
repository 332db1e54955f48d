"""`grpo-kit eval`: measure a model, or what a run trained, on questions with known answers."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grpo_kit.data.report import describe_set
from grpo_kit.evaluation.measure import Completion, Stopwatch, measure
from grpo_kit.evaluation.plan import Task, Wanted, plan
from grpo_kit.evaluation.questions import COLUMN, Asking
from grpo_kit.evaluation.report import show, write
from grpo_kit.evaluation.result import Result, conclude, votes
from grpo_kit.grading import grade_all
from grpo_kit.policies import Policy, load_policy
from grpo_kit.rewards import Correctness
from grpo_kit.run.folder import versions
from grpo_kit.run.session import INTERRUPTED
from grpo_kit.samplers import TransformersSampler
from grpo_kit.terminal import say, visible, visible_json


def eval_command(
    model: str,
    *,
    data: Sequence[str],
    columns: Sequence[str] = (),
    policy: str | None = None,
    samples: int = 1,
    temperature: float | None = None,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    questions: int | None = None,
    seed: int = 0,
    template: str | None = None,
    system: str | None = None,
    chat: bool | None = None,
    stop: Sequence[str] = (),
    few_shot: Path | None = None,
    shots: int | None = None,
    strict: bool = False,
    rows_per_batch: int = 64,
    device: str = "auto",
    dtype: str | None = None,
    out: Path | None = None,
    completions: Path | None = None,
    console: Console,
) -> int:
    """Measure, print, and write the files asked for; see `Wanted` for what each argument means.

    Returns:
        The exit code: 0, or 130 when Ctrl-C ended it; the sets finished by then are reported.

    Raises:
        ValueError: with every mistake on a line of its own, before any weights are loaded or files written.
    """
    asking = Asking(
        template=template,
        system=system,
        chat=chat,
        stop=tuple(stop) or None,
        few_shot=str(few_shot) if few_shot is not None else None,
        shots=shots,
    )
    wanted = Wanted(
        model=model,
        data=tuple(data),
        columns=tuple(columns),
        policy=policy,
        samples=samples,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        questions=questions,
        seed=seed,
        asking=asking,
        strict=strict,
        rows_per_batch=rows_per_batch,
        device=device,
        dtype=dtype,
        out=out,
        completions=completions,
    )
    return evaluate(wanted, console)


def evaluate(wanted: Wanted, console: Console) -> int:
    """Do what is wanted; the exit code."""
    tasks = plan(wanted)
    for task in tasks:
        say(console, f"{task.policy} on {task.data}: {len(task.questions)} questions, {_manner(task, wanted)}")
        if task.policy == tasks[0].policy:
            for line in describe_set(task.data, task.questions):
                say(console, line)
    results: list[Result] = []
    code = 0
    loaded: Policy | None = None
    try:
        for task in tasks:
            if loaded is None or loaded.name != task.policy:
                loaded = None  # one model at a time in memory
                loaded = load_policy(task.policy, task.spec, live=False)
            results.append(_run(task, loaded, wanted, console))
    except KeyboardInterrupt:
        code = INTERRUPTED
        say(console, f"stopped: {len(results)} of {len(tasks)} evaluations were finished and are reported")
    if results:
        show(results, console)
        if wanted.out is not None:
            manners = [asdict(task.asking) for task in tasks]
            write(wanted.out, asdict(wanted) | {"temperature": wanted.heat}, versions(), results, manners)
    for path in (wanted.out, wanted.completions):
        if path is not None and path.exists():
            say(console, f"written: {path}")
    return code


def _run(task: Task, policy: Policy, wanted: Wanted, console: Console) -> Result:
    sampler = TransformersSampler(
        policy=task.policy,
        samples=wanted.samples,
        max_new_tokens=task.max_new_tokens,
        temperature=wanted.heat,
        top_p=wanted.top_p,
        stop=task.asking.stop or (),
        rows_per_batch=wanted.rows_per_batch,
    )
    watch, found = Stopwatch(), list[Completion]()
    with _progress(console) as progress:
        bar = progress.add_task("", total=len(task.questions), now=visible(f"{task.policy} on {task.data}"))
        for batch in measure(
            policy,
            task.questions,
            sampler=sampler,
            reward=Correctness(column=COLUMN, strict=wanted.strict),
            samples=wanted.samples,
            at_once=max(1, wanted.rows_per_batch // wanted.samples),
            seed=wanted.seed,
            strict=wanted.strict,
            watch=watch,
        ):
            found += batch
            if wanted.completions is not None:
                _append(wanted.completions, task, batch)
            progress.update(bar, completed=len(found) // wanted.samples)
    watch.lap()
    voted = votes(found, wanted.samples, same_answers) if wanted.samples > 1 else []
    watch.grading += watch.lap()
    return conclude(
        found,
        voted=voted,
        samples=wanted.samples,
        policy=task.policy,
        data=task.data,
        skipped=[str(fault) for fault in task.questions.skipped],
        max_new_tokens=task.max_new_tokens,
        sampling_seconds=watch.sampling,
        grading_seconds=watch.grading,
    )


def same_answers(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether the grader calls the two answers of each pair the same; no verdict is a no."""
    grades = grade_all([one for one, _ in pairs], [f"\\boxed{{{other}}}" for _, other in pairs], strict=True)
    return [grade.value == 1 for grade in grades]


def _append(path: Path, task: Task, batch: Sequence[Completion]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for one in batch:
            line: dict[str, Any] = {"policy": task.policy, "data": task.data} | one._asdict()
            line |= one.verdict._asdict()
            del line["verdict"]
            file.write(visible_json(json.dumps(line, ensure_ascii=False)) + "\n")


def _manner(task: Task, wanted: Wanted) -> str:
    """How the questions are put, in a line."""
    asked = "chat" if task.asking.chat else "plain text"
    drawn = "greedy" if wanted.heat == 0 else f"{wanted.samples} completions each at temperature {wanted.heat:g}"
    drawn += f", top-p {wanted.top_p:g}" if wanted.top_p < 1 and wanted.heat > 0 else ""
    return f"{asked}, {drawn}, up to {task.max_new_tokens} tokens, template {task.asking.template!r}"


def _progress(console: Console) -> Progress:
    now = TextColumn("{task.fields[now]}", markup=False)
    columns = [MofNCompleteColumn(), TimeRemainingColumn(compact=True), now, BarColumn()]
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
