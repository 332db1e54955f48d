"""What `explain` says of signals and model calls, against a spy on real steps."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import pytest
import torch

import tiny
from grpo_kit import head, read_recipe
from grpo_kit.checks.findings import trained_rows
from grpo_kit.detail import Detail
from grpo_kit.explain.calls import Calls, evaluations, of_a_step, of_an_evaluation
from grpo_kit.explain.signals import signals
from grpo_kit.head import Distributions
from grpo_kit.loop import train
from grpo_kit.policies import Policy
from grpo_kit.run.evaluation import evaluate
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream
from grpo_kit.samplers.shared_prefix import can_share
from grpo_kit.signals import Scores
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
    "opd": ["opd", *SHORT],
    "dgrpo": ["dgrpo", *SHORT],
}


@dataclass
class Spy:
    """Counts the forward passes of every policy's model, and the rows in them, by what they are for."""

    passes: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)

    def watch(self, policies):
        """The decoder is what scoring and updating call, and what the whole model that samples calls, too."""
        for name, policy in policies.items():
            assert policy.has_linear_head  # tried once, on a single token
            policy.shares_prompts = can_share(policy)  # tried once, too
            policy.model.get_decoder().register_forward_pre_hook(self.of(name), with_kwargs=True)
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


WHOLE = "divergence={kind='reverse_kl'}"
TOP = "divergence={kind='forward_kl', top_k={k=3}}"
VARIATE = "terms.distillation.advantage.control_variate={kind='reverse_kl'}"
TINY = ["steps=1", "prompts_per_step=3", "sampler.max_new_tokens=8", "data.rows=64"]
DETAILS = {
    "the tokens alone": (["opd", *TINY], Detail(), Detail()),
    "entropies": (RECIPES["grpo with a reference and an entropy bonus"], Detail(), Detail(entropy=True)),
    "whole distributions": (["dgrpo", *TINY, "sampler.samples=2"], Detail(full=True), Detail(full=True)),
    "the likeliest tokens": (
        ["kdrl", *TINY, "sampler.samples=2", f"{SMALL}terms.teacher.{TOP}"],
        Detail(top_k=3),
        Detail(full=True),
    ),
    "a control variate": (["opd", *TINY, SMALL + VARIATE], Detail(full=True), Detail(full=True)),
}
"""Recipes, what of the other policy is scored, and what of the learner is read at an update."""


@pytest.mark.parametrize("described", DETAILS)
def test_what_is_read_of_distributions_is_what_is_said(described, monkeypatch):
    (name, *settings), scored, current = DETAILS[described]
    recipe = read_recipe(name, settings=settings)
    asked, read, entropies = [], set(), set()
    score_all, logprobs, entropy = Policy.score_all, Distributions.logprobs, head.entropy

    def scoring(self, rollouts, *, temperature=1.0, detail):
        asked.append((self.name, detail))
        return score_all(self, rollouts, temperature=temperature, detail=detail)

    def reading(self):
        read.add("current" if self.hidden.requires_grad else "other")
        return logprobs(self)

    def spreading(logits):
        entropies.add(logits.requires_grad)
        return entropy(logits)

    monkeypatch.setattr(Policy, "score_all", scoring)
    monkeypatch.setattr(Distributions, "logprobs", reading)
    monkeypatch.setattr(head, "entropy", spreading)
    report = next(train(recipe, load_policies(recipe), prompt_stream(recipe, load_inputs(recipe))))
    said = signals(recipe)
    assert asked == [(signal.policy, signal.detail) for signal in said if signal.when == "scored"]
    assert [signal.detail for signal in said if signal.when == "scored"][-1] == scored
    assert [signal.detail for signal in said if signal.when == "current"] == [current]
    assert ("current" in read) == current.full
    assert ("other" in read) == scored.full
    assert entropies == ({True} if current.entropy else set())
    for key, own in report.experience.signals.scores.items():
        (detail,) = [detail for name, detail in asked if name == key.policy]
        assert (own.top is not None) == (detail.top_k > 0)
        assert (own.distributions is not None) == detail.full


