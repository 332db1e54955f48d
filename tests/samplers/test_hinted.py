"""Hints: who wrote which token, when there are hints, and what rewards and terms make of them."""

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

import tiny
from engines.stand_in import StandIn
from grpo_kit import (
    Behavior,
    Grouped,
    Hinted,
    ImportanceWeight,
    Mixed,
    OnPolicyKD,
    PolicySpec,
    Prompts,
    PromptSet,
    PromptStream,
    Python,
    Replay,
    Rollouts,
    Sampling,
    Share,
    TransformersSampler,
    VLLMSampler,
    Writer,
    read_recipe,
    train,
)
from grpo_kit.buffers import Buffer, fill
from grpo_kit.buffers.fingerprints import parameters_of, rollout_identity
from grpo_kit.checks import cross_checks
from grpo_kit.config import parse_recipe
from grpo_kit.explain.calls import written_rows
from grpo_kit.explain.writing import rows_in_words
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.overlap.choice import choose
from grpo_kit.samplers.mixed import has_data_rows, places_of, portions, writers
from tiny_recipe import TERM, learner, letters, recipe

TOKENS, LONGEST, SAMPLES = 3, 8, 4
LARGE = TransformersSampler(policy="large", samples=SAMPLES, max_new_tokens=TOKENS)
SMALL = TransformersSampler(policy="small", samples=SAMPLES, max_new_tokens=LONGEST)
HINTED = Hinted(hints=LARGE, of=SMALL)
PROMPTS = Prompts(ids=((2, 3), (4,), (5, 6, 7), (8,)), groups=(7, 8, 3, 12), columns={"answer": tuple("abcd")})
CLOSE = {"rtol": 0.0, "atol": 1e-4}


def policies(dtype=torch.float64) -> dict:
    return {name: tiny.policy(name, seed, dtype=dtype) for seed, name in enumerate(("small", "large"))}


def changed(**settings) -> Hinted:
    """The sampler with settings of both of its samplers changed."""
    return Hinted(hints=replace(LARGE, **settings), of=replace(SMALL, **settings))


def write(sampler=HINTED, seed=0, prompts=PROMPTS, **offers) -> Rollouts:
    return sampler(prompts, policies(), torch.Generator().manual_seed(seed), **offers)


def same(one: Rollouts, other: Rollouts) -> None:
    """The same rows, whoever else wrote beside them."""
    assert torch.equal(one.mask, other.mask)
    assert torch.equal(one.tokens[one.mask], other.tokens[one.mask])
    assert (one.texts, one.stop_reasons, one.prompts) == (other.texts, other.stop_reasons, other.prompts)
    torch.testing.assert_close(one.behavior.logprobs[one.mask], other.behavior.logprobs[one.mask], **CLOSE)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"stop": ("a", "c")}])
def test_every_token_has_its_writer_with_the_log_probability_it_was_drawn_with(settings):
    rows = write(changed(**settings))
    first = torch.arange(rows.mask.shape[1]) < TOKENS
    assert torch.equal(rows.written_by("large"), rows.mask & first)
    assert torch.equal(rows.written_by("small"), rows.mask & ~first)
    assert rows.written_by("small").any()
    for name, own in policies().items():
        scores = own.score_all(rows, temperature=rows.temperature).logprobs.float()
        written = rows.written_by(name)
        torch.testing.assert_close(rows.behavior.logprobs[written], scores[written], **CLOSE)
        torch.testing.assert_close(rows.behavior.model_logprobs[written], scores[written], **CLOSE)
    assert rows.temperature == settings.get("temperature", 1.0)
    assert int(rows.lengths.max()) == LONGEST
    assert rows.groups.tolist() == [group for group in PROMPTS.groups for _ in range(SAMPLES)]
    assert rows.columns["answer"] == (*"aaaabbbbccccdddd",)
    assert rows.prompts == tuple(ids for ids in PROMPTS.ids for _ in range(SAMPLES))


def by_engine(sampler: TransformersSampler) -> VLLMSampler:
    settings = {name: getattr(sampler, name) for name in ("policy", "samples", "max_new_tokens")}
    return VLLMSampler(**settings, engine=StandIn())


