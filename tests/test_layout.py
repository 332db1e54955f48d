"""The house rules that a test can hold: file sizes, names, and that recipes and examples run."""

import ast
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
import torch
from rich.console import Console

from grpo_kit import Arithmetic, PolicySpec, read_recipe
from grpo_kit.config import find_recipe
from grpo_kit.policies import load_policy
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
SHORT = ["steps=2", "prompts_per_step=2", "evaluation.questions=8", "evaluation.samples=2"]


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*SOURCES, *EXAMPLES], ids=name_of)
def test_a_source_file_is_one_idea(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    assert ast.get_docstring(ast.parse(text)), "the docstring is the sentence you would say aloud"
    assert not {*path.relative_to(ROOT).with_suffix("").parts} & {"utils", "common", "base", "core", "helpers"}


@pytest.mark.parametrize("path", [*SOURCES, *TESTS, *EXAMPLES], ids=name_of)
def test_annotations_are_real_objects(path):
    # Shapes are checked at run time, which needs the annotations themselves.
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert not any(node.module == "__future__" for node in imports)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "codistill", "codistill_paper"])
def test_a_recipe_takes_two_steps(name, tmp_path):
    recipe = read_recipe(name, settings=SHORT)
    session = start(
        recipe, load_inputs(recipe), find_recipe(name).read_text(), out=tmp_path / "out", console=Console(quiet=True)
    )
    before = {learner: session.policies[learner].version for learner in recipe.learners}
    assert session.run() == 0
    assert [line["step"] for line in session.folder.read_metrics()] == [0, 1, 2]
    assert all(session.policies[learner].version == before[learner] + 2 for learner in recipe.learners)


def test_gsm8k_takes_two_steps_on_a_file_and_a_model_of_ones_own(tmp_path):
    file = tmp_path / "problems.jsonl"
    arithmetic = Arithmetic(rows=8)()
    problems = [{"question": row["prompt"], "answer": f"so it is\n#### {row['answer']}"} for row in arithmetic]
    file.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    settings = [*SHORT, "policies.student.model=tiny:small", "sampler.max_new_tokens=48"]
    settings += [f"data.path='{file}'", "data.name=", "data.chat=false", "data.template={prompt}"]
    recipe = read_recipe("gsm8k", settings=settings)
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=Console(quiet=True))
    assert session.inputs.prompts.columns["answer"] == tuple(arithmetic["answer"])
    assert session.run() == 0
    metrics = session.folder.read_metrics()
    assert len(metrics) == 3
    assert metrics[-1]["reward/student/format"] > 0


def test_the_example_trains(monkeypatch):
    (path,) = [path for path in EXAMPLES if path.stem == "custom_loop"]
    assert len(path.read_text().splitlines()) <= 60
    spec = importlib.util.spec_from_file_location("custom_loop", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "Arithmetic", lambda: Arithmetic(rows=64))
    policy = load_policy("small", PolicySpec(model="tiny:small"), live=True)
    before = [weight.clone() for weight in policy.model.parameters()]
    means = module.train(policy, steps=2, prompts_per_step=4)
    assert len(means) == 2
    assert all(0 <= mean <= 1 for mean in means)
    assert policy.version == 2
    assert not all(torch.equal(old, new) for old, new in zip(before, policy.model.parameters(), strict=True))


def test_the_makefile_names_what_it_promises():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {line.split()[0] for line in listed.splitlines()}
    assert targets >= {"run", "check", "format", "lint", "types", "test", "docs", "fix", "clean"}
