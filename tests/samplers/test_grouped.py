"""Groups of several samplers' rows: order, writers, what is refused, and what the loop makes of them."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import (
    DataRows,
    Grouped,
    Hinted,
    ImportanceWeight,
    MaxVariance,
    Mixed,
    OnPolicyKD,
    PolicySpec,
    Prompts,
    PromptSet,
    PromptStream,
    Python,
    RecipeError,
    Replay,
    Rollouts,
    SelectionSpec,
    Share,
    TransformersSampler,
    read_recipe,
    train,
)
from grpo_kit.checks import cross_checks
from grpo_kit.checks.findings import group_size, trained_rows
from grpo_kit.explain.calls import written_rows
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.samplers.mixed import has_data_rows, places_of, portions, writers
from mistakes import reported_and_mended
from tiny_recipe import TERM, learner, letters, recipe

SMALL = TransformersSampler(policy="small", samples=3, max_new_tokens=6)
LARGE = TransformersSampler(policy="large", samples=2, max_new_tokens=8, stop=("j",), rows_per_batch=7)
GROUPED = Grouped(of=(SMALL, LARGE))
HINTED = Hinted(hints=replace(SMALL, policy="large", max_new_tokens=2), of=SMALL)
PROMPTS = Prompts(ids=((2, 3), (4,), (5, 6, 7)), groups=(9, 2, 12), columns={"answer": tuple("abc")}, numbers=(4, 0, 7))


def policies(dtype=torch.float64) -> dict:
    return {name: tiny.policy(name, seed, dtype=dtype) for seed, name in enumerate(("small", "large"))}


def write(sampler=GROUPED, seed=0) -> Rollouts:
    return sampler(PROMPTS, policies(), torch.Generator().manual_seed(seed))


def same(one: Rollouts, other: Rollouts) -> None:
    assert torch.equal(one.mask, other.mask)
    assert torch.equal(one.tokens[one.mask], other.tokens[one.mask])
    assert (one.texts, one.stop_reasons, one.prompts) == (other.texts, other.stop_reasons, other.prompts)
    assert torch.equal(one.groups, other.groups)
    torch.testing.assert_close(one.behavior.logprobs[one.mask], other.behavior.logprobs[other.mask], rtol=0, atol=1e-5)


def test_each_prompt_has_the_rows_of_every_sampler_in_their_order():
    rows = write()
    assert rows.groups.tolist() == [9] * 5 + [2] * 5 + [12] * 5
    assert rows.columns["answer"] == (*"aaaaabbbbbccccc",)
    assert rows.prompts == tuple(ids for ids in PROMPTS.ids for _ in range(5))
    by_large = rows.written_by("large").any(1).tolist()
    assert by_large == [False, False, False, True, True] * 3
    assert torch.equal(rows.written_by("small"), rows.mask & ~rows.written_by("large"))
    turned = write(Grouped(of=(LARGE, SMALL)))
    assert turned.written_by("large").any(1).tolist() == [True, True, False, False, False] * 3


def test_rows_are_those_of_each_sampler_alone():
    rows, generator = write(), torch.Generator().manual_seed(0)
    small, large = (own(PROMPTS, policies(), generator) for own in (SMALL, LARGE))
    same(rows.take([row for row in range(15) if row % 5 < 3]), small)
    same(rows.take([row for row in range(15) if row % 5 >= 3]), large)


def test_every_token_has_the_log_probability_that_its_writer_gave():
    rows = write()
    for name, own in policies().items():
        written = rows.written_by(name)
        scores = own.score_all(rows).logprobs.float()
        torch.testing.assert_close(rows.behavior.logprobs[written], scores[written], rtol=0, atol=1e-4)
        torch.testing.assert_close(rows.behavior.model_logprobs[written], scores[written], rtol=0, atol=1e-4)


def test_the_generator_decides_and_nothing_else():
    same(write(seed=3), write(seed=3))
    assert write(seed=3).texts != write(seed=4).texts
    split = Grouped(of=(replace(SMALL, rows_per_batch=3), replace(LARGE, rows_per_batch=1)))
    same(write(split), write())


def test_what_it_says_of_itself():
    assert (GROUPED.samples, GROUPED.max_new_tokens, GROUPED.temperature) == (5, 8, 1.0)
    assert (GROUPED.stop, GROUPED.rows_per_batch) == (("j",), 7)
    assert GROUPED.reads == writers(GROUPED) == ("small", "large")
    assert places_of(GROUPED) == {"sampler.of.0": SMALL, "sampler.of.1": LARGE}
    assert list(portions(GROUPED, 3)) == [("sampler", GROUPED, 3)]
    assert not has_data_rows(GROUPED)
    nested = Grouped(of=(GROUPED, HINTED))
    assert nested.samples == 8
    assert list(places_of(nested)) == [
        "sampler.of.0.of.0",
        "sampler.of.0.of.1",
        "sampler.of.1.of",
        "sampler.of.1.hints",
    ]


def test_some_rows_of_a_group_may_have_hints():
    rows = write(Grouped(of=(SMALL, HINTED)))
    first = rows.written_by("large")[:, 0].reshape(3, 6)
    assert first.tolist() == [[False] * 3 + [True] * 3] * 3


def test_it_may_be_part_of_a_mixture():
    half = Mixed(of=(Share(share=0.67, sampler=GROUPED), Share(share=0.33, sampler=SMALL)))
    groups = write(half).groups.tolist()
    assert sorted(groups.count(group) for group in PROMPTS.groups) == [3, 5, 5]
    assert [prompts for _, _, prompts in portions(half, 3)] == [2, 1]


DATA = DataRows(policy="small", max_new_tokens=4)
MISTAKES = {
    "one sampler": ((SMALL,), "at least 2 items"),
    "two temperatures": ((SMALL, replace(LARGE, temperature=0.5)), r"temperatures \[0.5, 1.0\]"),
    "greedy rows": ((replace(SMALL, greedy=True), LARGE), "greedy = true writes greedy rows of one sampler alone"),
    "a buffer": ((SMALL, Replay(buffer="x", of=LARGE)), "a sampler that supplies signals"),
    "a mixture": ((SMALL, Mixed(of=(Share(share=0.5, sampler=SMALL),) * 2)), "'mixed'.* in a group would make groups"),
    "rows of the data": ((SMALL, DATA), "'data_rows'.* in a group would be in no baseline"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name):
    samplers, message = MISTAKES[name]
    with pytest.raises(ValidationError, match=message):
        Grouped(of=samplers)


def pair(**changes):
    """Small and large learn from groups that both wrote."""
    settings = {
        "steps": 2,
        "policies": {name: PolicySpec(model=f"tiny:{name}") for name in ("small", "large")},
        "sampler": GROUPED,
        "rewards": {
            "task": Python(function=letters),
            "kd": OnPolicyKD(teacher="large", student="small", length=8),
        },
        "learners": {
            "small": learner(rewards={"task": 1.0, "kd": 1.0}, terms={"policy": replace(TERM, anchor="behavior")}),
            "large": learner(terms={"policy": replace(TERM, correction=ImportanceWeight(level="sequence", high=5.0))}),
        },
        "selection": SelectionSpec(rule=MaxVariance(keep=4), rewards={"task": 1.0}),
    }
    return recipe(**settings | changes)


def test_the_loop_takes_a_group_as_one():
    given = pair()
    ids = tuple((2 + number, 3 + number) for number in range(6))
    stream = PromptStream(PromptSet(ids=ids, columns={"answer": tuple("abcdef")}, skipped=()), seed=0)
    report = next(train(given, policies(torch.float32), stream))
    experience, rows = report.experience, report.experience.rollouts
    assert rows.groups.tolist() == [0] * 5 + [1] * 5
    assert [int(report.kept[rows.groups == group].sum()) for group in (0, 1)] == [4, 4]
    by_large = rows.written_by("large").any(1)
    kd = experience.rewards.components["kd"].values
    assert (kd[by_large] == 0).all()  # no token of the student's
    assert (kd[~by_large] != 0).any()
    # The baseline of a group is over the kept rows of both writers.
    batch = freeze("large", given.learners["large"], experience, report.kept, Memory())
    total = experience.rewards.components["task"].values
    for group in (0, 1):
        own = torch.nonzero(report.kept & (rows.groups == group)).flatten()
        expected = total[own] - total[own].mean()
        numbers = [batch.numbers.index(int(row)) for row in own]
        torch.testing.assert_close(batch.frozen["policy"]["advantages"][numbers, 0], expected, rtol=0, atol=1e-6)
    # A row of the large model's own weighs 1, another's by the quotient of the row.
    weights = batch.frozen["policy"]["correction"]
    gap = experience.signals["large"].logprobs - experience.signals["small"].logprobs
    for number, row in enumerate(batch.numbers):
        expected = 1.0 if by_large[row] else float(gap[row][rows.mask[row]].sum().exp().clamp(max=5.0))
        assert float(weights[number, 0]) == pytest.approx(expected, rel=1e-2)
    assert report.metrics["sampler/written/large"] == pytest.approx(
        float(rows.written_by("large").sum() / rows.mask.sum())
    )


def test_the_checks_count_the_whole_group():
    assert cross_checks(pair(), allow_code=True) == []
    assert (group_size(pair()), trained_rows(pair()), written_rows(pair())) == ((5, 4), 8, 10)
    everything = SelectionSpec(rule=MaxVariance(keep=5), rewards={"task": 1.0})
    (mistake,) = cross_checks(pair(selection=everything), allow_code=True)
    assert mistake.startswith("selection.rule: keeps 5 of 5 samples a prompt, so it would drop nothing.")


BY_SMALL = "{kind='transformers', policy='small', samples=6, max_new_tokens=48}"
BY_LARGE = "{kind='transformers', policy='large', samples=2, max_new_tokens=48}"
WHOLE = f"sampler={{kind='grouped', of=[{BY_SMALL}, {BY_LARGE}]}}"
KEEP = "selection.rule.keep=4"
REMAX = "learners.small.terms.policy.advantage={kind='remax'}"
CASES = {
    "a selection of everything": (
        [WHOLE],
        [
            "selection.rule: keeps 8 of 8 samples a prompt, so it would drop nothing. Raise sampler.samples, lower "
            "what it keeps, or remove [selection]."
        ],
        [WHOLE, KEEP],
    ),
    "no greedy rows in a group": (
        [WHOLE, KEEP, REMAX],
        [
            "learners.small.terms.policy.advantage: compares with the reward of a greedy completion, and none is "
            "written. Use sampler 'transformers' with greedy = true."
        ],
        [WHOLE, KEEP],
    ),
    "greedy sampling inside": (
        [WHOLE.replace("max_new_tokens=48}", "max_new_tokens=48, temperature=0.0}"), KEEP],
        [
            f"sampler.of.{number}.temperature: 0 is greedy: a group's rows would all be the same. Use more than 0."
            for number in (0, 1)
        ],
        [WHOLE, KEEP],
    ),
    "a distribution that is cut": (
        [WHOLE.replace("samples=2", "samples=2, top_p=0.9"), KEEP],
        [
            "learners.large.terms.policy: sampler.top_p, top_k or min_p cuts mass off, which biases quotients to the "
            "behavior policy. Sample with top_p = 1, top_k = 0 and min_p = 0."
        ],
        [WHOLE, KEEP],
    ),
    "a policy that there is not": (
        [WHOLE.replace("policy='large'", "policy='largest'"), KEEP],
        ["sampler: there is no policy 'largest'. Did you mean 'large'? Known: small, large."],
        [WHOLE, KEEP],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_and_its_mended_form_is_not(name):
    reported_and_mended(CASES[name], "codistill")


def test_a_fault_of_one_of_its_samplers_has_its_place():
    with pytest.raises(RecipeError) as caught:
        read_recipe("codistill", settings=[WHOLE.replace("samples=2", "samples=0"), KEEP])
    assert list(caught.value.mistakes) == ["sampler.of.1.samples: should be greater than or equal to 1, got 0 (int)."]
