"""A buffer of another student, teacher, tokenizer, data set or setting is refused, with all that differs."""

import copy
import json
import shutil
from dataclasses import replace

import pytest
import torch

import tiny
from buffers.buffering import PROMPTS, SAMPLER, begun, filled
from grpo_kit import Buffer, Mixed, PolicySpec, Share
from grpo_kit.buffers.fingerprints import parameters_of, rollout_identity, weights_of
from grpo_kit.policies.tiny import tiny_path

OTHER_ORDER = replace(PROMPTS, ids=PROMPTS.ids[::-1])
CHANGES = {
    "policies.small": {"student": 5},
    "data.prompts": {"prompts": OTHER_ORDER},
    "data.columns.answer": {"prompts": replace(PROMPTS, columns={"answer": tuple("abcdefghijkL")})},
    "data.columns.more": {"prompts": replace(PROMPTS, columns={**PROMPTS.columns, "more": tuple("x" * 12)})},
    "sampling.temperature": {"sampler": replace(SAMPLER, temperature=0.9)},
    "sampling.min_p": {"sampler": replace(SAMPLER, min_p=0.1)},
    "sampling.samples": {"sampler": replace(SAMPLER, samples=4)},
    "sampling.stop": {"sampler": replace(SAMPLER, stop=("a",))},
    "prompts_per_shard": {"each": 6},
    "seed": {"seed": 1},
    "scores/large: weights": {"teacher": 5},
    "scores/large: top_k": {"top_k": 3},
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_thing_that_differs_is_named_with_both_values(name, tmp_path):
    filled(tmp_path / "b")
    begun(tmp_path / "b", **{"sampler": replace(SAMPLER, rows_per_batch=2)})  # no change of the rows
    with pytest.raises(ValueError, match="is not this recipe's") as caught:
        begun(tmp_path / "b", **CHANGES[name])
    said = str(caught.value)
    assert said.startswith(f"buffer {tmp_path / 'b'} is not this recipe's: {name} is ")
    assert " there and " in said
    assert said.count(" there and ") == 1
    assert said.endswith(". Give another folder, or remove this one to fill it anew")


@pytest.mark.parametrize(
    "sampler", [SAMPLER, Mixed(of=(Share(share=0.5, sampler=SAMPLER),) * 2)], ids=["plain", "mixed"]
)
def test_a_setting_that_older_versions_had_not_is_no_difference_at_its_default(sampler):
    found = rollout_identity(sampler, {}, tiny.tokenizer(), PROMPTS, seed=0, prompts_per_shard=4, vocabulary=12)
    assert "min_p" not in json.dumps(found)
    assert "top_p" in json.dumps(found)


def test_all_differences_are_named_at_once(tmp_path):
    begun(tmp_path / "b")
    with pytest.raises(ValueError, match="is not this recipe's") as caught:
        begun(tmp_path / "b", seed=7, teacher=3, sampler=replace(SAMPLER, temperature=0.5))
    for part in (
        "seed is 0 there and 7 here",
        "sampling.temperature is 1.0 there and 0.5 here",
        "scores/large: weights",
    ):
        assert part in str(caught.value)


def test_fewer_of_the_likeliest_tokens_than_there_are_will_do(tmp_path):
    begun(tmp_path / "b", top_k=8)
    begun(tmp_path / "b", top_k=3)
    with pytest.raises(ValueError, match="top_k is 8 there and 9 here"):
        begun(tmp_path / "b", top_k=9)


def test_the_tokenizer_is_its_vocabulary_and_its_chat_template():
    def identity(tokenizer):
        found = rollout_identity(SAMPLER, {}, tokenizer, PROMPTS, seed=0, prompts_per_shard=4, vocabulary=12)
        return {name: value for name, value in found.items() if name.startswith("tokenizer")}

    plain = tiny.tokenizer()
    other, chatty = copy.deepcopy(plain), copy.deepcopy(plain)
    other.add_tokens(["k"])
    chatty.chat_template = "{{ messages }}"
    found = [identity(one) for one in (plain, other, chatty)]
    assert [one["tokenizer.vocabulary"] == found[0]["tokenizer.vocabulary"] for one in found] == [True, False, True]
    assert [one["tokenizer.chat_template"] == "none" for one in found] == [True, True, False]


def test_weights_of_a_folder_are_those_of_its_files(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_path("small"), folder)
    spec = PolicySpec(model=str(folder))
    assert weights_of(spec) == weights_of(PolicySpec(model="tiny:small"))
    assert weights_of(spec).endswith(", float32")
    assert weights_of(replace(spec, dtype="bfloat16")).removesuffix("bfloat16") == weights_of(spec).removesuffix(
        "float32"
    )
    before = weights_of(spec)
    (folder / "README.md").write_text("no weights")
    assert weights_of(spec) == before
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 1.0}))
    assert weights_of(spec) != before


def test_parameters_are_told_apart_by_every_value():
    own = tiny.policy()
    before = parameters_of(own)
    assert before == parameters_of(tiny.policy("other name"))
    with torch.no_grad():
        next(iter(own.model.parameters())).view(-1)[0] += 1e-9
    assert parameters_of(own) != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 99, "identity": {}}', "is of format 99, and this version of grpo_kit reads 1"),
    ],
)
def test_a_torn_or_newer_description_is_refused(text, said, tmp_path):
    buffer = begun(tmp_path / "b")
    (buffer.path / "buffer.json").write_text(text)
    with pytest.raises(ValueError, match=said):
        begun(tmp_path / "b")


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files and no buffer"):
        begun(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    assert not Buffer(tmp_path).exists
