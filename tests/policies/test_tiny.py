"""The tiny pair as shipped, and the command that remakes it."""

from dataclasses import replace
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from grpo_kit.policies.tiny import tiny_path
from grpo_kit.policies.tiny.warm_up import PLANS, accuracy, batches, make_tokenizer, warm_up

pytestmark = pytest.mark.usefixtures("one_thread")
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"tiny model 'medium' does not exist\. Known: small, large\."):
        tiny_path("medium")


@pytest.mark.parametrize(("name", "fewest", "most"), [("small", 120_000, 160_000), ("large", 1_000_000, 1_200_000)])
def test_models_load(name, fewest, most):
    model = AutoModelForCausalLM.from_pretrained(tiny_path(name))
    tokenizer = AutoTokenizer.from_pretrained(tiny_path(name))
    assert fewest <= model.num_parameters() <= most
    assert model.dtype == torch.float16
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id != tokenizer.pad_token_id


def test_the_pair_is_small_and_complete():
    files = [path for name in ("small", "large") for path in tiny_path(name).iterdir()]
    assert {path.name for path in files} == FILES
    assert sum(path.stat().st_size for path in files) < 3e6


@pytest.mark.parametrize("name", ["small", "large"])
def test_the_tokenizer_gives_every_text_back_and_adds_nothing(name):
    tokenizer = AutoTokenizer.from_pretrained(tiny_path(name))
    text = "3+8-5+2=3+8=11\n11-5=6\n6+2=8\n\\boxed{8}"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text) - len("\\boxed{") + 1
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text


def test_the_tokenizers_of_the_pair_are_one():
    small, large = (AutoTokenizer.from_pretrained(tiny_path(name)).get_vocab() for name in ("small", "large"))
    assert small == large


@pytest.mark.slow
def test_the_large_model_is_the_better_one_and_both_know_more_than_they_say():
    for task, floor in (("plain", 0.1), ("sparse", 0.01)):
        small, large = (accuracy(tiny_path(n), task, temperature=1.0, questions=128) for n in ("small", "large"))
        greedy = accuracy(tiny_path("small"), task, temperature=0.0, questions=128)
        assert floor < small < large
        assert greedy > small + 0.2


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_warm_up_writes_folders_that_load(plan, tmp_path):
    folder = warm_up(tmp_path, plan, steps=1)
    assert {path.name for path in folder.iterdir()} == FILES
    assert 0 <= accuracy(folder, "plain", temperature=1.0, questions=4) <= 1


def test_warm_up_is_decided_by_its_seed(tmp_path):
    plan = replace(PLANS[0], name="again")
    weights = [
        AutoModelForCausalLM.from_pretrained(warm_up(tmp_path / str(number), plan, seed=seed, steps=1)).state_dict()
        for number, seed in enumerate((5, 5, 6))
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not all(torch.equal(weights[0][key], weights[2][key]) for key in weights[0])


def test_the_shipped_pair_learned_from_these_answers():
    examples, tokenizer = batches(make_tokenizer(), PLANS[0], Random(0)), make_tokenizer()
    texts = [tokenizer.decode(ids[0], skip_special_tokens=True) for ids, _ in (next(examples) for _ in range(3))]
    assert texts == [
        "4+1-8=4+1=0\n0-8=-5\n\\boxed{-5}",
        "9-3-3-7=9-3=5\n5-3=2\n2-7=2\n\\boxed{2}",
        "6-6-0+7-6=6-6=0\n0-0=0\n0+7=7\n7-6=1\n\\boxed{1}",
    ]


def test_answers_of_another_writer_are_learned(tmp_path):
    given = []

    def write(question, error_rate, random):
        given.append(error_rate)
        return "7" * random.randint(1, 4)

    plan = replace(PLANS[0], name="other", batch=8)
    ids, labels = next(batches(make_tokenizer(), plan, Random(0), write))
    assert set(labels.unique().tolist()) == {-100, 1, make_tokenizer().convert_tokens_to_ids("7")}
    assert ids.shape == labels.shape
    assert given == [plan.error_rate] * 8
    own, other = (
        LlamaForCausalLM.from_pretrained(warm_up(tmp_path / name, plan, steps=2, **settings)).state_dict()
        for name, settings in (("own", {}), ("other", {"write": write}))
    )
    assert not all(torch.equal(own[key], other[key]) for key in own)


def test_a_warm_up_goes_on_from_a_model(tmp_path):
    small = LlamaForCausalLM.from_pretrained(tiny_path("small"), dtype=torch.float32)
    folder = warm_up(tmp_path, replace(PLANS[0], name="same"), steps=0, model=small)
    same, before = (LlamaForCausalLM.from_pretrained(path).state_dict() for path in (folder, tiny_path("small")))
    assert all(torch.equal(same[key], before[key]) for key in before)
