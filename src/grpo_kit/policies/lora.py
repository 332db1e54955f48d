"""Low-rank adapters by peft: put into a model, taken out again, merged into whole weights."""

from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from grpo_kit.parts import did_you_mean, table


@table
class Lora:
    r"""Train low-rank adapters instead of the weights (LoRA, arXiv:2106.09685): $W' = W + s B A$ with $s = \alpha / r$.

    The model's own weights $W$ stay as loaded, in the policy's `dtype`. Of each layer $A$ (r x inputs) and $B$
    (outputs x r) alone learn, kept in float32 (float64 in a float64 policy). $B$ starts at 0, so that the fresh policy
    is the model itself. Learning rates are about ten times those of whole weights. A run saves the whole weights, and
    the adapter in `adapter/` beside them. Needs the extra: `pip install 'grpo-kit[lora]'`.

    Attributes:
        rank: r, at least 1.
        alpha: $\alpha$, above 0.
        rslora: divide by $\sqrt r$ instead (rsLoRA, arXiv:2312.03732), for large ranks.
        targets: last names of the linear layers that get an adapter, such as `q_proj`; left out: every linear layer
            but the output head, which never gets one.
    """

    rank: Annotated[int, Field(ge=1)] = 32
    alpha: Annotated[float, Field(gt=0)] = 32.0
    rslora: bool = False
    targets: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] | None = None


def mistake_of(lora: Lora, config: Any, *, trust_remote_code: bool) -> str | None:
    """Why a model of a configuration cannot have these adapters; None where it can."""
    if find_spec("peft") is None:
        return "needs peft: pip install 'grpo-kit[lora]'"
    if lora.targets is None:
        return None
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    known = linear_layers(model)
    for name in lora.targets:
        if name not in known:
            guess = did_you_mean(name, dict.fromkeys(known))
            return f"targets: the model has no linear layer '{name}'.{guess} Known: {', '.join(known)}"
    return None


def linear_layers(model: PreTrainedModel) -> tuple[str, ...]:
    """The last names of a model's linear layers, but for the output head's."""
    head = model.get_output_embeddings()
    found = (name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear | Conv1D))
    of_head = next((name for name, layer in model.named_modules() if layer is head), "")
    return tuple(dict.fromkeys(name.rpartition(".")[2] for name in found if name != of_head))


def adapt(model: PreTrainedModel, lora: Lora, *, seed: int) -> Any:
    """Put adapters into a model, in place, and let them alone learn; peft's `PeftModel` around it.

    The numbers in $A$ are drawn from `seed`. ValueError without peft.
    """
    try:
        import peft
    except ImportError as error:
        raise ValueError("lora needs peft: pip install 'grpo-kit[lora]'") from error
    settings = peft.LoraConfig(
        task_type=peft.TaskType.CAUSAL_LM,
        r=lora.rank,
        lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType]
        use_rslora=lora.rslora,
        target_modules="all-linear" if lora.targets is None else list(lora.targets),
    )
    with torch.random.fork_rng(devices=[]):  # peft draws from torch's own generator, on the CPU
        torch.default_generator.manual_seed(seed)
        return peft.get_peft_model(model, settings).eval()


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """A frozen copy of a live model that shares what cannot change: the tensors that do not learn."""
    fixed = {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    return deepcopy(model, fixed).requires_grad_(False)  # pyright: ignore[reportArgumentType]


def without_adapters(model: PreTrainedModel) -> PreTrainedModel:
    """The model as it was before it was adapted; it shares its weights with the adapted one."""
    bare = copied(model)
    for name, layer in adapted_layers(bare).items():
        bare.set_submodule(name, layer.base_layer)
    return bare


def adapted_layers(model: PreTrainedModel) -> dict[str, Any]:
    """The layers that peft put adapters into, by their names."""
    return {name: layer for name, layer in model.named_modules() if hasattr(layer, "get_delta_weight")}


def whole_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    r"""Every weight by the name it has without adapters, detached, with $s B A$ added where there is an adapter.

    Sums are formed one at a time, in the wider precision, and rounded to that of $W$. Tied weights come once, under
    their first name. The model is left as it is.
    """
    layers, lasting = adapted_layers(model), model.state_dict().keys()
    added = {f"{name}.{own}" for name, layer in layers.items() for own in layer.state_dict() if not _is_base(own)}
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if name in added or name not in lasting:
            continue
        layer, _, own = name.partition(".base_layer.")
        if layer not in layers:
            yield name, weight.detach()
        elif own == "weight":
            yield f"{layer}.{own}", _merged(weight, layers[layer])
        else:
            yield f"{layer}.{own}", weight.detach()


def _is_base(name: str) -> bool:
    return name.startswith("base_layer.")


@torch.no_grad()
def _merged(weight: Tensor, layer: Any) -> Tensor:
    delta = layer.get_delta_weight("default")
    return torch.where(delta == 0, weight, (weight.to(delta.dtype) + delta).to(weight.dtype))  # -0 + 0 would be 0