def test_the_table_of_signals_says_what_of_the_distributions_is_read():
    from grpo_kit.explain.sections import _signals

    (name, *settings), *_ = DETAILS["the likeliest tokens"]
    rows = {row[1]: row[0] for row in _signals(read_recipe(name, settings=settings)).rows}
    assert rows["large"].endswith(" and the 3 likeliest tokens")
    assert rows["small"].endswith(" and whole distributions")


def test_nothing_is_scored_where_nobody_looks_at_an_anchor():
    term = f'{SMALL}terms.distillation.surrogate={{kind="clip"}}'
    for settings, scored in ([], ["large"]), ([term], ["small", "large"]):
        recipe = read_recipe("opd", settings=settings)
        assert [signal.policy for signal in signals(recipe) if signal.when == "scored"] == scored
        assert [call.policy for call in of_a_step(recipe, 10) if call.what == "score"] == scored


MIXED = ["prompts_per_step=5", "data.rows=64", "steps=2"]
"""5 prompts in halves: 3 of the student's, 2 of the data's."""


def test_calls_of_a_mixture_are_those_of_its_samplers():
    recipe = read_recipe("gkd", settings=[*MIXED, f"{SMALL}mini_batches=2"])
    inputs = load_inputs(recipe)
    said = {(call.what, call.policy): call for call in of_a_step(recipe, longest(inputs.prompts))}
    assert set(said) == {("sample", "small"), ("score", "large"), ("update", "small")}
    assert [said[key].rows for key in said] == [3, 5, 5]
    policies = load_policies(recipe)
    spy = Spy().watch(policies)
    for report in train(recipe, policies, prompt_stream(recipe, inputs)):
        assert int(report.experience.rollouts.sampled.sum()) == 3
        assert set(spy.passes) == set(said)
        for key, call in said.items():
            assert call.fewest <= spy.passes[key] <= call.most, key
            assert key[0] == "sample" or spy.rows[key] == call.rows, key
        spy.clear()
    assert trained_rows(recipe) == 5


def test_rows_of_the_data_are_nobody_s_work():
    recipe = read_recipe("sft", settings=MIXED)
    (update,) = of_a_step(recipe, 10)
    assert (update.what, update.rows, update.steps) == ("update", 5, 1)
    assert [signal.when for signal in signals(recipe)] == ["current"]


BY = "kind='transformers', max_new_tokens=48, rows_per_batch=6"
FEW = BY.replace("48", "3")
HINTED = (
    f"sampler={{kind='hinted', hints={{{FEW}, policy='large', samples=6}}, of={{{BY}, policy='small', samples=6}}}}"
)
GROUPED = f"sampler={{kind='grouped', of=[{{{BY}, policy='small', samples=4}}, {{{BY}, policy='large', samples=2}}]}}"
EPOCH = ["steps=3", "prompts_per_step=3", "data.rows=6", "selection.rule.keep=4"]
"""Two steps with hints, one without."""


@pytest.mark.parametrize(("sampler", "written"), [(HINTED, [18, 18, 18]), (GROUPED, [12, 6, 18])])
def test_calls_of_samplers_inside_another_are_within_what_is_said(sampler, written):
    recipe = read_recipe("codistill", settings=[*EPOCH, sampler])
    inputs = load_inputs(recipe)
    said = {(call.what, call.policy): call for call in of_a_step(recipe, longest(inputs.prompts))}
    assert sorted(said[key].rows for key in said if key[0] == "sample") == sorted(written[:2])
    assert said["score", "small"].rows == written[2]
    policies = load_policies(recipe)
    spy = Spy().watch(policies)
    sampling = {name: said["sample", name] for name in ("large", "small")}
    for report in train(recipe, policies, prompt_stream(recipe, inputs)):
        for name, call in sampling.items():
            assert call.fewest <= spy.passes.get(("sample", name), 0) <= call.most
        hinted = sampler == HINTED and report.step < 3
        assert (("sample", "large") in spy.passes) == (hinted or sampler == GROUPED)
        assert len(report.experience.rollouts) == written[2]
        spy.clear()
    batches = {HINTED: {"large": (0, 3 * 3), "small": (0, 3 * 48)}, GROUPED: {"large": (1, 48), "small": (3, 3 * 48)}}
    assert {name: (call.fewest, call.most) for name, call in sampling.items()} == batches[sampler]
    (behavior,) = [signal for signal in signals(recipe) if signal.when == "sampled"]
    assert behavior.policy == "small, large"
