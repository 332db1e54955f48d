"""What `explain` says of signals and model calls, against a spy on real steps."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import pytest
import torch

import tiny
from grpo_kit import read_recipe
from grpo_kit.explain.calls import Calls, evaluations, of_a_step, of_an_evaluation, trained_rows
from grpo_kit.explain.signals import signals
from grpo_kit.loop import train
from grpo_kit.run.evaluation import evaluate
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream
from grpo_kit.terms import PolicyGradient

SHORT = ["steps=2", "prompts_per_step=3", "sampler.samples=6", "sampler.rows_per_batch=12", "data.rows=64"]
KEEP = ["selection.rule.keep=4"]
SMALL = "learners.small."
SPLIT = [f"{SMALL}epochs=2", f"{SMALL}mini_batches=5", "policies.small.micro_batch_tokens=200"]
EVALUATED = ["evaluation.questions=5", "evaluation.samples=3"]
ENTROPY = f'{SMALL}terms.ent={{kind="entropy"}}'
REFERENCE = 'policies.ref={model="tiny:small"}'
KL = f'{SMALL}terms.kl={{kind="divergence",to="ref",divergence={{kind="sampled_kl"}},weight=0.1}}'

GREEDY = ["sampler.greedy=true", f'{SMALL}terms.policy.advantage={{kind="remax"}}']
REFILL = ["refill={rewards={correctness=1.0}, tries=3}"]

RECIPES = {
    "grpo": ["grpo", *SHORT, *SPLIT],
    "grpo with a reference and an entropy bonus": ["grpo", *SHORT, REFERENCE, KL, ENTROPY],
    "codistill": ["codistill", *SHORT, *KEEP, *SPLIT],
    "codistill_paper": ["codistill_paper", *SHORT, *KEEP],
    "grpo with greedy rows": ["grpo", *SHORT, *SPLIT, *GREEDY],
    "codistill with greedy rows": ["codistill", *SHORT, *KEEP, *GREEDY],
}


@dataclass
class Spy:
    """Counts the forward passes of every policy's model, and the rows in them, by what they are for."""

    passes: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)

    def watch(self, policies):
        for name, policy in policies.items():
            policy.model.register_forward_pre_hook(self.of(name), with_kwargs=True)
        return self

    def of(self, name):
        def count(module, args, kwargs):
            kind = "sample" if kwargs["use_cache"] else "update" if torch.is_grad_enabled() else "score"
            self.passes[kind, name] = self.passes.get((kind, name), 0) + 1
            self.rows[kind, name] = self.rows.get((kind, name), 0) + len(kwargs["input_ids"])

        return count

    def clear(self):
        self.passes.clear()
        self.rows.clear()


def longest(prompts):
    return max(len(ids) for ids in prompts.ids)


@lru_cache
def first_step(described):
    """A recipe and the report of its first step."""
    name, *settings = RECIPES[described]
    recipe = read_recipe(name, settings=settings)
    return recipe, next(train(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe))))


@pytest.mark.parametrize("described", RECIPES)
def test_a_step_makes_the_calls_it_is_said_to_make(described):
    name, *settings = RECIPES[described]
    recipe = read_recipe(name, settings=settings)
    inputs = load_inputs(recipe)
    policies = load_policies(recipe)
    spy = Spy().watch(policies)
    said = {(call.what, call.policy): call for call in of_a_step(recipe, longest(inputs.prompts))}
    versions = dict.fromkeys(recipe.learners, 0)
    for report in train(recipe, policies, prompt_stream(recipe, inputs)):
        assert set(spy.passes) == set(said)
        for key, call in said.items():
            assert call.fewest <= spy.passes[key] <= call.most, key
            if key[0] != "sample":
                assert spy.rows[key] == call.rows, key
        assert len(report.experience.rollouts) == said["sample", "small"].rows
        for own in recipe.learners:
            assert policies[own].version - versions[own] == said["update", own].steps
            versions[own] = policies[own].version
        assert int(report.kept.sum()) == trained_rows(recipe)
        spy.clear()


def test_the_bounds_are_reached():
    """Rows of full length after the longest prompt need the most passes."""
    recipe = read_recipe("grpo", settings=[*SHORT, *SPLIT])
    (sample, score, update) = of_a_step(recipe, 10)
    # 3 prompts, 2 of them a batch (12 rows / 6 samples); 48 passes each.
    assert sample == Calls(what="sample", policy="small", rows=18, fewest=2, most=96)
    # 200 tokens hold 3 rows of 58: 18 rows are 6 passes; 5 mini-batches of 4, 4, 4, 3, 3 rows are 8, twice.
    assert score == Calls(what="score", policy="small", rows=18, fewest=1, most=6)
    assert update == Calls(what="update", policy="small", rows=36, steps=10, fewest=10, most=16)


@pytest.mark.parametrize("greedy", [[], GREEDY])
def test_a_refill_makes_no_more_calls_than_said(greedy):
    """With a rule that keeps nothing all tries are used; with one that keeps all, one round is made."""
    recipe = read_recipe("grpo", settings=[*SHORT, *greedy, *REFILL, "sampler.max_new_tokens=4"])
    inputs = load_inputs(recipe)
    for rule, tries in ((lambda rewards, groups: ~rewards.isnan(), 1), (lambda rewards, groups: rewards.isnan(), 3)):
        own = replace(recipe, refill=replace(recipe.refill, rule=rule))
        policies = load_policies(own)
        spy = Spy().watch(policies)
        said = {call.what: call for call in of_a_step(own, longest(inputs.prompts))}
        report = next(train(own, policies, prompt_stream(own, inputs)))
        assert report.metrics["sampler/rounds"] == tries
        assert spy.rows["score", "small"] == said["score"].rows * tries / 3
        assert said["sample"].rows == said["score"].rows
        for what in ("sample", "score"):
            assert said[what].fewest <= spy.passes[what, "small"] <= said[what].most * tries / 3


