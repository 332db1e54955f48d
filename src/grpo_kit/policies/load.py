"""Find and load the models a recipe names: the tiny pair, a local folder, a hub name, a GGUF file."""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from grpo_kit.engines.role import ENGINES, Engine
from grpo_kit.hub import from_hub
from grpo_kit.parts import table
from grpo_kit.policies.lora import Lora, adapt, mistake_of
from grpo_kit.policies.policy import Policy
from grpo_kit.policies.tiny import tiny_path

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
HALF = (torch.bfloat16, torch.float16)


@table
class PolicySpec:
    """One policy of a recipe: where its weights come from and how it computes.

    A policy is *live* when a learner of the same name trains it, a *follower* when it `follows` a live one, and
    *frozen* otherwise.

    Attributes:
        model: `tiny:small`, `tiny:large`, a local folder, or a name on the Hugging Face hub; left out for a follower,
            which starts as a copy of the policy it follows.
        follows: the live policy whose weights it follows.
        decay: of a follower: how much of its own weights it keeps at an update, in [0, 1); 0 is a hard copy.
        every: of a follower: steps of the loop between its updates.
        gguf_file: name of a GGUF file inside the model's folder, which is then dequantized.
        device: where it computes, `cpu`, `cuda`, `cuda:1`, ...; `auto` takes a GPU where there is one.
        dtype: precision it computes in; a live policy keeps its weights in float32 all the same (or float64), but for
            those that stand still beside an adapter.
        lora: a live policy learns low-rank adapters instead of its weights.
        attention: attention implementation, as transformers names it (`sdpa`, `eager`, `flash_attention_2`, ...).
        micro_batch_tokens: largest number of padded tokens in one forward pass; lower it when memory runs out.
        trust_remote_code: run code that comes with the model.
        engine: scores a frozen policy (a teacher), whose weights are then not loaded here; see `engines`.
    """

    model: str | None = None
    follows: str | None = None
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    every: Annotated[int, Field(ge=1)] = 1
    gguf_file: str | None = None
    device: str = "auto"
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    attention: str | None = None
    micro_batch_tokens: Annotated[int, Field(ge=1)] = 16384
    trust_remote_code: bool = False
    lora: Lora | None = None
    engine: Annotated[Engine, ENGINES] | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> "PolicySpec":
        if (self.model is None) == (self.follows is None):
            raise ValueError(
                "give either model (its own weights) or follows (those of a live policy), not both or none"
            )
        if self.follows is None and (self.decay != 0 or self.every != 1):
            raise ValueError("decay and every belong to a follower; give follows or leave them out")
        for name in ("gguf_file", "device", "dtype", "attention", "trust_remote_code", "lora", "engine"):
            if self.follows is not None and getattr(self, name) != PolicySpec.__dataclass_fields__[name].default:
                raise ValueError(f"a follower takes {name} from '{self.follows}'; remove it here")
        for name in ("device", "attention", "micro_batch_tokens"):
            if self.engine is not None and getattr(self, name) != PolicySpec.__dataclass_fields__[name].default:
                raise ValueError(f"{name} is of no effect, since its engine computes; remove {name} or engine")
        if self.engine is not None and self.gguf_file is not None:
            raise ValueError("gguf_file: an engine reads a model's own format; remove gguf_file or engine")
        return self


def model_folder(model: str) -> str:
    """The folder or hub name behind a recipe's `model`."""
    return str(tiny_path(model.removeprefix("tiny:"))) if model.startswith("tiny:") else model


def device_of(spec: PolicySpec) -> torch.device:
    """The device a policy computes on; ValueError where this machine has no such device."""
    name = spec.device if spec.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device '{name}' is none; give cpu, cuda, cuda:1, ... or auto") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device '{name}' is not there: {torch.cuda.device_count()} GPUs are seen. Give cpu or auto")
    return device


def position_limit(spec: PolicySpec) -> int | None:
    """Tokens, prompt and completion, that a policy's model has positions for; None where it does not say.

    ValueError when there is no configuration to be had.
    """
    return getattr(configuration(spec), "max_position_embeddings", None)


def vocabulary_size(spec: PolicySpec) -> int:
    """The number of logits of a policy's model, found without its weights; errors as `position_limit`."""
    return int(configuration(spec).get_text_config().vocab_size)


def mistake_of_lora(spec: PolicySpec) -> str | None:
    """Why a policy's model cannot have the adapters it is given, found without its weights; None where it can."""
    try:
        return spec.lora and mistake_of(spec.lora, configuration(spec), trust_remote_code=spec.trust_remote_code)
    except ValueError:  # no configuration, which others say
        return None


