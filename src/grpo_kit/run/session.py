"""One run from start to end: the caller's side of the loop, with evaluation, files and progress between reports."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grpo_kit.buffers import refresh
from grpo_kit.checkpoints import CheckpointError, all_in, prune, restore, save, state_of
from grpo_kit.checkpoints.state import buffer_of, refuse_what_cannot_be_kept
from grpo_kit.checkpoints.store import remove_later
from grpo_kit.data.report import describe_set
from grpo_kit.diagnostics import low_sample_size
from grpo_kit.grading.overdue import remembering
from grpo_kit.loop import Report, Training
from grpo_kit.mismatch import large_mismatch
from grpo_kit.parts import as_table
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.buffering import fill_buffer, idle_policies
from grpo_kit.run.engines import refuse_absent
from grpo_kit.run.evaluation import evaluate
from grpo_kit.run.folder import RunFolder
from grpo_kit.run.identity import apart, identity_of
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt
from grpo_kit.run.results import closing_table, number, write_results
from grpo_kit.run.setup import Inputs, close_all, load_policies, longest_row, prompt_stream
from grpo_kit.run.statuses import Statuses
from grpo_kit.samplers import Replay
from grpo_kit.terminal import say


@dataclass(slots=True)
class Session:
    """A run at work."""

    recipe: Recipe
    inputs: Inputs
    policies: Mapping[str, Policy]
    folder: RunFolder
    console: Console
    interrupt: Interrupt = field(default_factory=Interrupt)
    evaluations: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    done: int = 0
    warned: set[str] = field(default_factory=set)
    statuses: Statuses = field(default_factory=Statuses)
    training: Training = field(init=False)
    identity: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Make ready for the first step."""
        self.identity = identity_of(self.recipe, self.inputs)
        if (buffer := buffer_of(self.recipe)) is not None:
            refresh.hold(buffer)
        self.training = Training.begin(self.recipe, self.policies, prompt_stream(self.recipe, self.inputs))
        self.training.looked_at = self.recipe.log_samples

    def run(self) -> int:
        """Train to the end, to Ctrl-C or to a fault; write what there is in every case; the exit code."""
        code = 1
        with self.interrupt.handling(), self._progress() as progress:
            try:
                with remembering(self.folder.overdue):
                    self._train(progress)
                code = 0 if self.done == self.recipe.steps else INTERRUPTED
            except KeyboardInterrupt:
                code = INTERRUPTED
            except (ArithmeticError, ValueError, OSError) as error:  # numbers, reward functions, disks that fail
                self._say(f"stopped: {error}", style="red")
            except BaseException:
                self._end(code)
                raise
            return self._end(code)

    def _train(self, progress: Progress) -> None:
        task, begun_at = progress.add_task("", total=self.recipe.steps, now="starting"), self.done
        if self.done == 0:
            self._evaluate({"step": 0.0})
        while not self.interrupt.asked and self.done < self.recipe.steps:
            report = self.training.advance()
            if self.done == begun_at:
                refuse_what_cannot_be_kept(self.training)
            self._after(report)
            progress.update(task, completed=report.step, now=self._line(report))
            if not self.console.is_terminal and self._is_milestone(report.step):
                self._say(f"step {report.step}/{self.recipe.steps}  {self._line(report)}")
            if report.step % self.recipe.checkpoints.every == 0:
                self._checkpoint()
        if self.done > begun_at and self.done % self.recipe.checkpoints.every:
            self._checkpoint()

    def _after(self, report: Report) -> None:
        self.done = report.step
        self._warn_of_missing_rewards(report)
        self._warn_once("sample size", report.step, low_sample_size(report.metrics))
        self._warn_once("numerics of the sampler", report.step, large_mismatch(report.metrics))
        for line in report.skipped:
            self._say(line, style="yellow")
        recipe, tokenizer = self.recipe, next(iter(self.policies.values())).tokenizer
        full = self.folder.samples(report, recipe.log_samples, tokenizer, max_gib=recipe.max_log_gib)
        self._warn_once("samples.jsonl", report.step, full)
        self.training.looked_at = 0 if full else recipe.log_samples
        self.folder.statuses(report, self.statuses, tokenizer)
        settings, last = self.recipe.evaluation, report.step == self.recipe.steps
        if settings is not None and (last or report.step % settings.every == 0):
            self._evaluate(report.metrics)
        else:
            self.folder.metrics(report.metrics)

    def _checkpoint(self) -> None:
        """Save all that the run needs to go on from here, and remove checkpoints that are not to stay."""
        folder, settings = self.folder.checkpoints, self.recipe.checkpoints
        save(folder, self.done, {"session": self.state(), **state_of(self.training)})
        keep = frozenset[int]() if settings.best is None else self._best_step(settings.best)
        prune(folder, last=settings.keep, keep=keep)
        self._tidy_buffer()

    def _tidy_buffer(self) -> None:
        """Remove the rows that a buffer was written anew with and no checkpoint refers to."""
        if (buffer := buffer_of(self.recipe)) is None:
            return
        states: list[Any] = []
        for own in all_in(self.folder.checkpoints):
            with suppress(CheckpointError, KeyError, TypeError):  # no run goes on from a damaged one
                states.append(own.part("loop")["buffer"])
        refresh.keep_only(buffer, states)

    def state(self) -> dict[str, Any]:
        """What the run itself has to remember, beside its training."""
        return {
            "evaluations": [[step, dict(found)] for step, found in self.evaluations],
            "warned": sorted(self.warned),
            "statuses": [[*key, count] for key, count in self.statuses.counts.items()],
            "lines": self.folder.lengths(),
            "identity": self.identity,
            "recipe": as_table(self.recipe),
        }

    def restore(self, parts: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: training, remembered things, and the lines of its files.

        Everything that may not fit comes first; then later checkpoints go, whose lines go with them.
        """
        own = parts["session"]
        same = own["recipe"].get("evaluation") == as_table(self.recipe).get("evaluation")
        if found := apart(own["identity"], self.identity, questions=same):
            raise CheckpointError(f"the run began with something else: {'; '.join(found)}")
        restore(self.training, {name: part for name, part in parts.items() if name != "session"})
        self.done = self.training.step
        remove_later(self.folder.checkpoints, self.done)
        for line in self.folder.cut_back(own["lines"]):
            self._say(line, style="yellow")
        self._tidy_buffer()
        self.evaluations = [(step, found) for step, found in own["evaluations"]]
        self.warned = set(own["warned"])
        self.statuses.counts.update({(name, status): count for name, status, count in own["statuses"]})

    def _best_step(self, metric: str) -> frozenset[int]:
        """The step of the checkpoint that is there whose metric is the highest; none where no line has it."""
        there = {own.step for own in all_in(self.folder.checkpoints)}
        lines = [line for line in self.folder.read_metrics() if line.get(metric) is not None]
        if not lines:
            self._warn_once("best", self.done, f"checkpoints.best: no line of metrics.jsonl has '{metric}' so far")
        found = [(line[metric], line["step"]) for line in lines if line["step"] in there]
        return frozenset({max(found)[1]}) if found else frozenset()

    def _warn_once(self, about: str, step: int, warning: str | None) -> None:
        if warning is not None and about not in self.warned:
            self.warned.add(about)
            self._say(f"step {step}: {warning}", style="yellow")

    def _warn_of_missing_rewards(self, report: Report) -> None:
        """Say, once a learner, that a step had no reward at all for it: nothing was learned from its rows."""
        for name in self.recipe.learners:
            if report.metrics.get(f"reward/{name}/missing") == 1 and name not in self.warned:
                self.warned.add(name)
                statuses = {
                    key
                    for part in self.recipe.learners[name].rewards
                    for key in report.experience.rewards.components[part].statuses
                }
                self._say(
                    f"step {report.step}: every reward of '{name}' is missing ({', '.join(sorted(statuses))}); "
                    "such rows teach nothing. Look at statuses.jsonl.",
                    style="yellow",
                )

    def _evaluate(self, metrics: Mapping[str, float]) -> None:
        """Write metrics together with an evaluation of the present weights, where the recipe has one."""
        found: dict[str, float] = {}
        try:
            if self.inputs.questions is not None:
                found = evaluate(self.recipe, self.policies, self.inputs.questions)
                self.evaluations.append((int(metrics["step"]), found))
        finally:  # an evaluation that is cut short does not lose the step's own metrics
            if found or metrics["step"]:
                self.folder.metrics({**metrics, **found})

    def _line(self, report: Report) -> str:
        """Rewards, latest accuracies and speed, short enough for two policies in 80 columns."""
        rewards = {name: report.metrics.get(f"reward/{name}/total") for name in self.recipe.learners}
        parts = ["reward", *(f"{name} {value:.3f}" for name, value in rewards.items() if value is not None)]
        if self.evaluations:
            step, latest = self.evaluations[-1]
            parts += [
                "accuracy" if step == report.step else f"accuracy (step {step})",
                *(number(latest[f"eval/{name}/accuracy"]) for name in self.recipe.learners),
            ]
        return " ".join([*parts, f"{report.metrics['time/tokens_per_second'] / 1000:.1f}k tokens/s"])

    def _say(self, text: str, style: str | None = None) -> None:
        """A line of our own."""
        say(self.console, text, style=style)

    def _is_milestone(self, step: int) -> bool:
        return step % max(1, self.recipe.steps // 10) == 0 or step == self.recipe.steps

    def _progress(self) -> Progress:
        columns = [
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[now]}", markup=False),
            BarColumn(bar_width=None),
        ]
        return Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)

    def close(self) -> None:
        """Stop engines, and let another process work in the folder."""
        try:
            close_all(self.policies)
        finally:
            self.folder.close()

    def _end(self, code: int) -> int:
        """Write the results and say how it ended; the exit code. What was learned is on disk before engines stop."""
        try:
            whole = write_results(self.recipe, self.policies, self.folder, lambda fault: self._say(fault, style="red"))
            if len(self.evaluations) > 1:
                heading, table = closing_table(self.recipe, self.evaluations)
                self._say(heading)
                self.console.print(table)
            if found := self.statuses.summary():
                self._say(f"rewards that are not ok: {found}; the first of each are in statuses.jsonl")
            code = code or int(not whole)
            ending = f" (ended after step {self.done} of {self.recipe.steps}; --resume goes on)" if code else ""
            self._say(f"run folder: {self.folder.path}{ending}")
        finally:
            self.close()
        return code


def start(recipe: Recipe, inputs: Inputs, source: str, *, out: Path | None, console: Console) -> Session:
    """Load the policies, fill the buffer of a replay sampler, create the run folder; a mistake leaves no run folder.

    KeyboardInterrupt when Ctrl-C ended the filling; the finished shards are kept.
    """
    refuse_absent(recipe)
    for line in describe(inputs):
        say(console, line)
    return prepare(recipe, inputs, lambda: RunFolder(recipe, source, out), console)


def prepare(recipe: Recipe, inputs: Inputs, folder: Callable[[], RunFolder], console: Console) -> Session:
    """Load the policies, fill the buffer, and make or open the run folder after all that."""
    idle = idle_policies(recipe, inputs)
    policies = load_policies(recipe, idle=idle, longest=longest_row(recipe, inputs))
    try:
        if isinstance(recipe.sampler, Replay):
            if not fill_buffer(recipe, inputs, policies, console=console, interrupt=Interrupt()):
                raise KeyboardInterrupt
            idle = idle_policies(recipe, inputs)
            close_all({name: policies.pop(name) for name in idle & policies.keys()})
        return Session(recipe, inputs, policies, folder(), console)
    except BaseException:  # Ctrl-C, too
        close_all(policies)
        raise


def refuse_existing(out: Path | None) -> None:
    """ValueError when the run folder asked for is there already, or cannot be made."""
    if out is not None and os.path.lexists(out):
        raise ValueError(f"--out {out} exists already; nothing was written. Give a new folder.")
    parent = next(folder for folder in (out or Path("runs") / "x").absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ValueError(f"no run folder can be made in {parent}; nothing was written. Give another --out.")


def describe(inputs: Inputs) -> list[str]:
    """What was found in the data: how many prompts, which rows were skipped (the first five named), what repeats."""
    lines = [f"{len(inputs.prompts)} prompts to train on"]
    lines += describe_set("data", inputs.prompts)
    if inputs.questions is not None:
        lines[0] += f", {len(inputs.questions)} to evaluate on"
        lines += describe_set("evaluation.data", inputs.questions, inputs.prompts)
    return lines
