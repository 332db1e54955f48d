"""What a run leaves behind: every file, every key, weights that load."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_kit import read_recipe
from grpo_kit.config import find_recipe, parse_recipe
from grpo_kit.run.folder import PACKAGES, RunFolder
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"
FILES = Path(__file__).parents[2] / "docs" / "files.md"
SETTINGS = [
    "data.rows=64",
    "steps=2",
    "prompts_per_step=2",
    "sampler.samples=4",
    "selection.rule.keep=2",
    "evaluation.questions=4",
    "evaluation.samples=2",
    "evaluation.every=1",
    "log_samples=3",
    "learners.large.mini_batches=2",
    "learners.small.terms.entropy={kind='entropy'}",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps of codistill, its session and its folder."""
    recipe = read_recipe("codistill", settings=SETTINGS)
    out = tmp_path_factory.mktemp("run") / "out"
    source = find_recipe("codistill").read_text()
    session = start(recipe, load_inputs(recipe), source, out=out, console=Console(quiet=True))
    assert session.run() == 0
    return session


def lines(run, name):
    return [json.loads(line) for line in (run.folder.path / name).read_text().splitlines()]


def test_every_file_is_there_and_described(run):
    described = re.findall(r"^\| `([^`]+)` \|", FILES.read_text().split("## A line")[0], re.MULTILINE)
    assert {path.name for path in run.folder.path.iterdir()} == {name.split("/")[0] for name in described}


def test_the_recipe_is_kept_as_given_and_as_read(run):
    assert (run.folder.path / "recipe.toml").read_text() == find_recipe("codistill").read_text()
    resolved = tomllib.loads((run.folder.path / "recipe.resolved.toml").read_text())
    again, mistakes, _ = parse_recipe(resolved)
    assert (again, mistakes) == (run.recipe, [])
    assert resolved["learners"]["small"]["optimizer"]["weight_decay"] == 0.0
    assert read_recipe(str(run.folder.path / "recipe.resolved.toml")) == run.recipe


def test_versions_name_what_decides_the_numbers(run):
    versions = json.loads((run.folder.path / "versions.json").read_text())
    assert list(versions) == ["python", "torch threads", *PACKAGES]
    assert versions["torch"] == torch.__version__


def described_keys(recipe):
    """A pattern of every key that docs/metrics.md describes, with the names of a recipe."""
    learners = "|".join(recipe.learners)
    names = {
        "learner": learners,
        "policy": learners,
        "teacher": "|".join(recipe.policies),
        "component": "|".join(recipe.rewards),
        "status": r"\w+",
        "term": "|".join(term for learner in recipe.learners.values() for term in learner.terms),
        "reason": "eos|stop|length|error",
        "k": r"\d+",
    }
    keys = re.findall(r"^\| `([^`]+)` \|", METRICS.read_text(), re.MULTILINE)
    return {key: re.compile(re.sub(r"<(\w+)>", lambda match: f"(?:{names[match[1]]})", key)) for key in keys}


def test_every_metric_is_described(run):
    patterns = described_keys(run.recipe).values()
    written = {key for line in lines(run, "metrics.jsonl") for key in line}
    assert [key for key in sorted(written) if not any(pattern.fullmatch(key) for pattern in patterns)] == []


def test_every_described_metric_is_written(run):
    written = {key for line in lines(run, "metrics.jsonl") for key in line}
    absent = {key for key, pattern in described_keys(run.recipe).items() if not any(map(pattern.fullmatch, written))}
    # The tiny pair may box every answer of a short run; the others are those of tables that this recipe has not.
    of_tables = {"skipped", "sampler/groups_kept", "sampler/groups_short", "reward/<learner>/greedy"}
    of_tables |= {"data/pass_rate", "data/seen", "data/effective_prompts", "coefficient/<component>"}
    of_tables |= {"sampler/too_old", "sampler/refreshed", "sampler/buffer_age", "sampler/overlap", "time/renew"}
    of_tables |= {"sampler/tokens_renewed", "flops/<policy>/renew"}
    of_tables |= {"sampler/synced/<policy>", "sampler/written/<policy>"}
    of_tables |= {"learner/<learner>/<term>/coefficient", "learner/<learner>/<term>/kl"}
    of_tables |= {"learner/<learner>/<term>/log_ratio_of_<teacher>"}
    assert absent <= {"reward/<learner>/<component>_<status>"} | of_tables


def test_metrics_have_a_line_a_step_with_the_evaluations_asked_for(run):
    metrics = lines(run, "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert all("eval/small/accuracy" in line for line in metrics)
    assert all(not key.startswith(("sampler/", "learner/")) for key in metrics[0])
    assert metrics[1]["learner/large/version"] == 2
    assert metrics[1]["time/step"] == pytest.approx(
        sum(
            seconds
            for key, seconds in metrics[1].items()
            if key.startswith("time/") and key not in ("time/step", "time/tokens_per_second")
        )
    )


def test_samples_hold_the_signals_of_every_token(run):
    samples = lines(run, "samples.jsonl")
    assert [line["step"] for line in samples] == [1, 1, 1, 2, 2, 2]
    documented = re.findall(r"^\| `([^`]+)` \|", FILES.read_text().split("## A line")[1], re.MULTILINE)
    tokenizer = run.policies["small"].tokenizer
    for line in samples:
        assert list(line) == documented
        length = len(line["tokens"])
        assert length > 0
        assert len(line["behavior"]) == len(line["logprobs"]["small"]) == len(line["logprobs"]["large"]) == length
        # On-policy, so the writer's and the scorer's numbers agree; the file has five decimals.
        assert line["logprobs"]["small"] == pytest.approx(line["behavior"], abs=1e-4)
        assert tokenizer.decode(line["tokens"], skip_special_tokens=True) == line["completion"]
        assert line["rewards"].keys() == line["statuses"].keys() == {"correctness", "kd"}
        assert line["rewards"]["kd"] == pytest.approx(
            sum(
                large - small for large, small in zip(line["logprobs"]["large"], line["logprobs"]["small"], strict=True)
            )
            / 48,
            abs=1e-4,
        )


@pytest.mark.parametrize("name", ["small", "large"])
def test_the_saved_policy_is_the_trained_one(run, name):
    folder = run.folder.path / "policies" / name
    saved = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    trained = run.policies[name].model.state_dict()
    before = AutoModelForCausalLM.from_pretrained(
        Path(run.policies[name].model.config._name_or_path), dtype=torch.float32
    ).state_dict()
    assert saved.keys() == trained.keys()
    assert all(torch.equal(saved[key], trained[key]) for key in trained)
    assert any(not torch.equal(saved[key], before[key]) for key in trained)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == run.policies[name].tokenizer.get_vocab()


def test_folders_of_one_second_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe("grpo")
    first, second = RunFolder(recipe, "", None), RunFolder(recipe, "", None)
    assert first.path != second.path
    assert first.path.parent == second.path.parent == Path("runs")
    assert first.path.name.startswith("grpo-")


def test_a_number_that_is_not_there_is_null(tmp_path):
    folder = RunFolder(read_recipe("grpo"), "", tmp_path / "out")
    folder.metrics({"step": 3.0, "reward/small/total": float("nan")})
    assert (folder.path / "metrics.jsonl").read_text() == '{"step": 3, "reward/small/total": null}\n'
    assert folder.read_metrics() == [{"step": 3, "reward/small/total": None}]


def test_an_existing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be made: File exists\. Give another --out\."):
        RunFolder(read_recipe("grpo"), "", tmp_path)
    assert list(tmp_path.iterdir()) == []
