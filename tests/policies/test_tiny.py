"""The tiny pair as shipped, and the command that remakes it."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_kit.policies.tiny import tiny_path
from grpo_kit.policies.tiny.warm_up import PLANS, accuracy, warm_up

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny matrices are slower on several threads, much slower on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
