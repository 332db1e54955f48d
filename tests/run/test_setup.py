"""What a recipe names in the world is looked at before anything is trained, together with the recipe itself."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpo_kit import PolicySpec, RecipeError, read_recipe
from grpo_kit.policies import load_policy
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run.setup import load_inputs, load_policies, open_recipe


def mistakes(recipe: str, *settings: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        open_recipe(recipe, settings=settings)
    return [mistake.split(":")[0] for mistake in caught.value.mistakes]


def test_mistakes_of_the_recipe_and_of_the_world_are_listed_together(tmp_path):
    found = mistakes(
        "gsm8k",
        "stepz=3",
        "learners.student.rewards.fromat=1.0",
        f"policies.student.model={tmp_path / 'nowhere'}",
        f"data.path={tmp_path / 'none.jsonl'}",
        "data.name=",
    )
    assert found == ["stepz", "learners.student.rewards", "policies.student.model", "data"]
    found = mistakes("gsm8k", "stepz=3", "policies.student.model=tiny:small", "data.path=none.jsonl", "data.name=")
    assert found == ["stepz", "data"]


def test_data_with_a_mistake_of_its_own_is_not_read():
    assert mistakes("grpo", "data.rowz=3", "steps=0") == ["steps", "data.rowz"]


@pytest.mark.slow
def test_a_model_needs_positions_for_the_longest_row():
    with pytest.raises(RecipeError) as caught:
        open_recipe("grpo", settings=["sampler.max_new_tokens=250"])
    assert caught.value.mistakes == (
        "policies.small: the longest prompt (10 tokens) and max_new_tokens = 250 need 260 positions; 'tiny:small' has "
        "256. Lower max_new_tokens or max_prompt_tokens.",
    )
    open_recipe("grpo", settings=["sampler.max_new_tokens=246"])
    assert mistakes("grpo", "evaluation.max_new_tokens=247") == ["policies.small"]


@pytest.mark.slow
def test_a_device_that_is_not_there_is_named():
    found = mistakes("grpo", "policies.small.device=banana")
    assert found == ["policies.small.device"]
    assert mistakes("grpo", "policies.small.device='cuda:99'") == ["policies.small.device"]


def test_a_model_with_a_tensor_missing_is_refused(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_path("small"), folder)
    weights = load_file(folder / "model.safetensors")
    gone = "model.layers.0.mlp.up_proj.weight"
    save_file(
        {name: weight for name, weight in weights.items() if name != gone},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ValueError, match=f"has no weights for 1 tensors, {gone} first"):
        load_policy("small", PolicySpec(model=str(folder)), live=False)


@pytest.mark.parametrize("content", [b"", b"junk", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_damaged_weights_file_is_refused(content, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_path("small"), folder)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be loaded: "):
        load_policy("small", PolicySpec(model=str(folder)), live=False)


@pytest.mark.slow
def test_a_vocabulary_padded_to_another_size_is_used_on_its_common_part(tmp_path):
    padded = load_policy("large", PolicySpec(model="tiny:large"), live=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        padded.model.resize_token_embeddings(32)
    padded.save(tmp_path / "padded")
    recipe = read_recipe("codistill", settings=[f"policies.large.model={tmp_path / 'padded'}"])
    load_inputs(recipe)  # the tokenizers agree
    policies = load_policies(recipe)
    assert policies["small"].vocabulary == policies["large"].vocabulary == 19
    prompts = load_inputs(recipe).prompts.take([0, 1])
    rollouts = recipe.sampler(prompts, policies, torch.Generator().manual_seed(0))
    plain = load_policy("large", PolicySpec(model="tiny:large"), live=False).score_all(rollouts).logprobs
    assert torch.allclose(
        policies["large"].score_all(rollouts).logprobs[rollouts.mask], plain[rollouts.mask], atol=1e-5
    )


def test_a_live_policy_keeps_float32_weights_and_computes_below():
    live = load_policy("small", PolicySpec(model="tiny:small", dtype="bfloat16"), live=True)
    frozen = load_policy("small", PolicySpec(model="tiny:small", dtype="bfloat16"), live=False)
    assert (live.model.dtype, live.autocast) == (torch.float32, torch.bfloat16)
    assert (frozen.model.dtype, frozen.autocast) == (torch.bfloat16, None)


def test_code_of_a_model_does_not_run_before_it_is_allowed(tmp_path):
    load_policy("small", PolicySpec(model="tiny:small"), live=False).save(tmp_path / "model")
    settings = json.loads((tmp_path / "model/tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": ["tok.Tok", "tok.Tok"]}, "tokenizer_class": "Tok"}
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "model/tok.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Tok: pass\n")
    given = ["data.rows=8", f"policies.small.model='{tmp_path / 'model'}'", "policies.small.trust_remote_code=true"]
    with pytest.raises(RecipeError, match="allow it with --allow-code"):
        open_recipe("grpo", settings=given)
    assert not (tmp_path / "ran").exists()
