"""`run --resume`: a run that ended early goes on to the bit, whatever ended it."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from grpo_kit import DatasetRows, PolicySpec, RecipeError, Server, read_recipe
from grpo_kit.checkpoints import CheckpointError, all_in
from grpo_kit.config import find_recipe
from grpo_kit.grading import grade
from grpo_kit.grading.overdue import remembering
from grpo_kit.loop import Training
from grpo_kit.policies import load_policy
from grpo_kit.run.folder import RunFolder, RunFolderError
from grpo_kit.run.identity import identity_of
from grpo_kit.run.resume import differences, resume
from grpo_kit.run.session import Session, start
from grpo_kit.run.setup import load_inputs
from test_disk import no_file_beyond

SETTINGS = ["data.rows=64", "steps=6", "prompts_per_step=2", "sampler.samples=4", "evaluation.questions=2"]
SETTINGS += ["evaluation.samples=2", "evaluation.every=2", "checkpoints.every=2", "log_samples=2"]
KL = "learners.small.terms.kl={kind='divergence', to='frozen', divergence={kind='sampled_kl'}, weight=0.1}"
QUIET = Console(quiet=True)


def begun(folder, *settings, name="grpo"):
    recipe = read_recipe(name, settings=[*SETTINGS, *settings])
    return start(recipe, load_inputs(recipe), find_recipe(name).read_text(), out=folder, console=QUIET)


def content(folder):
    """The hash of every weight file, and every line without its times."""
    found = {}
    for path in sorted((folder / "policies").rglob("*.safetensors")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in ("metrics.jsonl", "samples.jsonl", "statuses.jsonl"):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        found[name] = [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    assert begun(folder).run() == 0
    return content(folder)


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_run_that_was_asked_to_stop_goes_on_to_the_bit(whole, tmp_path, monkeypatch, after):
    session, advance = begun(tmp_path / "out"), Training.advance

    def stopping(training):
        session.interrupt.asked = training.step + 1 == after
        return advance(training)

    monkeypatch.setattr(Training, "advance", stopping)
    assert session.run() == 130
    monkeypatch.undo()
    assert all_in(tmp_path / "out" / "checkpoints")[0].step == after
    assert resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET).run() == 0
    assert content(tmp_path / "out") == whole


@pytest.mark.parametrize("after", [1, 4])
def test_a_run_that_died_goes_on_from_its_last_checkpoint(whole, tmp_path, after):
    """Lines behind the checkpoint, a torn one too, are dropped; without a checkpoint it begins again."""
    session = begun(tmp_path / "out", "checkpoints.every=3")
    for step in range(1, after + 1):
        session._after(session.training.advance())
        if step == 3:
            session._checkpoint()
    session.close()
    with (tmp_path / "out" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "learner/sm')
    session = resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET)
    assert session.done == (0 if after == 1 else 3)
    assert session.run() == 0
    found = content(tmp_path / "out")
    if after == 4:  # the evaluation before the first step was left out above
        assert found["metrics.jsonl"] == whole["metrics.jsonl"][1:]
        found["metrics.jsonl"] = whole["metrics.jsonl"]
    assert found == whole


def test_checkpoints_stay_as_asked(tmp_path):
    assert begun(tmp_path / "out", "checkpoints.every=1", "checkpoints.best=eval/small/accuracy").run() == 0
    steps = [own.step for own in all_in(tmp_path / "out" / "checkpoints")]
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    best = max((line["eval/small/accuracy"], line["step"]) for line in lines[1:] if "eval/small/accuracy" in line)
    assert steps == sorted({6, 5, best[1]}, reverse=True)


def test_what_may_be_changed_and_what_not(tmp_path):
    folder = tmp_path / "out"
    assert begun(folder, "steps=2").run() == 0
    before = content(folder)
    (folder / "policies" / "small" / "model.safetensors").unlink()  # as if it had died while these were written
    assert resume(folder, settings=[], allow_code=False, console=QUIET).run() == 0
    assert content(folder) == before
    with pytest.raises(ValueError, match=r"step 2 is done, and steps is 1\. Give 2 or more"):
        resume(folder, settings=["steps=1"], allow_code=False, console=QUIET)
    with pytest.raises(RecipeError) as caught:
        resume(folder, settings=["seed=5", "learners.small.optimizer.lr=1.0"], allow_code=False, console=QUIET)
    assert [line.split(";")[0] for line in caught.value.mistakes] == [
        "seed: 0 -> 5",
        f"learners.small.optimizer.lr: {read_recipe('grpo').learners['small'].optimizer.lr} -> 1.0",
    ]
    assert resume(folder, settings=["steps=3"], allow_code=False, console=QUIET).run() == 0
    assert tomllib.loads((folder / "recipe.resolved.toml").read_text())["steps"] == 3  # need not be said again
    session = resume(folder, settings=[], allow_code=False, console=QUIET)
    assert session.done == 3
    session.close()


def died_after(folder, step, *settings):
    """A run of grpo with a checkpoint after every step, whose process died after one."""
    session = begun(folder, "checkpoints.every=1", "checkpoints.keep=9", *settings)
    for _ in range(step):
        session._after(session.training.advance())
        session._checkpoint()
    session.close()


def test_checkpoints_behind_the_one_taken_are_removed_so_that_none_stands_in_the_way(tmp_path):
    died_after(tmp_path / "out", 3)
    (damaged, *_) = all_in(tmp_path / "out" / "checkpoints")
    (damaged.path / "session.json").write_text("{")
    said = io.StringIO()
    session = resume(tmp_path / "out", settings=["checkpoints.keep=1"], allow_code=False, console=Console(file=said))
    assert "is skipped: session.json is not what was written" in " ".join(said.getvalue().split())
    assert [own.step for own in all_in(tmp_path / "out" / "checkpoints")] == [2, 1]
    session._after(session.training.advance())
    session._checkpoint()
    session.close()
    (latest,) = all_in(tmp_path / "out" / "checkpoints")
    assert (latest.step, latest.fault()) == (3, None)


def test_evaluation_may_be_changed(tmp_path):
    """Other questions, more samples: the closing table has what both evaluations have."""
    folder, said = tmp_path / "out", io.StringIO()
    assert begun(folder, "steps=2").run() == 0
    settings = ["steps=3", "evaluation.samples=4", "evaluation.questions=3"]
    assert resume(folder, settings=settings, allow_code=False, console=Console(file=said, width=1000)).run() == 0
    (row,) = (line for line in said.getvalue().splitlines() if "pass@4" in line)
    assert "- -> " in row


def test_lines_that_are_gone_are_said_and_stop_nothing(tmp_path):
    """To delete the samples is what comes to mind when a disk is full."""
    died_after(tmp_path / "out", 2)
    (tmp_path / "out" / "samples.jsonl").write_text('{"step": 1}\n{"st')
    metrics, said = (tmp_path / "out" / "metrics.jsonl").read_text(), io.StringIO()
    session = resume(tmp_path / "out", settings=[], allow_code=False, console=Console(file=said, width=1000))
    session.close()
    assert "samples.jsonl has 16 bytes, and had" in said.getvalue()
    assert (tmp_path / "out" / "samples.jsonl").read_text() == '{"step": 1}\n'
    assert (tmp_path / "out" / "metrics.jsonl").read_text() == metrics
    assert session.done == 2


def test_a_recipe_that_was_edited_in_the_folder_is_compared_with_the_checkpoint(tmp_path):
    died_after(tmp_path / "out", 1)
    file = tmp_path / "out" / "recipe.resolved.toml"
    file.write_text(file.read_text().replace("max_grad_norm = 1.0", "max_grad_norm = 0.5"))
    with pytest.raises(RecipeError, match=r"learners.small.optimizer.max_grad_norm: 1.0 -> 0.5; the checkpoints are"):
        resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET)


def test_an_engine_is_no_other_policy():
    recipe = read_recipe("opd", settings=["data.rows=8"])
    served = replace(recipe.policies["large"], engine=Server(url="http://localhost:1"))
    inputs = load_inputs(recipe)
    other = replace(recipe, policies={**recipe.policies, "large": served})
    assert identity_of(other, inputs) == identity_of(recipe, inputs)


def test_what_no_checkpoint_can_hold_is_said_after_the_first_step(tmp_path):
    said, session = io.StringIO(), begun(tmp_path / "out")
    session.console = Console(file=said, width=1000)
    session.training.memory.states["rewards.own"] = {"seen": object()}
    assert session.run() == 1
    assert "stopped: what a part remembers: rewards.own.seen: object cannot be in a checkpoint" in said.getvalue()
    assert session.done == 0


def test_a_run_asked_to_stop_at_any_moment_leaves_a_checkpoint(tmp_path, monkeypatch):
    session, after = begun(tmp_path / "out", "checkpoints.every=100"), Session._after

    def late(self, report):
        after(self, report)
        self.interrupt.asked = report.step == 2

    monkeypatch.setattr(Session, "_after", late)
    assert session.run() == 130
    assert [own.step for own in all_in(tmp_path / "out" / "checkpoints")] == [2]


def test_damaged_timeouts_end_a_run_that_lets_go_of_its_folder(tmp_path):
    said, session = io.StringIO(), begun(tmp_path / "out")
    session.console = Console(file=said, width=1000)
    session.folder.overdue.write_text("[1]\n")
    assert session.run() == 1
    assert "timeouts.jsonl is damaged" in said.getvalue()
    RunFolder.reopen(tmp_path / "out").close()


def test_the_best_may_be_the_last_and_a_metric_that_is_not_there_is_said(tmp_path):
    said = io.StringIO()
    session = begun(tmp_path / "out", "checkpoints.every=4", "checkpoints.keep=1", "checkpoints.best=step", "steps=5")
    assert session.run() == 0
    assert [own.step for own in all_in(tmp_path / "out" / "checkpoints")] == [5]
    session = begun(tmp_path / "typo", "checkpoints.best=reward/smal/total", "steps=2")
    session.console = Console(file=said, width=1000)
    assert session.run() == 0
    assert said.getvalue().count("checkpoints.best: no line of metrics.jsonl has 'reward/smal/total' so far") == 1


def test_rows_written_anew_after_the_checkpoint_are_removed(tmp_path):
    settings = ["data.rows=64", "steps=4", "evaluation.questions=1", "evaluation.samples=1", "checkpoints.every=1"]
    settings += ["prompts_per_step=2", f"sampler.buffer={tmp_path / 'buffer'}", "sampler.prompts=4"]
    settings += ["sampler.refresh={every=2}", "checkpoints.keep=1"]
    recipe = read_recipe("semi_opd", settings=settings)
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=QUIET)
    for _ in range(3):
        session._after(session.training.advance())
        session._checkpoint()
    session.close()
    (own,) = (tmp_path / "buffer" / "refreshed").iterdir()
    assert [path.name for path in own.iterdir()] == ["step-3"]
    shutil.copytree(own / "step-3", own / "step-4")
    resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET).close()
    assert [path.name for path in own.iterdir()] == ["step-3"]
    shutil.rmtree(own)
    with pytest.raises(CheckpointError, match=r"does not fit: the buffer .* which the run used, is gone"):
        resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET)


def test_where_no_checkpoint_is_whole_nothing_is_touched(tmp_path):
    folder, said = tmp_path / "out", io.StringIO()
    assert begun(folder, "steps=2", "learners.small.optimizer.decay=linear").run() == 0
    console = Console(file=said, width=1000)
    resume(folder, settings=["steps=3"], allow_code=False, console=console).close()
    assert "changed: steps: 2 -> 3" in said.getvalue()
    assert "the learning rate of 'small' falls (linear) to 0 at the new last step" in said.getvalue()
    (own,) = all_in(folder / "checkpoints")
    (own.path / "loop.json").write_text("{}")
    before = content(folder)
    with pytest.raises(CheckpointError, match=r"no checkpoint is whole\. .*loop.json is not what was written.* Remove"):
        resume(folder, settings=[], allow_code=False, console=QUIET)
    assert content(folder) == before


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no run folder, since it has no recipe.resolved.toml"):
        resume(tmp_path, settings=[], allow_code=False, console=QUIET)


def test_one_process_at_a_time_works_in_a_folder(tmp_path):
    session = begun(tmp_path / "out")
    with pytest.raises(RunFolderError, match="another process is at work in it"):
        resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET)
    session.close()
    resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET).close()


def test_other_weights_or_prompts_than_the_run_began_with_are_named(tmp_path):
    weights, data = tmp_path / "weights", tmp_path / "data.jsonl"
    one = load_policy("frozen", PolicySpec(model="tiny:small"), live=False)
    one.save(weights)
    rows = [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(8)]
    data.write_text("\n".join(map(json.dumps, rows)))
    recipe = read_recipe("grpo", settings=[*SETTINGS, "steps=1", f"policies.frozen={{model='{weights}'}}", KL])
    recipe = replace(recipe, data=DatasetRows(path=str(data)), evaluation=None)
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=QUIET)
    assert session.run() == 0
    next(one.model.parameters()).data += 1
    one.save(weights)
    data.write_text("\n".join(map(json.dumps, [*rows[:-1], {"prompt": "2+2=", "answer": "4"}])))
    with pytest.raises(
        CheckpointError, match=r"with something else: policies.frozen is .* there and .* here"
    ) as caught:
        resume(tmp_path / "out", settings=[], allow_code=False, console=QUIET)
    assert "data.prompts is" in str(caught.value)
    assert "policies.small" not in str(caught.value)


def test_a_disk_that_is_full_ends_a_run_that_goes_on_later_to_the_bit(whole, tmp_path, monkeypatch):
    """Every file is refused its bytes behind a size, from some step on: a line, then every file of the results."""
    folder, said = tmp_path / "out", io.StringIO()
    session, advance = begun(folder), Training.advance
    session.console = Console(file=said, width=1000)
    with ExitStack() as stack:

        def filling(training):
            report = advance(training)
            if report.step == 4:
                stack.enter_context(no_file_beyond((folder / "metrics.jsonl").stat().st_size + 40))
            return report

        monkeypatch.setattr(Training, "advance", filling)
        assert session.run() == 1
    monkeypatch.undo()
    text = said.getvalue()
    assert "stopped: " in text
    assert "samples.jsonl cannot be written: " in text
    assert "policies/small cannot be written" in text
    assert "ended after step 4 of 6; --resume goes on" in text
    assert [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [0, 1, 2, 3]
    assert not list((folder / "policies").iterdir())
    assert [own.step for own in all_in(folder / "checkpoints")] == [2]
    assert resume(folder, settings=[], allow_code=False, console=QUIET).run() == 0
    assert content(folder) == whole


def test_the_sample_log_has_a_budget(tmp_path):
    said = io.StringIO()
    session = begun(tmp_path / "out", f"max_log_gib={3000 / 2**30}", "checkpoints.every=6")
    session.console = Console(file=said, width=1000)
    assert session.run() == 0
    lines = (tmp_path / "out" / "samples.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted([*range(1, steps[-1] + 1)] * 2)
    assert 1 <= steps[-1] < 6
    assert said.getvalue().count("samples.jsonl has max_log_gib") == 1


def test_what_was_given_up_is_given_up_again(tmp_path):
    """So that a run that goes on has the rewards that it had, however fast the machine is now."""
    gold, answer = "7", r"so \boxed{3+4}"
    file = tmp_path / "timeouts.jsonl"
    with remembering(file):
        assert grade(gold, answer).status == "ok"
    file.write_text(json.dumps(["mathematics", 2.0, gold, "3+4"]) + '\n["mathematics", 2.0, "7", "2')
    with remembering(file):
        assert grade(gold, answer).status == "timeout"
        assert grade(gold, answer, timeout=3.0).status == "ok"
        hard = r"so \boxed{4^{5 \cdot 10^{9}}}"
        assert grade("2^{10^{10}}", hard, timeout=0.3).status == "timeout"
    assert grade(gold, answer).status == "ok"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(found) == 2
    assert found[1][:2] == ["mathematics", 0.3]
    with remembering(file):
        started = time.monotonic()
        assert grade("2^{10^{10}}", hard, timeout=0.3).status == "timeout"
        assert time.monotonic() - started < 0.1
    file.write_text("[1]\n")
    with pytest.raises(ValueError, match=r"timeouts\.jsonl is damaged"), remembering(file):
        pass


def test_differences_name_their_places():
    before, after = {"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 2, "c": [1]}, "e": "x"}
    assert list(differences(before, after)) == [("a.b", "1 -> 2"), ("d", "2 -> nothing"), ("e", "nothing -> 'x'")]


def test_sigterm_ends_a_run_after_its_step_with_a_checkpoint(tmp_path):
    command = [str(Path(sys.executable).with_name("grpo-kit")), "run", "grpo", "--out", str(tmp_path / "out")]
    for setting in (*SETTINGS, "steps=500", "checkpoints.every=500"):
        command += ["--set", setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = tmp_path / "out" / "metrics.jsonl"
        end = time.monotonic() + 90
        while time.monotonic() < end and not (lines.exists() and lines.read_text().count("\n") > 2):
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    (own,) = all_in(tmp_path / "out" / "checkpoints")
    assert own.fault() is None
