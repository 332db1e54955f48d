"""What an evaluation may be pointed at."""

import pytest
import tomli_w

from grpo_kit import PolicySpec
from grpo_kit.evaluation.models import find_models


@pytest.fixture
def run_folder(tmp_path):
    """A run folder with one policy of two written."""
    recipe = {
        "policies": {
            "small": {"model": "tiny:small", "dtype": "bfloat16", "trust_remote_code": True},
            "large": {"model": "somewhere", "gguf_file": "x.gguf"},
            "slow": {"follows": "small", "decay": 0.5},
        }
    }
    (tmp_path / "recipe.resolved.toml").write_text(tomli_w.dumps(recipe))
    for name in ("small", "large"):
        (tmp_path / "policies" / name).mkdir(parents=True)
        (tmp_path / "policies" / name / "config.json").write_text("{}")
    return tmp_path


def test_a_run_folder_gives_its_trained_policies(run_folder):
    found = find_models(str(run_folder), device="cpu")
    folder = run_folder / "policies"
    assert found.specs == {
        "small": PolicySpec(model=str(folder / "small"), device="cpu", dtype="bfloat16", trust_remote_code=False),
        "large": PolicySpec(model=str(folder / "large"), device="cpu"),
    }
    assert found.recipe["policies"]["large"]["model"] == "somewhere"


def test_one_policy_of_a_run_and_another_precision(run_folder):
    found = find_models(str(run_folder), policy="small", dtype="float32")
    assert list(found.specs) == ["small"]
    assert found.specs["small"].dtype == "float32"


def test_a_policy_that_is_not_there_is_named_with_those_that_are(run_folder):
    with pytest.raises(ValueError, match=r"has no policy 'smal'\. Did you mean 'small'\? It has: small, large\."):
        find_models(str(run_folder), policy="smal")
    with pytest.raises(ValueError, match=r"has no policy 'slow'"):
        find_models(str(run_folder), policy="slow")


def test_a_run_without_policies_says_so(tmp_path):
    (tmp_path / "recipe.resolved.toml").write_text(tomli_w.dumps({"policies": {"small": {"model": "tiny:small"}}}))
    with pytest.raises(ValueError, match=r"is a run folder without trained policies \(none in .*policies\)"):
        find_models(str(tmp_path))


def test_anything_else_is_a_model(tmp_path):
    assert find_models("tiny:small").specs == {"tiny:small": PolicySpec(model="tiny:small")}
    assert find_models("owner/name", dtype="bfloat16").specs == {
        "name": PolicySpec(model="owner/name", dtype="bfloat16")
    }
    assert find_models(f"{tmp_path}/").specs == {tmp_path.name: PolicySpec(model=f"{tmp_path}/")}
    with pytest.raises(ValueError, match="--policy picks one of a run folder's policies, and 'tiny:small' is no run"):
        find_models("tiny:small", policy="small")
    with pytest.raises(ValueError, match=r"--dtype 'float23' is unknown\. Did you mean 'float32'"):
        find_models("tiny:small", dtype="float23")


def test_a_gguf_file_is_found_in_its_folder(tmp_path):
    (tmp_path / "one.gguf").touch()
    expected = PolicySpec(model=str(tmp_path), gguf_file="one.gguf")
    assert list(find_models(str(tmp_path)).specs.values()) == [expected]
    assert find_models(str(tmp_path / "one.gguf")).specs == {"one.gguf": expected}
    (tmp_path / "two.gguf").touch()
    with pytest.raises(ValueError, match=r"has 2 GGUF files; give one of them: .*one\.gguf, .*two\.gguf"):
        find_models(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert list(find_models(str(tmp_path)).specs.values()) == [PolicySpec(model=str(tmp_path))]
