"""Sampler against trainer log-probabilities: the numbers by hand, of our own sampler, and of one that is off."""

import math
from dataclasses import dataclass, replace
from io import StringIO
from typing import ClassVar

import pytest
import torch
from rich.console import Console

import tiny
import tiny_recipe
from grpo_kit import (
    Behavior,
    DivergenceTerm,
    Mixed,
    Policy,
    PolicySpec,
    Prompts,
    Replay,
    ReverseKL,
    Sampling,
    Scores,
    Share,
    SignalKey,
    Signals,
    TransformersSampler,
    Writer,
    train,
)
from grpo_kit.mismatch import LARGE_MEAN, LARGE_SHARE, large_mismatch, of_mismatch
from grpo_kit.policies import load_policy
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream


def rows(off, *, versions=(3,), writer=None, policy="small"):
    """Rows whose sampler says so much more than the trainer of each token, and the trainer's signals."""
    off = torch.tensor(off)
    mask = torch.ones_like(off, dtype=torch.bool)
    found = tiny.rollouts([off.shape[1]] * len(off), [0] * len(off))
    trainer = torch.full_like(off, -2.0)
    writers = tuple(Writer(policy=policy, version=version, sampling=Sampling()) for version in versions)
    writer = torch.zeros_like(mask, dtype=torch.long) if writer is None else torch.tensor(writer)
    behavior = Behavior(writers=writers, writer=writer, logprobs=trainer * 0 - 9, model_logprobs=trainer + off)
    return replace(found, behavior=behavior), Signals({SignalKey("small", 3): Scores(logprobs=trainer)})


def test_the_numbers_of_four_tokens():
    found = of_mismatch(*rows([[0.1, -0.3], [0.0, 0.8]]))
    assert found.pop("sampler/age/small") == 0
    assert found == pytest.approx(
        {
            "sampler/mismatch/small/mean": (0.1 + 0.3 + 0.8) / 4,
            "sampler/mismatch/small/max": 0.8,
            "sampler/mismatch/small/k1": (0.1 - 0.3 + 0.8) / 4,
            "sampler/mismatch/small/k3": sum(math.exp(-d) - 1 + d for d in (0.1, -0.3, 0.0, 0.8)) / 4,
            "sampler/mismatch/small/outside": 1 / 4,  # 0.8 > log 2 = 0.69
        },
        abs=1e-6,
    )
    assert of_mismatch(*rows([[-0.8, 0.0]]))["sampler/mismatch/small/outside"] == 0.5


def test_only_tokens_of_the_scored_weights_count():
    found = of_mismatch(*rows([[9.0, 0.5, 0.1]], versions=(1, 3), writer=[[0, 1, 1]]))
    assert found["sampler/mismatch/small/mean"] == pytest.approx(0.3)
    assert found["sampler/age/small"] == pytest.approx(2 / 3)
    assert of_mismatch(*rows([[9.0]], versions=(1,))) == {"sampler/age/small": 2.0}


def test_unknown_tokens_are_left_out_and_others_are_not_compared():
    found = of_mismatch(*rows([[math.nan, 0.5]]))
    assert found["sampler/mismatch/small/mean"] == pytest.approx(0.5)
    assert of_mismatch(*rows([[math.nan]])) == {"sampler/age/small": 0.0}
    own, signals = rows([[0.5]])
    assert of_mismatch(replace(own, behavior=replace(own.behavior, model_logprobs=None)), signals) == {
        "sampler/age/small": 0.0
    }
    assert of_mismatch(*rows([[0.5]], policy="large")) == {}  # its writer is not scored
    assert of_mismatch(replace(own, behavior=None), signals) == {}
    assert of_mismatch(own, Signals({})) == {}
    padded = replace(own, mask=torch.tensor([[False]]))
    assert of_mismatch(padded, signals) == {}


def test_greedy_rows_at_another_temperature_are_not_compared():
    own, signals = rows([[9.0, 0.25]], versions=(3, 3), writer=[[0, 1]])
    greedy, sampled = (Writer(policy="small", version=3, sampling=Sampling(temperature=heat)) for heat in (0, 0.7))
    own = replace(own, behavior=replace(own.behavior, writers=(greedy, sampled)))
    assert of_mismatch(own, signals)["sampler/mismatch/small/max"] == pytest.approx(0.25)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("small", PolicySpec(model="tiny:small"), live=False)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_p": 0.9}, {"temperature": 0.7, "min_p": 0.1}])
