"""The replay sampler: what it passes on, rows that are too old, and writing the buffer anew."""

import pickle
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from buffers.buffering import PROMPTS, SAMPLER, files, filled, policies
from grpo_kit import Buffer, Mixed, Refresh, Replay, Share, SignalKey
from grpo_kit.buffers.refresh import in_use
from grpo_kit.detail import Detail
from grpo_kit.flops import ModelFlops

DETAILS = {"large": Detail()}


def replay(path, **settings):
    return Replay(buffer=str(path), of=SAMPLER, **{"prompts_per_shard": 5} | settings)


def with_teacher():
    own = policies()
    own["large"].model.requires_grad_(False)
    return own


def moved(own, by=0.1):
    """A policy after an update."""
    with torch.no_grad():
        for weight in own.model.parameters():
            weight += by * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    own.version += 1


def test_it_says_of_itself_what_the_inner_sampler_says():
    part = replay("b")
    for name in ("policy", "samples", "max_new_tokens", "temperature", "top_p", "top_k", "greedy", "stop", "reads"):
        assert getattr(part, name) == getattr(SAMPLER, name)
    assert getattr(Replay(buffer="b", of=len), "samples", 2) == 2
    assert pickle.loads(pickle.dumps(part)) == part
    assert hash(part) == hash(replay("b"))
    with pytest.raises(AttributeError):
        part.sampels  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"buffer": ""}, "buffer"),
        ({"prompts": 0}, "prompts"),
        ({"prompts_per_shard": 0}, "prompts_per_shard"),
        ({"seed": -1}, "seed"),
        ({"of": replay("c")}, "a sampler that supplies signals with its rows"),
        ({"max_age": 3}, "without refresh no row is ever written again"),
        ({"max_age": -1, "refresh": Refresh(every=2)}, "max_age"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Replay(**{"buffer": "b", "of": SAMPLER} | settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"every": 0},
        {"every": 2, "overlap_below": 0.5, "check_every": 2},
        {"overlap_below": 0.5},
        {"every": 2, "check_every": 2},
        {"overlap_below": 1.1, "check_every": 2},
        {"overlap_below": 0.0, "check_every": 2},
    ],
)
def test_a_refresh_says_when_in_one_way(settings):
    with pytest.raises(ValidationError):
        Refresh(**settings)


def test_it_cannot_be_mixed():
    with pytest.raises(ValidationError, match="cannot be mixed"):
        Mixed(of=(Share(share=0.5, sampler=replay("b")), Share(share=0.5, sampler=SAMPLER)))


def test_a_prompt_that_is_not_there_or_another_one_is_refused(tmp_path):
    filled(tmp_path / "b")
    part, own = replay(tmp_path / "b"), policies()
    more = replace(PROMPTS, ids=(*PROMPTS.ids, (2, 3)), columns={"answer": tuple("abcdefghijklm")})
    with pytest.raises(ValueError, match="has no rows of prompt 12"):
        part(more.take([12]), own, torch.Generator())
    with pytest.raises(ValueError, match="prompt 0 was another one"):
        part(replace(PROMPTS, ids=PROMPTS.ids[::-1]).take([0]), own, torch.Generator())
    with pytest.raises(ValueError, match="take prompts from a PromptSet"):
        part(replace(PROMPTS.take([0]), numbers=()), own, torch.Generator())


def test_without_refresh_nothing_is_ever_written_again(tmp_path):
    buffer = filled(tmp_path / "b")
    before, own = files(buffer), with_teacher()
    for step in range(1, 5):
        assert replay(tmp_path / "b").renew(step, own, PROMPTS, DETAILS) == {}
        moved(own["small"])
    assert files(buffer) == before


def test_every_so_many_steps_the_present_student_writes_and_the_teacher_scores(tmp_path):
    buffer = filled(tmp_path / "b")
    before, own, part = files(buffer), with_teacher(), replay(tmp_path / "b", refresh=Refresh(every=2), max_age=2)
    prompts = PROMPTS.take([3, 11])
    found, metrics = [], []
    for step in range(1, 6):
        metrics.append(part.renew(step, own, PROMPTS, DETAILS))
        found.append(part(prompts, own, torch.Generator()))
        rows, (key,) = found[-1].rollouts, found[-1].signals
        assert key == SignalKey("large", 0)
        fresh = own["large"].score_all(rows).logprobs
        torch.testing.assert_close(found[-1].signals[key].logprobs.double(), fresh, atol=1e-6, rtol=0)
        moved(own["small"])
    assert [one["sampler/refreshed"] for one in metrics] == [0, 0, 1, 0, 1]
    assert [one["sampler/buffer_age"] for one in metrics] == [0, 1, 0, 1, 0]
    assert [one.rollouts.behavior.writers[0].version for one in found] == [0, 0, 2, 2, 4]
    rows, _ = in_use(part.buffer).take(PROMPTS.take(range(len(PROMPTS))), torch.device("cpu"))
    assert metrics[4]["sampler/tokens_renewed"] == int(rows.mask.sum())
    assert metrics[4]["flops/small/renew"] == ModelFlops.of(own["small"].model).sample(rows, "small")
    assert metrics[4]["flops/large/renew"] == pytest.approx(ModelFlops.of(own["large"].model).score(rows))
    assert [one["sampler/tokens_renewed"] > 0 for one in metrics] == [False, False, True, False, True]
    assert [sum(key.startswith("flops/") for key in one) for one in metrics] == [0, 0, 2, 0, 2]
    assert [name for name in files(buffer) if "refreshed" not in name] == before  # other runs still find these
    assert in_use(part.buffer).path.name == "step-5"
    assert len(list((tmp_path / "b" / "refreshed").glob("*/step-*"))) == 1  # what was replaced is gone
    written = in_use(part.buffer).path
    part.renew(1, policies(), PROMPTS, DETAILS)  # another run
    assert in_use(part.buffer) == buffer
    assert Buffer(written).exists


