"""What `samples.jsonl` says of tokens is what the learners computed with, and writing it changes nothing."""

import json

import pytest
import torch
from rich.console import Console

import tiny
import tiny_recipe
from grpo_kit import DivergenceMask, loop, read_recipe
from grpo_kit.detail import Detail
from grpo_kit.loop import Training
from grpo_kit.run.sample_lines import rounded, sample_lines
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream
from grpo_kit.terms import PolicyGradient

SHORT = ["data.rows=64", "steps=2", "prompts_per_step=2", "sampler.samples=6", "evaluation.questions=2"]
SHORT += ["evaluation.samples=2", "log_samples=9"]
FIVE_DECIMALS = 6e-6
RECIPES = {
    "codistill": ["codistill", "selection.rule.keep=3"],
    "codistill with cut rows and a correction decided at every update": [
        "codistill",
        "selection.rule.keep=3",
        "learners.large.mask_truncated=true",
        "sampler.max_new_tokens=22",
        "learners.large.terms.policy.correction={kind='product', of=["
        "{kind='importance_weight', level='sequence', high=5.0}, "
        "{kind='divergence_mask', level='token', metric='k1', low=-0.01, high=0.01, at='update'}]}",
    ],
    "grpo with cut rows": ["grpo", "learners.small.mask_truncated=true", "sampler.max_new_tokens=22"],
    "opd": ["opd"],
    "a filter of rows": ["kdrl", "learners.small.terms.policy.where={reward='correctness', at_least=0.5}"],
    "greedy rows": ["remax"],
    "a dataset's rows": ["sft", "evaluation.questions=2"],
}


def begun(described, out=None):
    name, *settings = RECIPES[described]
    short = [own for own in SHORT if not (name == "sft" and "sampler" in own)]
    recipe = read_recipe(name, settings=[*short, *settings])
    return recipe, start(recipe, load_inputs(recipe), "", out=out, console=Console(quiet=True))


@pytest.fixture(params=RECIPES)
def watched(request, tmp_path, monkeypatch):
    """A run's lines by step, and what each learner had in hand before its updates, by step."""
    seen, original = {}, loop.update

    def spy(learner, batch, generator, step, skips):
        own = learner.policy.score_all(
            batch.rollouts, temperature=batch.rollouts.temperature, detail=Detail(entropy=True)
        )
        seen[step, learner.name] = batch, own
        return original(learner, batch, generator, step, skips)

    monkeypatch.setattr(loop, "update", spy)
    recipe, session = begun(request.param, tmp_path / "out")
    assert session.run() == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    return request.param, recipe, lines, seen


def test_signals_are_those_that_the_learners_used(watched):
    described, recipe, lines, seen = watched
    compared = set()
    for step in (1, 2):
        for number, line in enumerate(own for own in lines if own["step"] == step):
            length = len(line["tokens"])
            assert len(line["pieces"]) == length
            for learner, settings in recipe.learners.items():
                batch, scores = seen[step, learner]
                for name, term in settings.terms.items():
                    key, is_gradient = f"{learner}/{name}", isinstance(term, PolicyGradient)
                    assert (key in line["advantage"]) == is_gradient
                    assert (key in line["correction"]) == (is_gradient and term.correction is not None)
                    if number not in batch.numbers:
                        assert line["counted"][key] is None
                        assert line["advantage"].get(key) is None
                        assert line["correction"].get(key) is None
                        compared.add("not trained")
                        continue
                    place = batch.numbers.index(number)
                    counted = batch.applies[name][place, :length]
                    assert line["counted"][key] == counted.int().tolist()
                    compared |= {"counted"} if counted.all() else {"not counted"}
                    if is_gradient:
                        found = values_of(term, batch, batch.frozen[name], scores.logprobs, place)
                        for kind, values in found.items():
                            expected = [
                                float(value) if counts else None
                                for value, counts in zip(values[:length], counted, strict=True)
                            ]
                            assert same(line[kind][key], expected)
                            compared.add(kind)
                if number in batch.numbers:
                    place = batch.numbers.index(number)
                    # Scored in another batch, so that sums come in another order.
                    expected = scores.entropy[place, :length].tolist()
                    assert line["entropy"][learner] == pytest.approx(expected, abs=2e-5, rel=1e-5)
                    assert line["logprobs"][learner] == pytest.approx(
                        scores.logprobs[place, :length].tolist(), abs=2e-5
                    )
    assert compared >= ({"advantage"} if described != "a dataset's rows" else set())
    assert ("not counted" in compared) == ("cut rows" in described or described == "a filter of rows")
    assert ("correction" in compared) == described.startswith("codistill")