@pytest.mark.parametrize("hints", [LARGE, by_engine(LARGE)], ids=["transformers", "engine"])
@pytest.mark.parametrize("of", [SMALL, by_engine(SMALL)], ids=["transformers", "engine"])
def test_engines_may_write_either_part(hints, of):
    sampler, own = Hinted(hints=hints, of=of), policies()
    assert sampler.renew(1, own, PromptSet(ids=PROMPTS.ids, columns={}, skipped=()), {}) == {}
    rows = sampler(PROMPTS, own, torch.Generator().manual_seed(0))
    first = torch.arange(rows.mask.shape[1]) < TOKENS
    assert torch.equal(rows.written_by("large"), rows.mask & first)
    assert rows.written_by("small").any()
    for name, policy in own.items():
        written, scores = rows.written_by(name), policy.score_all(rows).logprobs.float()
        torch.testing.assert_close(rows.behavior.logprobs[written], scores[written], **CLOSE)
    for sampled, name in ((hints, "large"), (of, "small")):
        if isinstance(sampled, VLLMSampler):  # started once, and asked token ids and no text
            (running,) = own[name].engines.values()
            (requests, limits), *more = running.asked
            assert more == []
            assert limits.max_new_tokens == (TOKENS if name == "large" else LONGEST - TOKENS)
            lengths = {len(request.prompt) for request in requests}
            assert lengths == ({1, 2, 3} if name == "large" else {1 + TOKENS, 2 + TOKENS, 3 + TOKENS})


def test_hints_and_what_follows_are_what_the_two_samplers_give():
    rows, generator = write(), torch.Generator().manual_seed(0)
    hints = LARGE(PROMPTS, policies(), generator)
    unfinished = [row for row, reason in enumerate(hints.stop_reasons) if reason == "length"]
    assert 0 < len(unfinished) < len(rows)
    ended = [row for row in range(len(rows)) if row not in unfinished]
    begun = Prompts(
        ids=tuple((*hints.prompts[row], *hints.tokens[row].tolist()) for row in unfinished),
        groups=tuple(range(len(unfinished))),
        columns={},
    )
    rest = replace(SMALL, samples=1, max_new_tokens=LONGEST - TOKENS)(begun, policies(), generator)
    same(rows.take(ended), hints.take(ended))
    for number, row in enumerate(unfinished):
        tokens = [*hints.tokens[row].tolist(), *rest.tokens[number][rest.mask[number]].tolist()]
        assert rows.tokens[row][rows.mask[row]].tolist() == tokens
        assert rows.stop_reasons[row] == rest.stop_reasons[number]
        assert rows.texts[row] == tiny.tokenizer().decode(tokens, skip_special_tokens=True)


def test_a_completion_that_ends_within_its_hint_is_left_as_it_is():
    rows = write()
    ended = [row for row, length in enumerate(rows.lengths.tolist()) if length < TOKENS]
    assert ended
    for row in ended:
        assert rows.stop_reasons[row] == "eos"
        assert rows.tokens[row][rows.mask[row]][-1] == tiny.EOS
        assert not rows.written_by("small")[row].any()
    # An end-of-sequence token as the last of the hint ends it, too.
    last = [row for row, length in enumerate(rows.lengths.tolist()) if length == TOKENS]
    assert all(rows.stop_reasons[row] == "eos" for row in last)


def test_where_all_end_within_their_hints_nobody_continues():
    every = changed(stop=tuple("abcdefghij"))  # the first letter ends a completion
    rows = every(PROMPTS, policies(), torch.Generator().manual_seed(0))
    assert rows.mask.shape[1] == 1
    assert set(rows.stop_reasons) <= {"stop", "eos"}
    assert [writer.policy for writer in rows.behavior.writers] == ["large"]


def test_there_are_hints_in_the_first_epoch_alone():
    alone = SMALL(PROMPTS, policies(), torch.Generator().manual_seed(0))
    for epochs, epoch, hinted in ((1.0, 0.0, True), (1.0, 0.99, True), (1.0, 1.0, False), (0.5, 0.5, False)):
        rows = write(replace(HINTED, epochs=epochs), epoch=epoch)
        assert bool(rows.written_by("large").any()) == hinted
        if not hinted:
            same(rows, alone)


@pytest.mark.parametrize(("one", "other"), [(1, 512), (512, 5), (3, 2)])
def test_rows_do_not_depend_on_the_batches_they_are_written_in(one, other):
    split = Hinted(hints=replace(LARGE, rows_per_batch=one), of=replace(SMALL, rows_per_batch=other))
    same(write(split), write())
    assert split.rows_per_batch == min(one, other)


