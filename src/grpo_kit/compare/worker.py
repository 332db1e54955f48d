"""One run of a comparison in a process of its own: `python -m grpo_kit.compare.worker FOLDER`."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_kit.buffers import Buffer, Cost
from grpo_kit.commands.consoles import quiet_console
from grpo_kit.compare.jobs import RESULT, Job
from grpo_kit.compare.ready import held_out_questions
from grpo_kit.data import PromptSet
from grpo_kit.disk import write_text
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.buffering import fill_buffer, idle_policies, kept_details
from grpo_kit.run.evaluation import evaluate
from grpo_kit.run.inputs import Inputs
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt
from grpo_kit.run.resume import resume
from grpo_kit.run.session import start
from grpo_kit.run.setup import close_all, load_policies, longest_row, open_recipe
from grpo_kit.samplers import Replay

FILLED = "filled.json"


def work(job: Job, console: Console) -> int:
    """Train, ask the held-out questions, write the result; the exit code. What is there already is not done again."""
    settings = list(job.settings)
    recipe, inputs = open_recipe(job.recipe, settings=settings, allow_code=job.allow_code)
    if isinstance(recipe.sampler, Replay):  # runs of one comparison may not share a buffer, nor its cost
        settings += [f"sampler.buffer={job.folder / 'buffer'}", f"sampler.seed={recipe.seed}"]
        recipe, inputs = open_recipe(job.recipe, settings=settings, allow_code=job.allow_code)
    if job.train:
        if isinstance(recipe.sampler, Replay) and not _fill(recipe, inputs, job.folder, console):
            return INTERRUPTED
        if (job.folder / "run").exists():
            session = resume(job.folder / "run", settings=[], allow_code=job.allow_code, console=console)
        else:
            source = Path(job.recipe).read_text(encoding="utf-8")
            session = start(recipe, inputs, source, out=job.folder / "run", console=console)
        if code := session.run():
            return code
        policies: Mapping[str, Policy] = session.policies
    else:
        policies = load_policies(recipe)
    found: dict[str, float] = {}
    if job.held_out is not None:
        questions = _questions(job, recipe, inputs, settings)
        assert recipe.evaluation is not None
        asked = replace(recipe.evaluation, samples=job.held_out.samples)
        tested = replace(recipe, evaluation=asked)
        found = evaluate(tested, policies, questions, temperature=job.held_out.temperature)
    filled = _json(job.folder / FILLED)
    result = {
        "held_out": {key.removeprefix("eval/"): value for key, value in found.items()},
        "seconds": {"fill": filled.get("seconds", 0.0)},
        "flops": filled.get("flops", {}),
        "tokens_filled": filled.get("tokens", 0),
    }
    write_text(job.folder / RESULT, json.dumps(result, indent=1) + "\n")
    return 0


def _questions(job: Job, recipe: Recipe, inputs: Inputs, settings: list[str]) -> PromptSet:
    """The held-out questions; of a control in tuning the run's own, since a choice may not see the held-out ones."""
    assert job.held_out is not None
    assert inputs.questions is not None
    if job.tuning:
        return inputs.questions
    return held_out_questions(job.recipe, settings, job.held_out, inputs.questions.ids, allow_code=job.allow_code)


def _fill(recipe: Recipe, inputs: Inputs, folder: Path, console: Console) -> bool:
    """Fill the buffer and write down what that took: it is a part of the run's cost."""
    before = _json(folder / FILLED)
    if before.get("whole"):
        return True
    policies = load_policies(recipe, idle=idle_policies(recipe, inputs), longest=longest_row(recipe, inputs))
    began = time.perf_counter()
    try:
        whole = fill_buffer(recipe, inputs, policies, console=console, interrupt=Interrupt())
        seconds = time.perf_counter() - began + before.get("seconds", 0.0)
        cost = Cost()
        if whole:
            assert isinstance(recipe.sampler, Replay)
            cost.add_buffer(Buffer(Path(recipe.sampler.buffer)), inputs.prompts, policies, kept_details(recipe))
    finally:
        close_all(policies)
    flops = {f"{policy}/{stage}": count for (policy, stage), count in cost.flops.items()}
    write_text(folder / FILLED, json.dumps({"whole": whole, "seconds": seconds, "tokens": cost.tokens, "flops": flops}))
    return whole


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _end_with(parent: int) -> None:
    """Ask this process to end when its parent is gone: nobody would hear of its result."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Do the job of a folder."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # functions that a recipe names, where code is allowed
    try:
        sys.exit(work(Job.read(Path(sys.argv[1])), quiet_console()))
    except ValueError as error:
        sys.exit(f"stopped: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
