"""A buffer that would become larger than it may is found out early, and what was finished is kept."""

import pytest

from buffers.buffering import PROMPTS, SAMPLER, begun, files, filled, policies
from grpo_kit.buffers import fill
from grpo_kit.detail import Detail

DETAILS = {"large": Detail()}


def test_the_first_shard_says_that_all_would_be_too_large(tmp_path):
    whole = filled(tmp_path / "whole")
    gib = whole.bytes_of(3) / 2**30
    assert gib > 0
    buffer = begun(tmp_path / "own")
    with pytest.raises(ValueError, match=r"1 of 3 shards have .* GiB, so all would have about .*, and max_gib is"):
        fill(buffer, SAMPLER, PROMPTS, policies(), DETAILS, max_gib=gib / 2)
    assert len(files(buffer)) == 2
    fill(buffer, SAMPLER, PROMPTS, policies(), DETAILS, max_gib=2 * gib)
    assert files(buffer) == files(whole)


def test_a_shard_that_is_written_again_counts_only_what_is_before_it(tmp_path):
    buffer = filled(tmp_path / "own")
    before, gib = files(buffer), buffer.bytes_of(3) / 2**30
    buffer.remove(0)
    fill(buffer, SAMPLER, PROMPTS, policies(), DETAILS, max_gib=1.5 * gib)
    assert files(buffer) == before


def test_a_buffer_that_is_there_is_never_too_large(tmp_path):
    buffer = filled(tmp_path / "own")
    assert fill(buffer, SAMPLER, PROMPTS, {}, DETAILS, max_gib=1e-12).written == 0