def test_an_evaluation_makes_the_calls_it_is_said_to_make():
    recipe = read_recipe("codistill", settings=[*SHORT, *KEEP, *EVALUATED])
    inputs = load_inputs(recipe)
    policies = load_policies(recipe)
    spy = Spy().watch(policies)
    with torch.no_grad():
        evaluate(recipe, policies, inputs.questions)
    said = of_an_evaluation(recipe, len(inputs.questions), longest(inputs.questions))
    for name in recipe.learners:
        own = {call.what: call for call in said if call.policy == name}
        assert spy.rows["score", name] == own["evaluate: entropy"].rows == 15
        written = [own["evaluate: sampled"], own["evaluate: greedy"]]
        assert sum(call.fewest for call in written) <= spy.passes["sample", name] <= sum(call.most for call in written)
        assert [call.rows for call in written] == [15, 5]


@pytest.mark.parametrize(("steps", "every", "times"), [(100, 50, 3), (101, 50, 4), (1, 50, 2), (200, 50, 5)])
def test_evaluations_of_a_run(steps, every, times):
    recipe = read_recipe("grpo", settings=[f"steps={steps}", f"evaluation.every={every}"])
    assert evaluations(recipe) == times
    assert evaluations(replace(recipe, evaluation=None)) == 0


@pytest.mark.parametrize("described", RECIPES)
def test_signals_are_those_that_the_loop_scores(described):
    recipe, report = first_step(described)
    said = signals(recipe)
    scored = [signal.policy for signal in said if signal.when == "scored"]
    assert scored == [key.policy for key in report.experience.signals.scores]
    writers = list(dict.fromkeys(writer.policy for writer in report.experience.rollouts.behavior.writers))
    assert [signal.policy for signal in said if signal.when == "sampled"] == writers
    assert [signal.policy for signal in said if signal.when == "current"] == list(recipe.learners)


@pytest.mark.parametrize("described", RECIPES)
def test_every_scored_signal_has_a_reader_that_cannot_do_without(described):
    recipe, report = first_step(described)
    experience = report.experience
    for signal in signals(recipe):
        if signal.when != "scored":
            continue
        assert signal.readers
        kept = {k: v for k, v in experience.signals.scores.items() if k.policy != signal.policy}
        without = replace(experience, signals=type(experience.signals)(kept))
        for place in signal.readers:
            with pytest.raises((KeyError, ValueError, AssertionError)):
                read(recipe, place, without)


def read(recipe, place, experience):
    """Let the part at a place of the recipe read its signals."""
    from grpo_kit.memory import Memory

    role, name, *rest = place.split(".")
    if role == "rewards":
        return recipe.rewards[name](experience.rollouts, experience.signals)
    returns = tiny.learner_rewards(experience.rollouts, torch.zeros(len(experience.rollouts)))
    return recipe.learners[name].terms[rest[-1]].freeze(experience, returns, name, Memory())


@pytest.mark.parametrize("described", RECIPES)
def test_the_behavior_s_readers_are_those_whose_loss_it_changes(described):
    from grpo_kit.signals import Scores

    recipe, report = first_step(described)
    experience = report.experience
    behavior = experience.rollouts.behavior
    other = replace(behavior, logprobs=behavior.logprobs - 0.5)
    changed = replace(experience, rollouts=replace(experience.rollouts, behavior=other))
    mask = experience.rollouts.mask
    now = Scores(logprobs=behavior.logprobs - 0.1, entropy=torch.ones_like(behavior.logprobs))
    differing = []
    for learner, own in recipe.learners.items():
        for key, term in own.terms.items():
            place = f"learners.{learner}.terms.{key}"
            if not isinstance(term, PolicyGradient):
                continue
            term = replace(term, advantage=lambda rewards, groups: torch.ones_like(rewards))
            own_recipe = replace(recipe, learners={**recipe.learners, learner: replace(own, terms={key: term})})
            losses = [term(now, read(own_recipe, place, e), mask, mask) for e in (experience, changed)]
            if not torch.equal(*losses):
                differing.append(place)
    (said,) = [signal.readers for signal in signals(recipe) if signal.when == "sampled"]
    assert list(said) == differing


def test_the_entropy_is_asked_for_where_it_is_said(monkeypatch):
    from grpo_kit.policies import Policy

    name, *settings = RECIPES["grpo with a reference and an entropy bonus"]
    recipe = read_recipe(name, settings=settings)
    asked = set()
    score = Policy.score

    def spy(self, rollouts, *, temperature=1.0, entropy=False):
        if torch.is_grad_enabled():
            asked.add((self.name, entropy))
        return score(self, rollouts, temperature=temperature, entropy=entropy)

    monkeypatch.setattr(Policy, "score", spy)
    next(train(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe))))
    assert asked == {(signal.policy, signal.entropy) for signal in signals(recipe) if signal.when == "current"}
    assert asked == {("small", True)}