def test_the_generator_decides_and_nothing_else():
    same(write(seed=3), write(seed=3))
    assert write(seed=3).texts != write(seed=4).texts


def test_each_row_has_its_own_hint_or_some_share_one():
    own, shared = write(), write(replace(HINTED, hints=replace(LARGE, samples=2)))
    assert len({tuple(row) for row in own.tokens[:4, :TOKENS].tolist()}) > 2
    assert shared.groups.tolist() == own.groups.tolist()
    hints = replace(LARGE, samples=2)(PROMPTS, policies(), torch.Generator().manual_seed(0))
    for row in range(16):
        hint = hints.tokens[row // 2][hints.mask[row // 2]].tolist()
        assert shared.tokens[row][shared.mask[row]].tolist()[: len(hint)] == hint
    long = [pair for pair in range(8) if hints.stop_reasons[pair] == "length"]
    assert any(shared.texts[2 * pair] != shared.texts[2 * pair + 1] for pair in long)
    ended = [pair for pair in range(8) if hints.stop_reasons[pair] == "eos"]
    assert all(shared.texts[2 * pair] == shared.texts[2 * pair + 1] for pair in ended)


@dataclass(frozen=True)
class Dictating:
    """Writes given words, as many as it may."""

    policy: str
    words: str
    samples: int = 1
    max_new_tokens: int = 9
    stop: tuple = ()
    says: bool = True

    @property
    def reads(self):
        return (self.policy,)

    def __call__(self, prompts, policies, generator):
        ids = tiny.tokenizer()(self.words)["input_ids"]
        cut = len(ids) > self.max_new_tokens
        tokens = torch.tensor([ids[: self.max_new_tokens]] * len(prompts) * self.samples)
        values = torch.full(tokens.shape, -1.0)
        behavior = Behavior(
            writers=(Writer(policy=self.policy, version=5, sampling=Sampling()),),
            writer=torch.zeros_like(tokens),
            logprobs=values,
            model_logprobs=values if self.says else None,
        )
        return Rollouts(
            prompts=tuple(ids for ids in prompts.ids for _ in range(self.samples)),
            tokens=tokens,
            mask=torch.ones_like(tokens, dtype=torch.bool),
            groups=torch.tensor([group for group in prompts.groups for _ in range(self.samples)]),
            stop_reasons=("length" if cut else "eos",) * len(tokens),
            texts=("?",) * len(tokens),
            columns={},
            behavior=behavior,
        )


def dictated(hint, rest, stop=(), longest=9, length=2, says=True) -> Rollouts:
    hints = Dictating("large", hint, max_new_tokens=length, stop=stop)
    of = Dictating("small", rest, max_new_tokens=longest, stop=stop, says=says)
    one = Prompts(ids=((2,),), groups=(0,), columns={})
    return write(Hinted(hints=hints, of=of), prompts=one)


@pytest.mark.parametrize(
    ("rest", "stop", "tokens", "text", "reason"),
    [
        ("b d e", (), "c a b d e", "c a b d e", "eos"),
        ("b d e", ("a b",), "c a b", "c ", "stop"),
        ("b d e", ("c a b d",), "c a b d", "", "stop"),
        ("b d e", ("d", "a b d"), "c a b d", "c ", "stop"),  # the text ends before whichever begins first
        ("b d e", ("a e",), "c a b d e", "c a b d e", "eos"),
        ("b a b", ("x", "b a"), "c a b a", "c a ", "stop"),  # the sampler itself would have stopped there
    ],
)
def test_a_stop_string_that_begins_in_the_hint_ends_the_row(rest, stop, tokens, text, reason):
    rows = dictated("c a d", rest, stop)
    assert tiny.tokenizer().decode(rows.tokens[0][rows.mask[0]].tolist()) == tokens
    assert rows.texts[0].rstrip() == text.rstrip()
    assert rows.stop_reasons == (reason,)


def test_a_stop_string_that_ends_with_the_last_token_allowed_is_the_reason():
    rows = dictated("c a d", "b d", ("a b",), longest=3)
    assert rows.stop_reasons == ("stop",)
    assert rows.lengths.tolist() == [3]


def test_hint_and_continuation_are_as_long_together_as_is_said():
    rows = dictated("c a d", "b d e f g", longest=5)
    assert rows.stop_reasons == ("length",)
    assert tiny.tokenizer().decode(rows.tokens[0].tolist()) == "c a b d e"


def test_what_one_of_the_two_does_not_say_is_unknown():
    rows = dictated("c a d", "b d e", says=False)
    assert rows.behavior.model_logprobs[0].isnan().tolist() == [False, False, True, True, True]
    assert [writer.policy for writer in rows.behavior.writers] == ["large", "small"]
    assert rows.behavior.writer[0].tolist() == [0, 0, 1, 1, 1]


def test_a_hint_cut_before_its_length_is_not_continued():
    """An engine at the end of its context says `length`, too."""

    @dataclass(frozen=True)
    class Short(Dictating):
        def __call__(self, *given):
            return replace(super().__call__(*given), stop_reasons=("length",))

    hinted = Hinted(hints=Short("large", "c a", max_new_tokens=4), of=Dictating("small", "b"))
    rows = write(hinted, prompts=Prompts(ids=((2,),), groups=(0,), columns={}))
    assert rows.stop_reasons == ("length",)
    assert rows.lengths.tolist() == [2]


def test_what_it_says_of_itself():
    assert (HINTED.samples, HINTED.max_new_tokens, HINTED.temperature, HINTED.stop) == (SAMPLES, LONGEST, 1.0, ())
    assert HINTED.reads == writers(HINTED) == ("small", "large")
    assert places_of(HINTED) == {"sampler.of": SMALL, "sampler.hints": LARGE}
    assert list(portions(HINTED, 5)) == [("sampler", HINTED, 5)]
    assert not has_data_rows(HINTED)
    inside = Mixed(of=(Share(share=0.5, sampler=HINTED), Share(share=0.5, sampler=SMALL)))
    assert list(places_of(inside)) == ["sampler.of.0.sampler.of", "sampler.of.0.sampler.hints", "sampler.of.1.sampler"]
    assert writers(Replay(buffer="x", of=HINTED)) == ("small", "large")


def test_samplers_that_hold_it_hand_on_the_epoch():
    for outer in (
        Mixed(of=(Share(share=0.5, sampler=HINTED), Share(share=0.5, sampler=HINTED))),
        Grouped(of=(HINTED, SMALL)),
    ):
        assert write(outer, epoch=0.5).written_by("large").any()
        assert not write(outer, epoch=1.0).written_by("large").any()


def test_a_buffer_is_filled_with_hints(tmp_path):
    prompts = PromptSet(ids=PROMPTS.ids, columns=PROMPTS.columns, skipped=())
    weights = {name: parameters_of(policy) for name, policy in policies().items()}
    settings = {"seed": 0, "prompts_per_shard": 4, "vocabulary": tiny.VOCABULARY}
    buffer = Buffer(tmp_path / "b")
    buffer.begin(rollout_identity(HINTED, weights, tiny.tokenizer(), prompts, **settings), {})
    fill(buffer, HINTED, prompts, policies(), {})
    replay = Replay(buffer=str(buffer.path), of=HINTED)
    rows = replay(prompts.take(range(4)), policies(), torch.Generator()).rollouts
    same(rows, write(prompts=prompts.take(range(4))))
    assert torch.equal(rows.written_by("large"), write().written_by("large"))


MISTAKES = {
    "hints as long as all": ({"hints": replace(LARGE, max_new_tokens=8)}, "hints.max_new_tokens = 8 leaves nothing"),
    "hints that do not go round": ({"hints": replace(LARGE, samples=3)}, "of.samples = 4 rows cannot share hints"),
    "more hints than rows": ({"hints": replace(LARGE, samples=8)}, "of.samples = 4 rows cannot share hints"),
    "its own hints": ({"hints": replace(LARGE, policy="small")}, "hints and of both write with 'small'"),
    "two temperatures": ({"hints": replace(LARGE, temperature=0.5)}, r"temperatures \[0.5, 1.0\]"),
    "other ends": ({"hints": replace(LARGE, stop=("a",))}, r"hints.stop = \['a'\] and of.stop = \[\]"),
    "greedy rows": ({"of": replace(SMALL, greedy=True)}, "greedy = true writes greedy rows of one sampler alone"),
    "a function": ({"of": lambda prompts, policies, generator: None}, "of: 'a function' is no sampler with one policy"),
    "a mixture": (
        {"of": Mixed(of=(Share(share=0.5, sampler=SMALL), Share(share=0.5, sampler=SMALL)))},
        "of: 'mixed' is no sampler with one policy",
    ),
    "a buffer": ({"of": Replay(buffer="x", of=SMALL)}, "of: 'replay' is no sampler with one policy"),
    "no epoch": ({"epochs": 0.0}, "greater than 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name):
    settings, message = MISTAKES[name]
    with pytest.raises(ValidationError, match=message):
        Hinted(**{"hints": LARGE, "of": SMALL} | settings)


def codistilling(**changes):
    """Two learners on hinted rows, 2 of the 6 prompts a step: the first epoch is steps 1 to 3."""
    kd = OnPolicyKD(teacher="large", student="small", length=LONGEST)
    settings = {
        "steps": 4,
        "policies": {name: PolicySpec(model=f"tiny:{name}") for name in ("small", "large")},
        "sampler": HINTED,
        "rewards": {"task": Python(function=letters), "kd": kd},
        "learners": {
            "small": learner(rewards={"task": 1.0, "kd": 1.0}, terms={"policy": replace(TERM, anchor="behavior")}),
            "large": learner(terms={"policy": replace(TERM, correction=ImportanceWeight(high=3.0))}),
        },
    }
    return recipe(**settings | changes)


def steps(given):
    ids = tuple((2 + number, 3 + number) for number in range(6))
    stream = PromptStream(PromptSet(ids=ids, columns={"answer": tuple("abcdef")}, skipped=()), seed=0)
    return list(train(given, policies(torch.float32), stream))


@pytest.fixture(scope="module")
def reports():
    return steps(codistilling())


def test_the_loop_has_hints_in_its_first_epoch_alone(reports):
    hinted = [bool(report.experience.rollouts.written_by("large").any()) for report in reports]
    assert hinted == [True, True, True, False]
    for report, own in zip(reports, hinted, strict=True):
        rows = report.experience.rollouts
        found = {key: value for key, value in report.metrics.items() if key.startswith("sampler/written/")}
        shares = {name: float(rows.written_by(name).sum() / rows.mask.sum()) for name in ("large", "small")}
        expected = {f"sampler/written/{name}": share for name, share in shares.items()} if own else {}
        assert found == pytest.approx(expected)


def test_the_distillation_reward_sums_over_the_student_s_tokens_alone(reports):
    experience = reports[0].experience
    rows, signals = experience.rollouts, experience.signals
    gap = signals["large"].logprobs - signals["small"].logprobs
    late = torch.arange(rows.mask.shape[1]) >= TOKENS
    expected = torch.where(rows.mask & late, gap, 0).sum(1) / LONGEST
    found = experience.rewards.components["kd"].values
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    whole = torch.where(rows.mask, gap, 0).sum(1) / LONGEST
    assert (found - whole).abs().max() > 0.01  # the hints' part


def frozen_of(reports, name):
    experience = reports[0].experience
    settings = codistilling().learners[name]
    kept = torch.ones(len(experience.rollouts), dtype=torch.bool)
    return freeze(name, settings, experience, kept, Memory()), experience


def test_the_ratio_to_the_writer_includes_the_hints(reports):
    batch, experience = frozen_of(reports, "small")
    rows, frozen = experience.rollouts, batch.frozen["policy"]
    hints = rows.written_by("large")
    assert bool(batch.counted[hints].all())
    anchor = torch.where(hints, experience.signals["large"].logprobs, experience.signals["small"].logprobs)
    torch.testing.assert_close(frozen["anchor"][rows.mask], anchor[rows.mask], **CLOSE)
    ratio = (experience.signals["small"].logprobs - frozen["anchor"])[hints]
    assert ratio.abs().max() > 0.1  # another policy's tokens: not 1 at the first update


def test_a_correction_weighs_each_token_by_its_writer(reports):
    batch, experience = frozen_of(reports, "large")
    rows, weights = experience.rollouts, batch.frozen["policy"]["correction"]
    own, hints = rows.written_by("small"), rows.written_by("large")
    torch.testing.assert_close(weights[hints], torch.ones_like(weights[hints]), rtol=0, atol=1e-3)
    gap = experience.signals["large"].logprobs - experience.signals["small"].logprobs
    torch.testing.assert_close(weights[own], gap.exp().clamp(max=3.0)[own], rtol=1e-3, atol=1e-3)


def test_a_refill_keeps_to_the_epoch_in_which_its_step_began():
    """Three rounds of two prompts: the second step begins at prompt 6 of 6, its first round is in the next epoch."""
    from grpo_kit import RefillSpec

    def nothing(rewards, groups):
        return torch.zeros_like(rewards, dtype=torch.bool)

    again = RefillSpec(rule=nothing, rewards={"task": 1.0}, tries=4)
    first, second = steps(codistilling(steps=2, refill=again))
    assert first.experience.rollouts.written_by("large").any()  # the last round, of prompts 7 and 8
    assert not second.experience.rollouts.written_by("large").any()


def test_the_checks_see_through_it():
    assert cross_checks(codistilling(), allow_code=True) == []
    assert written_rows(codistilling()) == 8
    cut = Hinted(hints=replace(LARGE, top_p=0.9), of=SMALL)
    found = cross_checks(codistilling(sampler=cut), allow_code=True)
    assert [line.partition(":")[0] for line in found] == ["learners.small.terms.policy", "learners.large.terms.policy"]
    alone = codistilling(learners={"small": learner()}, rewards={"task": Python(function=letters)})
    assert cross_checks(alone, allow_code=True) == []  # 'large' is used: it writes the hints


def test_the_overlap_is_measured_on_rows_of_the_student_alone():
    given = codistilling()
    assert choose(given) == ("small", "large", SMALL, ("small",))
    with pytest.raises(ValueError, match=r"several policies sample: small, large\. Give --student"):
        choose(replace(given, sampler=Grouped(of=(SMALL, LARGE))))


def test_engines_numerics_are_measured_inside_it_too():
    class Foreign(Dictating):
        foreign_numerics = True

    plain = codistilling(
        learners={"small": learner(terms={"policy": replace(TERM, anchor="behavior")})},
        rewards={"task": Python(function=letters)},
    )
    assert plain.scored() == ()
    hinted = Hinted(hints=LARGE, of=Foreign("small", "a b", samples=SAMPLES))
    assert replace(plain, sampler=hinted).scored() == ("small",)


class Renewing(Dictating):
    """Remembers the steps before which it was asked to prepare itself."""

    def renew(self, step, policies, prompts, details):
        return {f"sampler/synced/{self.policy}": float(step)}


@pytest.mark.parametrize(
    "outer",
    [
        Hinted(hints=Renewing("large", "a", max_new_tokens=1), of=Renewing("small", "b")),
        Grouped(of=(Renewing("large", "a"), Renewing("small", "b"))),
        Mixed(of=(Share(share=0.5, sampler=Renewing("large", "a")), Share(share=0.5, sampler=Renewing("small", "b")))),
    ],
    ids=["hinted", "grouped", "mixed"],
)
def test_samplers_inside_are_renewed_before_a_step(outer):
    found = outer.renew(3, {}, PromptSet(ids=PROMPTS.ids, columns={}, skipped=()), {})
    assert found == {"sampler/synced/large": 3.0, "sampler/synced/small": 3.0}


def test_the_tables_of_the_recipe_s_page_add_hints():
    """CoDistill's hints as `docs/recipes/codistill_paper.md` gives them."""
    root = Path(__file__).parents[2]
    (block,) = re.findall(r"^```toml\n(.*?)^```$", (root / "docs/recipes/codistill_paper.md").read_text(), re.M | re.S)
    raw = tomllib.loads((root / "src/grpo_kit/recipes/codistill_paper.toml").read_text())
    added = tomllib.loads(block)
    raw["sampler"] = added["sampler"]
    raw["learners"]["small"]["terms"] = added["learners"]["small"]["terms"]
    found, mistakes, _ = parse_recipe(raw)
    assert mistakes == []
    assert cross_checks(found) == []
    assert found.sampler.of == read_recipe("codistill_paper").sampler
    sentence = list(rows_in_words(found, found.sampler, found.prompts_per_step, 4096))[1]
    assert "the first 4 tokens of the completions by 'small' in steps 1 to 13 " in sentence