def configuration(spec: PolicySpec) -> Any:
    """A model's configuration, found without its weights; ValueError says why there is none."""
    assert spec.model is not None
    settings: dict[str, Any] = {"gguf_file": spec.gguf_file} if spec.gguf_file else {}
    with from_hub(local=is_local(spec.model)) as fault:
        try:
            return AutoConfig.from_pretrained(
                model_folder(spec.model), trust_remote_code=spec.trust_remote_code, **settings
            )
        except Exception as error:  # damaged files raise kinds of their own
            raise ValueError(_unloadable(spec.model, fault or _problem(error))) from error


def load_tokenizer(spec: PolicySpec) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy with its own model; ValueError when there is none to be had."""
    assert spec.model is not None
    settings: dict[str, Any] = {"gguf_file": spec.gguf_file} if spec.gguf_file else {}
    with from_hub(local=is_local(spec.model)) as fault:
        try:
            return AutoTokenizer.from_pretrained(
                model_folder(spec.model), trust_remote_code=spec.trust_remote_code, **settings
            )
        except Exception as error:  # damaged files raise kinds of their own
            raise ValueError(_unloadable(spec.model, fault or _problem(error))) from error


def load_policy(name: str, spec: PolicySpec, *, live: bool, seed: int = 0) -> Policy:
    """Load a policy with its own model; ValueError when its weights are not to be had.

    What learns of a live policy is kept in float32 and computes in `dtype` under autocast, since an AdamW step of a
    usual size is lost in the rounding of bfloat16. The first numbers of an adapter are drawn from `seed`.
    """
    assert spec.model is not None
    tokenizer = load_tokenizer(spec)
    settings: dict[str, Any] = {"gguf_file": spec.gguf_file} if spec.gguf_file else {}
    if spec.attention is not None:
        settings["attn_implementation"] = spec.attention
    with from_hub(local=is_local(spec.model)) as fault:
        try:
            model, found = AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
                model_folder(spec.model),
                dtype=stored_dtype(spec, live=live),
                trust_remote_code=spec.trust_remote_code,
                output_loading_info=True,
                **settings,
            )
            model.to(device_of(spec)).eval().requires_grad_(live and spec.lora is None)
        except Exception as error:  # damaged files raise kinds of their own
            raise ValueError(_unloadable(spec.model, fault or _problem(error))) from error
    absent = sorted({*found["missing_keys"], *found["mismatched_keys"]}, key=str)
    if absent:
        raise ValueError(f"model '{spec.model}' has no weights for {len(absent)} tensors, {absent[0]} first")
    if spec.gguf_file:
        _forget_quantization(model)
    return Policy(
        name=name,
        model=model,
        tokenizer=tokenizer,
        vocabulary=int(model.get_output_embeddings().weight.shape[0]),  # pyright: ignore
        micro_batch_tokens=spec.micro_batch_tokens,
        autocast=autocast_dtype(spec, live=live),
        adapter=adapt(model, spec.lora, seed=seed) if live and spec.lora is not None else None,
    )


def stored_dtype(spec: PolicySpec, *, live: bool) -> torch.dtype:
    """The precision of weights: never a half one for what learns; what stands still is kept as it computes."""
    dtype = DTYPES[spec.dtype]
    return torch.float32 if live and spec.lora is None and dtype in HALF else dtype


def autocast_dtype(spec: PolicySpec, *, live: bool) -> torch.dtype | None:
    """The precision of a forward pass where weights that learn are wider, adapters or the model's own."""
    dtype = DTYPES[spec.dtype]
    return dtype if live and dtype in HALF else None


def _forget_quantization(model: Any) -> None:
    """Let a dequantized model be saved as the plain weights it now has."""
    for holder, name in ((model.config, "quantization_config"), (model, "hf_quantizer")):
        if hasattr(holder, name):
            delattr(holder, name)


def is_local(model: str) -> bool:
    """Whether a model is no matter of the hub."""
    return model.startswith("tiny:") or Path(model).exists() or _is_no_hub_name(model)


def _is_no_hub_name(model: str) -> bool:
    return model.startswith(("/", ".", "~")) or model.count("/") != 1


def _problem(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _unloadable(model: str, problem: str) -> str:
    if Path(model).is_dir() and not any((*Path(model).glob("config.json"), *Path(model).glob("*.gguf"))):
        return f"folder '{model}' holds no model: it has no config.json and no .gguf file"
    if model.startswith("tiny:") or Path(model).exists():
        return f"model '{model}' cannot be loaded: {problem}"
    if _is_no_hub_name(model):
        return f"model '{model}' is no folder here; give tiny:small, tiny:large, a folder or a hub name"
    return (
        f"model '{model}' is no folder here, and neither the cache nor the hub gave one: {problem}. "
        "Give tiny:small, tiny:large, a folder or a hub name"
    )
