"""What a buffer's rows and scores are a function of, as a table that can be compared and read."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.disk import file_hash
from grpo_kit.hub import from_hub
from grpo_kit.parts import as_table
from grpo_kit.policies import Policy, PolicySpec
from grpo_kit.policies.load import model_folder

Identity = Mapping[str, Any]
"""Plain values by name, as JSON keeps them."""

WEIGHT_FILES = ("*.safetensors", "*.bin", "*.gguf", "config.json", "generation_config.json")
"""The files of a model's folder that decide what it computes and when it stops."""

LATER = [("min_p", 0.0)]
"""Settings of samplers that came after the first buffers, at the value with which those were written."""


def rollout_identity(
    sampler: object,
    weights: Mapping[str, str],
    tokenizer: PreTrainedTokenizerBase,
    prompts: PromptSet,
    *,
    seed: int,
    prompts_per_shard: int,
    vocabulary: int,
) -> dict[str, Any]:
    """What rollouts are a function of: who writes (`weights` by policy), how, and about which prompts.

    `vocabulary` is what all policies of the recipe have in common: every distribution is over it.
    """
    return {
        **{f"policies.{name}": said for name, said in weights.items()},
        **prompts_identity(tokenizer, prompts),
        "vocabulary": vocabulary,
        "prompts": len(prompts),
        "prompts_per_shard": prompts_per_shard,
        **{f"sampling.{key}": value for key, value in _of_rows(as_table(sampler)).items()},
        "seed": seed,
    }


def prompts_identity(tokenizer: PreTrainedTokenizerBase, prompts: PromptSet) -> dict[str, Any]:
    """What is asked, and the tokenizer that says it."""
    template = tokenizer.chat_template
    return {
        "tokenizer.vocabulary": _hash(sorted(tokenizer.get_vocab().items())),
        "tokenizer.chat_template": _hash(template) if template else "none",
        "data.prompts": _hash(prompts.ids),
        **{f"data.columns.{name}": _hash(values) for name, values in sorted(prompts.columns.items())},
    }


def score_identity(weights: str, detail: Detail, temperature: float) -> dict[str, Any]:
    """What a policy's scores are a function of, beside the rows."""
    return {"weights": weights, "temperature": temperature, "top_k": detail.top_k}


def weights_of(spec: PolicySpec) -> str:
    """The weights of a recipe's policy before it learns, found without loading them, and the precision it computes in.

    A folder's are the hash of its files, a hub model's its name and the commit that the hub (or the cache) gives.
    """
    assert spec.model is not None, "a follower has no weights of its own"
    folder = Path(model_folder(spec.model))
    if folder.is_dir():
        files = sorted({file for pattern in WEIGHT_FILES for file in folder.glob(pattern)})
        said = _hash([(file.name, _file_hash(file, file.stat().st_mtime_ns)) for file in files])
    else:
        with from_hub():
            config: Any = AutoConfig.from_pretrained(spec.model, trust_remote_code=spec.trust_remote_code)
        said = f"{spec.model} at commit {config._commit_hash}"
    by = "" if spec.engine is None else f", scored by {getattr(spec.engine, 'kind', type(spec.engine).__name__)}"
    return f"{said}, {spec.gguf_file + ', ' if spec.gguf_file else ''}{spec.dtype}{by}"


def parameters_of(policy: Policy) -> str:
    """The weights of a policy as they are now, by their values, adapters merged; those an engine has, by their name."""
    if not policy.has_weights:
        return f"{policy.model.name_or_path}, in an engine"
    digest = hashlib.sha256()
    for name, weight in policy.whole_weights():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    precision = policy.autocast or policy.model.dtype
    return f"sha256:{digest.hexdigest()}, {str(precision).removeprefix('torch.')}"


def differences(there: Identity, here: Identity) -> list[str]:
    """Everything in which two identities differ, with both values."""
    names = list(dict.fromkeys([*here, *there]))
    return [
        f"{name} is {_short(there.get(name, 'nothing'))} there and {_short(here.get(name, 'nothing'))} here"
        for name in names
        if _plain(there.get(name)) != _plain(here.get(name))
    ]


def _of_rows(table: Any) -> Any:
    """The settings of a sampler that change its rows: not how many it decodes together, nor a later one left alone."""
    if isinstance(table, Mapping):
        kept = {key: value for key, value in table.items() if key != "rows_per_batch" and (key, value) not in LATER}
        return {key: _of_rows(value) for key, value in kept.items()}
    if isinstance(table, list):
        return [_of_rows(value) for value in table]
    return table


def _hash(value: Any) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(word[:19] + "..." if word.startswith("sha256:") else word for word in text.split(" "))


@lru_cache
def _file_hash(file: Path, changed: int) -> str:
    return file_hash(file)