def same(found, expected):
    """Whether numbers agree to five decimals, and None stands where it should."""
    return len(found) == len(expected) and all(
        one is other is None or (None not in (one, other) and abs(one - other) <= FIVE_DECIMALS)
        for one, other in zip(found, expected, strict=True)
    )


def values_of(term, batch, frozen, logprobs, place):
    """Advantage and correction of a row, from what was frozen and from the weights before the update."""
    advantage = frozen["advantages"][place].clone()
    for name, scores in frozen.items():
        if name.startswith("teacher/"):
            advantage += scores.logprobs[place] - logprobs[place]
    found = {"advantage": advantage}
    if term.correction is not None:
        weight = frozen["correction"][place].clone()
        for factor in getattr(term.correction, "factors", ()):
            if isinstance(factor, DivergenceMask):
                weight *= factor(logprobs - frozen["behavior"], batch.applies["policy"])[place]
        found["correction"] = weight
    return found


@pytest.mark.parametrize("described", ["codistill", "opd", "greedy rows"])
def test_looking_changes_nothing(described):
    def numbers(looked_at):
        name, *settings = RECIPES[described]
        recipe = read_recipe(name, settings=[*SHORT, *settings])
        policies = load_policies(recipe)
        training = Training.begin(recipe, policies, prompt_stream(recipe, load_inputs(recipe)))
        training.looked_at = looked_at
        reports = [training.advance() for _ in range(2)]
        metrics = [{key: value for key, value in own.metrics.items() if not key.startswith("time/")} for own in reports]
        weights = [weight for own in policies.values() for weight in own.model.state_dict().values()]
        return metrics, weights, training.generator.get_state(), reports

    metrics, weights, chance, reports = numbers(9)
    same, others, generator, plain = numbers(0)
    assert json.dumps(metrics) == json.dumps(same)
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
    assert torch.equal(chance, generator)
    assert "time/look" in reports[0].metrics
    assert "time/look" not in plain[0].metrics
    assert plain[0].row_signals is None
    line = next(sample_lines(plain[0], 1, tiny.tokenizer()))
    assert line["entropy"] == line["advantage"] == line["correction"] == line["counted"] == {}


def test_policies_whose_weights_are_not_here_have_no_entropy(tmp_path):
    """Those of a buffer's teacher, which is not loaded, and its log-probabilities are there."""
    settings = ["data.rows=64", "steps=1", "prompts_per_step=2", "log_samples=2", f"sampler.buffer='{tmp_path / 'b'}'"]
    recipe = read_recipe("semi_opd", settings=[*settings, "evaluation.questions=2", "evaluation.samples=2"])
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=Console(quiet=True))
    assert set(session.policies) == {"small"}
    assert session.run() == 0
    for line in map(json.loads, (tmp_path / "out" / "samples.jsonl").read_text().splitlines()):
        assert set(line["logprobs"]) == {"small", "large"}
        assert set(line["entropy"]) == {"small"}
        gap = [there - own for there, own in zip(line["logprobs"]["large"], line["logprobs"]["small"], strict=True)]
        (advantage,) = line["advantage"].values()
        assert advantage == pytest.approx(gap, abs=2e-5)


def test_rows_without_a_token(monkeypatch):
    """Scoring rows of which none has a token is no fault."""
    recipe, own = tiny_recipe.recipe(), {"small": tiny.policy("small", dtype=torch.float32)}
    rows = tiny.experience(tiny.rollouts([0, 0, 3], [0, 0, 0]), {"task": [0.0, 1.0, 0.5]}, [own["small"]])
    monkeypatch.setattr(loop, "collect", lambda *given: (rows, {}))
    training = Training.begin(recipe, own, prompt_stream(recipe, load_inputs(recipe)))
    training.looked_at = 2
    lines = list(sample_lines(training.advance(), 2, tiny.tokenizer()))
    assert [line["entropy"]["small"] for line in lines] == [[], []]


def test_a_number_that_is_not_finite_is_null():
    assert rounded(torch.tensor([0.123456, torch.nan, torch.inf])) == [0.12346, None, None]
