"""`grpo-kit overlap`: how far the initial student proposes what its teacher would, measured on its rollouts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grpo_kit.batch import Rollouts, Sampled
from grpo_kit.data import PromptSet
from grpo_kit.offers import call_with
from grpo_kit.overlap.advice import THRESHOLD, Advice, advise
from grpo_kit.overlap.choice import Choice, choose
from grpo_kit.overlap.measure import Measured, join, measure
from grpo_kit.overlap.picture import draw
from grpo_kit.overlap.ratio import LIKELIEST, tokens_compared
from grpo_kit.overlap.report import lines
from grpo_kit.overlap.result import Overlap, conclude
from grpo_kit.parts import as_table
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.folder import versions
from grpo_kit.run.inputs import Inputs
from grpo_kit.run.session import INTERRUPTED
from grpo_kit.run.setup import close_all, load_policies, open_recipe
from grpo_kit.samplers import Sampler
from grpo_kit.terminal import say, visible_json

REPORT, PICTURE = "overlap.json", "overlap.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What was asked for, as on the command line.

    Attributes:
        recipe: a recipe file, or the name of a shipped one.
        student: name of a policy; None for the one that samples.
        teacher: name of a policy; None for the one that the student's learner reads.
        prompts: the first so many of the recipe's data.
        top_k: likeliest tokens compared; None for 64, or a quarter of a smaller vocabulary.
        threshold: overlap from which on-policy distillation is recommended, in (0, 1).
        seed: of the rollouts; None for the recipe's.
        out: folder for `overlap.json` and `overlap.png`.
        settings: `a.b=c` put over the recipe.
        allow_code: let the recipe name Python functions.
    """

    recipe: str
    student: str | None = None
    teacher: str | None = None
    prompts: int = 256
    top_k: int | None = None
    threshold: float = THRESHOLD
    seed: int | None = None
    out: Path | None = None
    settings: tuple[str, ...] = ()
    allow_code: bool = False


def overlap_command(wanted: Wanted, console: Console) -> int:
    """Measure, print, and write the files asked for.

    Returns:
        The exit code: 0, or 130 when Ctrl-C ended it; the prompts finished by then are reported.

    Raises:
        ValueError: says what is wrong with what was asked, before any weights are loaded where that can be known.
    """
    if not 0 < wanted.threshold < 1:
        raise ValueError(
            f"--threshold {wanted.threshold:g}: an overlap is between 0 and 1. Give a number between them."
        )
    _refuse_existing(wanted.out)
    recipe, inputs = open_recipe(wanted.recipe, settings=wanted.settings, allow_code=wanted.allow_code)
    choice = choose(recipe, wanted.student, wanted.teacher)
    _refuse_served(recipe, choice)
    if wanted.out is not None:
        _make(wanted.out)
    policies = _load(recipe, choice)
    try:
        return _measured(wanted, recipe, inputs, choice, policies, console)
    finally:
        close_all(policies)


def _measured(
    wanted: Wanted, recipe: Recipe, inputs: Inputs, choice: Choice, policies: Mapping[str, Policy], console: Console
) -> int:
    """Measure with the policies loaded, and report; the exit code."""
    student, teacher = policies[choice.student], policies[choice.teacher]
    k = _likeliest(wanted.top_k, student.vocabulary, console)
    if choice.writers and choice.student not in choice.writers:
        say(console, f"the rollouts are those of '{choice.writers[0]}', not of the student '{choice.student}'")
    count = min(wanted.prompts, len(inputs.prompts))
    if count < wanted.prompts:
        say(console, f"the data has {count} prompts; all of them are used")
    seed = recipe.seed if wanted.seed is None else wanted.seed
    done, code, finished = 0, 0, list[Measured]()
    try:
        with _progress(console) as progress:
            bar = progress.add_task("", total=count)
            for rollouts in _sampled(choice.sampler, policies, inputs.prompts, recipe.prompts_per_step, count, seed):
                finished.append(measure(student, teacher, rollouts, k))
                done = min(count, done + recipe.prompts_per_step)
                progress.update(bar, completed=done)
    except KeyboardInterrupt:
        code = INTERRUPTED
        say(console, f"stopped: {done} of {count} prompts were measured" + (" and are reported" if done else ""))
    if finished:
        found = conclude(join(finished), student=student.name, teacher=teacher.name, k=k, vocabulary=student.vocabulary)
        advice = advise(found, wanted.threshold)
        for line in lines(found, advice):
            say(console, line)
        if wanted.out is not None:
            _write(wanted.out, {"settings": asdict(wanted), "seed": seed, "recipe": as_table(recipe)}, found, advice)
            draw(found, wanted.threshold, wanted.out / PICTURE)
            for name in (REPORT, PICTURE):
                say(console, f"written: {wanted.out / name}")
    return code


def _refuse_served(recipe: Recipe, choice: Choice) -> None:
    """ValueError where a policy's distributions are not to be had here."""
    for name in (choice.student, choice.teacher):
        if recipe.policies[name].engine is not None:
            raise ValueError(
                f"policies.{name}.engine: the overlap is measured on whole distributions, which an engine does not "
                "give. Remove it from the recipe that is compared."
            )


def _sampled(
    sampler: Sampler, policies: Mapping[str, Policy], prompts: PromptSet, at_once: int, count: int, seed: int
) -> Iterator[Rollouts]:
    """Rollouts of the first `count` prompts, `at_once` prompts at a time."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, count, at_once):
        batch = prompts.take(range(start, min(start + at_once, count)), first_group=start)
        rollouts = call_with(sampler, batch, policies, generator, epoch=0.0)
        yield rollouts.rollouts if isinstance(rollouts, Sampled) else rollouts


def _progress(console: Console) -> Progress:
    columns = [MofNCompleteColumn(), TextColumn("prompts"), TimeRemainingColumn(compact=True), BarColumn()]
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _load(recipe: Recipe, choice: Choice) -> dict[str, Policy]:
    """The policies that are needed; a follower's is the one that it follows, too."""
    needed = {choice.student, choice.teacher, *getattr(choice.sampler, "reads", recipe.policies)}
    needed |= {follows for name in needed if (follows := recipe.policies[name].follows) is not None}
    return load_policies(replace(recipe, policies={n: spec for n, spec in recipe.policies.items() if n in needed}))


def _likeliest(asked: int | None, vocabulary: int, console: Console) -> int:
    """How many tokens are compared; ValueError where that says nothing."""
    if asked is None:
        k = tokens_compared(vocabulary)
        if k == LIKELIEST:
            return k
        say(console, f"top {k}, a quarter of the vocabulary of {vocabulary} tokens, instead of the paper's {LIKELIEST}")
        return k
    if not 1 <= asked < vocabulary:
        raise ValueError(
            f"--top-k {asked}: the vocabulary has {vocabulary} tokens, and all of them overlap always. Give 1 to "
            f"{vocabulary - 1}."
        )
    return asked


def _refuse_existing(out: Path | None) -> None:
    there = [name for name in (REPORT, PICTURE) if out is not None and (out / name).exists()]
    if there:
        raise ValueError(f"--out {out} has {' and '.join(there)} already; nothing was written. Give another folder.")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out} cannot be made: {error.strerror}. Give another folder.") from None


def _write(out: Path, origin: Mapping[str, Any], found: Overlap, advice: Advice) -> None:
    """Write all numbers with what they came from, as JSON."""
    result = asdict(found) | {"cut": found.cut}
    content = {**origin, "versions": versions(), "result": result, "advice": asdict(advice)}
    text = visible_json(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=str))
    (out / REPORT).write_text(text + "\n", encoding="utf-8")
