"""What the policies and engines of a recipe take of their devices' memory, together."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_kit.engines import InProcess
from grpo_kit.explain.memory import Memory, estimate
from grpo_kit.explain.page import Table
from grpo_kit.explain.sizes import in_words
from grpo_kit.explain.writing import writing
from grpo_kit.policies.load import DTYPES, configuration
from grpo_kit.policies.served import without_weights
from grpo_kit.recipe import Recipe
from grpo_kit.run.inputs import Inputs

FIRST = "cuda:0"
"""The GPU that `auto` and `cuda` take, where there is one, and engines in this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What an engine in this process takes of a device.

    Attributes:
        policy: whose model it has.
        weights: bytes of its copy of the weights.
        row: bytes of its cache for a row of full length.
        cache: bytes of its cache where the recipe says; None where it takes what is left of `part`.
        part: share of the device that it takes in all, in (0, 1].
    """

    policy: str
    weights: int
    row: int
    cache: int | None
    part: float

    @property
    def fixed(self) -> int:
        """Bytes that it takes whatever the device."""
        return 0 if self.cache is None else self.weights + self.cache

    @property
    def relative(self) -> float:
        """Share of the device that it takes whatever its weights and rows."""
        return self.part if self.cache is None else 0.0

    @property
    def smallest(self) -> int:
        """Bytes of a device whose `part` holds the weights and a row."""
        return int((self.weights + (self.row if self.cache is None else self.cache)) / self.part)


def memory(recipe: Recipe, inputs: Inputs, longest: int) -> Iterator[str | Table]:
    """The section on memory: each policy, then each device; `longest` is the longest prompt."""
    found: list[Memory] = []
    faults: list[str] = []
    for name, spec in recipe.policies.items():
        if spec.engine is not None:
            faults.append(f"'{name}' is scored by its engine; its weights are not loaded here.")
            continue
        try:
            found.append(estimate(recipe, name, inputs.tokenizers, longest))
        except ValueError as error:
            faults.append(f"Not estimated: {error}.")
    engines = list(shares(recipe, found, longest))
    if found:
        yield _table(found)
        for own in found:
            if 0 < own.learning < own.parameters:
                yield f"Of '{own.policy}' {own.learning:,} parameters learn, its adapters."
            if own.shared:
                yield f"'{own.policy}' shares {in_words(own.shared)} of weights with a live policy, where they count."
        yield from _devices(recipe, found, engines)
        yield (
            "Parameters, weights, gradients and AdamW (its two moments) are exact. The others come on top, one at a "
            "time: the models' code run once on tensors without data, with prompts and completions of full length and "
            "as many rows at a time as micro_batch_tokens and rows_per_batch allow, as on a CPU. Evaluation, the "
            "libraries and fragmentation are not in it."
        )
    yield from faults


def shares(recipe: Recipe, found: list[Memory], longest: int) -> Iterator[Share]:
    """What the engines in this process take, each once; keys and values of every layer and token are assumed."""
    parameters = {own.policy: own.parameters - (own.learning if own.learning < own.parameters else 0) for own in found}
    requests = [request.sampler for own in writing(recipe) for request in own.requests]
    longest += getattr(recipe.sampler, "max_new_tokens", 0)
    engines: list[tuple[str, Any]] = [(own.policy, own.engine) for own in requests if hasattr(own, "engine")]
    for name, spec in recipe.policies.items():
        if isinstance(spec.engine, InProcess):
            bare = without_weights(configuration(spec), None, dtype=DTYPES[spec.dtype], trust_remote_code=False)
            parameters[name] = sum(weight.numel() for weight in bare.parameters())
            engines.append((name, spec.engine))
    for name, engine in dict.fromkeys(engines):
        if not isinstance(engine, InProcess) or name not in parameters:
            continue
        spec = recipe.policies[name]
        spec = recipe.policies[spec.follows] if spec.follows else spec
        own = "float32" if spec.dtype == "float64" else spec.dtype
        size, config = DTYPES[engine.dtype or own].itemsize, configuration(spec).get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        token = 2 * config.num_hidden_layers * heads * width * size
        yield Share(
            policy=name,
            weights=parameters[name] * size // engine.tensor_parallel_size,
            row=token * longest // engine.tensor_parallel_size,
            cache=None if engine.kv_cache_gib is None else int(engine.kv_cache_gib * 2**30),
            part=engine.gpu_memory_utilization,
        )


def _table(found: list[Memory]) -> Table:
    def size(value: int | None) -> str:
        return in_words(value) if value else "-"

    rows = tuple(
        (
            own.policy,
            f"{own.parameters:,}",
            *map(size, (own.weights, own.gradients, own.optimizer, own.sampling, own.scoring, own.updating)),
            in_words(own.peak),
        )
        for own in found
    )
    headings = ("policy", "parameters", "weights", "gradients", "AdamW", "sampling", "scoring", "updating", "peak")
    return Table(headings=headings, rows=rows)


def _devices(recipe: Recipe, found: list[Memory], engines: list[Share]) -> Iterator[str]:
    """What is on each device together, and how large it must be beside engines that take a share of it."""
    places: dict[str, list[Memory]] = {FIRST: []} if engines else {}
    for own in found:
        spec = recipe.policies[own.policy]
        device = (recipe.policies[spec.follows] if spec.follows else spec).device
        places.setdefault(FIRST if device in ("auto", "cuda") else device, []).append(own)
    for device, here in places.items():
        together = sum(own.resident for own in here) + max((own.peak - own.resident for own in here), default=0)
        where = "All on one device" if len(places) == 1 else f"All on {device}"
        if len(here) > 1:
            yield f"{where}: {in_words(together)}, since one policy works at a time."
        if device == FIRST and engines:
            yield from _beside(engines, together)


def _beside(engines: list[Share], policies: int) -> Iterator[str]:
    """How large a device must be that holds engines beside so many bytes of policies, and what they do with it."""
    relative, fixed = sum(own.relative for own in engines), policies + sum(own.fixed for own in engines)
    if relative >= 1:
        yield f"The engines take {relative:g} of a device together and leave nothing to the policies: lower it."
        return
    needed = max(int(fixed / (1 - relative)), *(own.smallest for own in engines))
    for own in engines:
        cache = own.cache if own.cache is not None else int(needed * own.part) - own.weights
        takes = f"{own.part:g} of the device" if own.cache is None else in_words(own.fixed)
        yield (
            f"The engine of '{own.policy}' takes {takes}: {in_words(own.weights)} of weights and a cache, "
            f"{in_words(own.row)} a row of full length."
        )
        yield (
            f"So the device needs {in_words(needed)} at least; there the cache of '{own.policy}' holds "
            f"{cache // own.row} such rows at a time."
        )