def test_rows_written_anew_are_those_of_the_present_weights(tmp_path):
    filled(tmp_path / "b")
    own, part = with_teacher(), replay(tmp_path / "b", refresh=Refresh(every=1))
    moved(own["small"], by=1.0)
    part.renew(1, own, PROMPTS, DETAILS)
    part.renew(2, own, PROMPTS, DETAILS)
    rows = part(PROMPTS.take(range(12)), own, torch.Generator()).rollouts
    fresh = own["small"].score_all(rows).logprobs
    torch.testing.assert_close(rows.behavior.logprobs.double(), fresh, atol=1e-4, rtol=0)


@pytest.mark.parametrize("below", [0.01, 1.0])
def test_the_buffer_is_written_anew_when_the_overlap_has_fallen(below, tmp_path):
    filled(tmp_path / "b")
    own = with_teacher()
    part = replay(tmp_path / "b", refresh=Refresh(overlap_below=below, check_every=3))
    metrics = [part.renew(step, own, PROMPTS, DETAILS) for step in range(1, 8)]
    checked = [step for step, one in enumerate(metrics, 1) if "sampler/overlap" in one]
    assert checked == [4, 7]
    assert 0.01 < metrics[3]["sampler/overlap"] < 1
    few = PROMPTS.take(range(part.prompts_per_shard))
    looked = part.of(few, own, torch.Generator().manual_seed(part.seed + 1009 * 7))
    written = [in_use(part.buffer).take(PROMPTS.take(range(12)), torch.device("cpu"))[0]] if below == 1 else []
    last, flops = [looked, *written], {name: ModelFlops.of(own[name].model) for name in own}
    assert metrics[6]["sampler/tokens_renewed"] == sum(int(rows.mask.sum()) for rows in last)
    assert metrics[6]["flops/small/renew"] == pytest.approx(
        sum(flops["small"].sample(rows, "small") for rows in last) + flops["small"].score(looked)
    )
    assert metrics[6]["flops/large/renew"] == pytest.approx(sum(flops["large"].score(rows) for rows in last))
    assert [one["sampler/tokens_renewed"] > 0 for one in metrics] == [step in checked for step in range(1, 8)]
    assert [one["sampler/refreshed"] for one in metrics] == [
        float(step in checked and below == 1) for step in range(1, 8)
    ]


def test_a_run_without_refresh_reads_what_the_initial_policies_wrote(tmp_path):
    filled(tmp_path / "b")
    own, plain, anew = with_teacher(), replay(tmp_path / "b"), replay(tmp_path / "b", refresh=Refresh(every=1))
    before = plain(PROMPTS.take([0]), own, torch.Generator()).rollouts
    moved(own["small"], by=1.0)
    for step in (1, 2):
        anew.renew(step, own, PROMPTS, DETAILS)
    after = plain(PROMPTS.take([0]), own, torch.Generator()).rollouts
    assert torch.equal(before.tokens, after.tokens)
    assert after.behavior.writers[0].version == 0
    assert anew(PROMPTS.take([0]), own, torch.Generator()).rollouts.behavior.writers[0].version == 1


def test_only_scores_that_are_asked_for_are_read(tmp_path):
    buffer = filled(tmp_path / "b")
    part, own = replay(tmp_path / "b"), with_teacher()
    damaged = next((buffer.path / "scores" / "large").glob("*.arrow"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert part(PROMPTS.take(range(12)), own, torch.Generator(), details={}).signals == {}
    assert part(PROMPTS.take(range(12)), own, torch.Generator(), details={"large": Detail(full=True)}).signals == {}
    with pytest.raises(ValueError, match="is damaged"):
        part(PROMPTS.take(range(12)), own, torch.Generator(), details=DETAILS)
