"""A training that stops and goes on in another process does to the bit what it would have done."""

import re
from pathlib import Path

import pytest
import torch

from grpo_kit import read_recipe
from grpo_kit.checkpoints import CheckpointError, newest, save
from grpo_kit.checkpoints.state import restore, state_of
from grpo_kit.loop import Training
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream

SHORT = [
    "steps=4",
    "prompts_per_step=3",
    "data.rows=8",
    "evaluation.questions=1",
    "learners.small.optimizer.decay=cosine",
]
FOLLOWER = "policies.slow={ follows='small', decay=0.5 }"
KL = "learners.small.terms.kl={ kind='divergence', to='slow', divergence={ kind='sampled_kl' }, weight=0.1 }"
RECIPES = {
    "grpo": ["grpo", *SHORT, "sampler.samples=4", "learners.small.epochs=2", "learners.small.mini_batches=2"],
    "a follower": ["grpo", *SHORT, "sampler.samples=4", FOLLOWER, KL],
    "adapters": ["grpo", *SHORT, "sampler.samples=4", "policies.small.lora.rank=4"],
    "adapters and a follower": [
        "grpo", *SHORT, "sampler.samples=4", "policies.small.lora.rank=4", FOLLOWER, KL,
    ],
    "codistill": ["codistill", *SHORT, "sampler.samples=6", "selection.rule.keep=4"],
    "opd": ["opd", *SHORT],
    "a curriculum": ["grpo", *SHORT, "sampler.samples=4", "curriculum.reward=correctness"],
}  # fmt: skip


def training(described):
    name, *settings = RECIPES[described]
    recipe = read_recipe(name, settings=settings)
    return Training.begin(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe)))


def numbers(report):
    return {key: value for key, value in report.metrics.items() if not key.startswith("time/")}


def weights(of):
    return {name: [w.detach().clone() for w in policy.model.parameters()] for name, policy in of.policies.items()}


def same(one, other):
    return one.keys() == other.keys() and all(one[key] == other[key] or one[key] != one[key] for key in one)


@pytest.mark.parametrize("described", RECIPES)
def test_it_goes_on_to_the_bit(described, tmp_path):
    whole = training(described)
    expected = [numbers(whole.advance()) for _ in range(4)]
    first = training(described)
    for number in range(2):
        assert same(numbers(first.advance()), expected[number])
    save(tmp_path, first.step, state_of(first))
    second = training(described)
    torch.rand(3)  # the global generator plays no part
    restore(second, newest(tmp_path)[0].read())
    for number in range(2, 4):
        assert same(numbers(second.advance()), expected[number])
    ends = weights(whole), weights(second)
    assert all(torch.equal(*pair) for name in ends[0] for pair in zip(ends[0][name], ends[1][name], strict=True))
    assert [p.version for p in whole.policies.values()] == [p.version for p in second.policies.values()]


def test_the_state_of_another_recipe_is_refused():
    with pytest.raises(CheckpointError, match=r"it holds loop, optimizer-large, .* and the recipe has"):
        restore(training("grpo"), state_of(training("codistill")))
    with pytest.raises(CheckpointError, match=r"policy 'small' has other weights: .*lora"):
        restore(training("grpo"), state_of(training("adapters")))


@pytest.mark.parametrize("part", ["generator", "prompts", "memory", "versions"])
def test_b102_b105_every_part_of_the_state_matters(part):
    """Where one is not restored, what follows differs: so that none is kept for nothing."""
    described = "a curriculum" if part == "prompts" else "grpo"
    first = training(described)
    first.advance()
    state = state_of(first)
    whole = numbers(first.advance())
    second, fresh = training(described), state_of(training(described))
    state["loop"][part] = fresh["loop"][part]
    restore(second, state)
    if part == "memory":
        assert not state["loop"]["memory"]
    else:
        assert not same(numbers(second.advance()), whole)


def test_the_loop_of_the_docs_goes_on_where_it_was(tmp_path):
    """docs/concepts.md, word for word: it is killed after the second step, and begun again."""
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Training.begin" in block)
    name, *settings = RECIPES["grpo"]
    recipe = read_recipe(name, settings=settings)

    def given():
        return {"recipe": recipe, "policies": load_policies(recipe), "folder": tmp_path} | {
            "prompts": prompt_stream(recipe, load_inputs(recipe))
        }

    whole = training("grpo")
    reports = [numbers(whole.advance()) for _ in range(4)]
    killed = code.replace("    save(", "    if report.step == 3:\n        raise InterruptedError\n    save(")
    with pytest.raises(InterruptedError):
        exec(killed, given())
    names = given()
    exec(code, names)
    assert same(numbers(names["report"]), reports[-1])


def test_a_run_made_longer_has_the_rate_of_its_new_schedule_at_once():
    """A finished linear run is at rate 0, from which its first new step would learn nothing."""
    name, *settings = RECIPES["grpo"]
    settings = [own.replace("cosine", "linear").replace("steps=4", "steps=2") for own in settings]
    once = ["learners.small.optimizer.warmup_steps=0", "learners.small.epochs=1", "learners.small.mini_batches=1"]

    def of(steps):
        recipe = read_recipe(name, settings=[*settings, *once, f"steps={steps}"])
        return Training.begin(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe)))

    short, long = of(2), of(4)
    short.advance()
    short.advance()
    peak = long.recipe.learners["small"].optimizer.lr
    assert short.learners["small"].optimizer.param_groups[0]["lr"] == 0
    restore(long, state_of(short))
    assert long.learners["small"].optimizer.param_groups[0]["lr"] == peak * 0.5
    assert [long.advance().metrics["learner/small/lr"] for _ in range(2)] == [peak * 0.5, peak * 0.25]