def test_our_own_sampler_is_the_policy(options, policy):
    ids = tuple(tuple(policy.tokenizer(text)["input_ids"]) for text in ("3+8-5=", "0-6+4+6="))
    asked = Prompts(ids=ids, groups=(0, 1), columns={})
    sampler = TransformersSampler(policy="small", samples=16, max_new_tokens=48, greedy=True, **options)
    written = sampler(asked, {"small": policy}, torch.Generator().manual_seed(0))
    scores = policy.score_all(written, temperature=written.temperature)
    found = of_mismatch(written, Signals({SignalKey("small", 0): scores}))
    assert found["sampler/mismatch/small/mean"] < 1e-5
    assert found["sampler/mismatch/small/max"] < 1e-4
    assert abs(found["sampler/mismatch/small/k1"]) < 1e-5
    assert 0 <= found["sampler/mismatch/small/k3"] < 1e-9
    assert found["sampler/mismatch/small/outside"] == 0
    wrong = of_mismatch(written, Signals({SignalKey("small", 0): policy.score_all(written, temperature=2.0)}))
    assert wrong["sampler/mismatch/small/mean"] > LARGE_MEAN
    assert large_mismatch(wrong) is not None


def test_what_is_too_much_is_named():
    def said(mean, outside):
        return large_mismatch({"sampler/mismatch/a/mean": mean, "sampler/mismatch/a/outside": outside, "sampler/x": 9})

    assert said(LARGE_MEAN, LARGE_SHARE) is None
    assert said(math.nan, 0) is None
    assert said(0.2, 0.02).startswith("sampler/mismatch/a/mean is 0.2, above 0.05: for the same weights")
    assert said(0.001, 0.02).startswith("sampler/mismatch/a/outside is 0.02, above 0.01: ")
    assert large_mismatch({}) is None


@dataclass(frozen=True)
class Foreign:
    """A sampler of other numerics: it says something else of each token than the policy does."""

    samples: int = 4
    by: float = 0.3
    foreign_numerics: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("small",)
    max_new_tokens: ClassVar[int] = 4

    def __call__(self, prompts, policies, generator):
        own = TransformersSampler(policy="small", samples=self.samples, max_new_tokens=4)
        found = own(prompts, policies, generator)
        behavior = replace(found.behavior, model_logprobs=found.behavior.model_logprobs - self.by)
        return replace(found, behavior=behavior)


def test_a_policy_with_a_foreign_sampler_is_scored():
    recipe = tiny_recipe.recipe()
    reinforced = replace(
        recipe,
        learners={"small": tiny_recipe.learner(terms={"kl": DivergenceTerm(divergence=ReverseKL(), to="large")})},
        policies={name: PolicySpec(model=f"tiny:{name}") for name in ("small", "large")},
    )
    assert reinforced.scored() == ("large",)
    foreign = replace(reinforced, sampler=Foreign())
    assert foreign.scored() == ("small", "large")
    mixed = Mixed(of=(Share(share=0.5, sampler=recipe.sampler), Share(share=0.5, sampler=Foreign())))
    assert replace(reinforced, sampler=mixed).scored() == ("small", "large")
    replay = Replay(buffer="b", of=Foreign())
    assert replace(reinforced, sampler=replay).scored() == ("large",)


def test_the_loop_reports_it_every_step():
    recipe = tiny_recipe.recipe(steps=2, sampler=Foreign())
    for report in train(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe))):
        assert report.metrics["sampler/mismatch/small/k1"] == pytest.approx(-0.3, abs=1e-4)
        assert report.metrics["sampler/age/small"] == 0


@pytest.mark.parametrize(("by", "times"), [(0.3, 1), (0.01, 0)])
def test_a_run_warns_once(by, times, tmp_path):
    recipe = tiny_recipe.recipe(steps=3, sampler=Foreign(by=by))
    console = Console(record=True, width=80, file=StringIO())
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=console)
    assert session.run() == 0
    said = console.export_text()
    assert said.count("sampler/mismatch/small/mean is ") == times
    assert ("step 1: sampler/mismatch/small/mean is 0.3, above 0.05" in said) == bool(times)
