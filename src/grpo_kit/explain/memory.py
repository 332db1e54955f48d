"""How much memory each policy takes: its model runs once on tensors without data, and what it makes adds up."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from grpo_kit.batch import Rollouts
from grpo_kit.checks.findings import trained_rows
from grpo_kit.explain.calls import rows_at_once, written_rows
from grpo_kit.explain.tracking import Tracker
from grpo_kit.explain.updating import compared, update
from grpo_kit.explain.writing import writing
from grpo_kit.policies import Policy, PolicySpec, policy as policies
from grpo_kit.policies.load import autocast_dtype, configuration, stored_dtype
from grpo_kit.policies.lora import adapt, adapted_layers
from grpo_kit.recipe import Recipe
from grpo_kit.run.setup import twin_of
from grpo_kit.samplers import TransformersSampler
from grpo_kit.samplers.decoding import draw, restrict, temper
from grpo_kit.samplers.mixed import portions
from grpo_kit.samplers.shared_prefix import FIRST_CAPACITY, GroupCache, GroupLayer, attending, may_share


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes that one policy takes on its device.

    Attributes:
        policy: its name.
        parameters: how many numbers its weights are, adapters included; exact.
        learning: how many of them a learner trains.
        weights: of its weights as stored, but for those that are another policy's.
        shared: of its weights that are in memory once, as another policy's.
        gradients: of a live policy; they stay from the first update on.
        optimizer: AdamW's two moments of a live policy.
        sampling: on top, while it writes (cache of keys and values, logits); None where it does not.
        scoring: on top, in a scoring pass without gradient; None where it is not scored.
        updating: on top, in a forward and backward pass of a micro-batch; None for one that does not learn.
    """

    policy: str
    parameters: int
    learning: int
    weights: int
    shared: int
    gradients: int
    optimizer: int
    sampling: int | None
    scoring: int | None
    updating: int | None

    @property
    def resident(self) -> int:
        """What stays for the whole run, from the first update on."""
        return self.weights + self.gradients + self.optimizer

    @property
    def peak(self) -> int:
        """The most at one time."""
        return self.resident + max(self.sampling or 0, self.scoring or 0, self.updating or 0)


def estimate(
    recipe: Recipe, name: str, tokenizers: Mapping[str, PreTrainedTokenizerBase], longest_prompt: int
) -> Memory:
    """The memory of a policy if every completion is as long as can be; no weights are loaded, nothing is computed.

    The model's own code runs on fake tensors (PyTorch's `FakeTensorMode`), as it would on the CPU. Evaluation, the
    libraries themselves and the allocator's fragmentation are not in it. ValueError where a model's code does not
    run that way.
    """
    spec, live = recipe.policies[name], name in recipe.learners
    of = name if spec.follows is None else spec.follows
    model_spec = recipe.policies[of]
    try:
        with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True):
            warnings.simplefilter("ignore")
            policy = _fake_policy(name, model_spec, tokenizers[of], live=of in recipe.learners)
            policy = replace(policy, micro_batch_tokens=spec.micro_batch_tokens)
            with patch.object(policies, "places", lambda mask: torch.arange(mask.numel())):  # rows of full length
                sampling, scoring, updating = _works(recipe, policy, longest_prompt, live)
    except Exception as error:
        raise ValueError(f"'{name}' does not run on fake tensors ({type(error).__name__}: {error})") from error
    held = list(policy.model.parameters())
    learning = [weight for weight in held if weight.requires_grad]
    own = held if live else learning if spec.follows is not None else [] if twin_of(recipe, name) else held
    weights, trained = sum(weight.nbytes for weight in own), sum(weight.nbytes for weight in learning) if live else 0
    return Memory(
        policy=name,
        parameters=sum(weight.numel() for weight in held),
        learning=sum(weight.numel() for weight in learning) if live else 0,
        weights=weights + sum(buffer.nbytes for buffer in policy.model.buffers()),
        shared=sum(weight.nbytes for weight in held) - weights,
        gradients=trained,
        optimizer=2 * trained,
        sampling=sampling,
        scoring=scoring,
        updating=updating,
    )


def _fake_policy(name: str, spec: PolicySpec, tokenizer: PreTrainedTokenizerBase, *, live: bool) -> Policy:
    """The policy that `load_policy` would load, its weights without data; to be called in a FakeTensorMode."""
    with _real():
        config = configuration(spec)
    how = {"attn_implementation": spec.attention} if spec.attention in ("eager", "sdpa") else {}
    model = AutoModelForCausalLM.from_config(
        config, dtype=stored_dtype(spec, live=live), trust_remote_code=spec.trust_remote_code, **how
    )
    model.eval()
    if live and spec.lora is not None:
        with _real(), torch.device("meta"):  # peft moves its layers, which tensors of the mode do not bear
            adapt(model, spec.lora, seed=0)
        for layer in adapted_layers(model).values():
            for own in (*layer.lora_A.values(), *layer.lora_B.values()):
                wide = torch.promote_types(model.dtype, torch.float32)
                own.weight = torch.nn.Parameter(torch.empty(own.weight.shape, dtype=wide))
    return Policy(
        name=name,
        model=model,
        tokenizer=tokenizer,
        vocabulary=int(model.get_output_embeddings().weight.shape[0]),
        autocast=autocast_dtype(spec, live=live),
        linear_head=True,
    )


def _real() -> Any:
    """A block inside a FakeTensorMode in which tensors have data."""
    return unset_fake_temporarily()


def _works(recipe: Recipe, policy: Policy, prompt: int, live: bool) -> tuple[int | None, int | None, int | None]:
    """What sampling, scoring and updating take on top of what stays."""
    found = [(own, prompts) for _, own, prompts in portions(recipe.sampler, recipe.prompts_per_step)]
    if not all(hasattr(own, "max_new_tokens") for own, _ in found):  # rows of any length
        return None, None, None
    rows, width = written_rows(recipe), max(own.max_new_tokens for own, _ in found)
    longest = prompt + width

    def batch(rows: int) -> Rollouts:
        return _rows(rows_at_once(recipe, policy.name, rows, longest), prompt, width)

    written = [
        _of_sampling(policy, request.sampler, request.prompts, prompt + request.behind)
        for own in writing(recipe)
        for request in own.requests
        if isinstance(request.sampler, TransformersSampler) and policy.name in request.sampler.reads
    ]
    sampling = max(written, default=None)
    scoring = updating = None
    if policy.name in recipe.scored():
        scored = batch(rows)
        detail = recipe.details()[policy.name]
        scoring = _peak(policy, lambda: policy.score(scored, detail=detail), gradient=False)
    if live:
        learner = recipe.learners[policy.name]
        kept = trained_rows(recipe)
        trained = batch(-(-kept // learner.mini_batches))
        with _real():
            widths = {name: _width(recipe, name) for _, name in compared(learner)}
        updating = _peak(policy, lambda: update(policy, learner, trained, kept, widths), gradient=True)
    return sampling, scoring, updating


def _width(recipe: Recipe, name: str) -> int:
    """The width of a policy's hidden states."""
    spec = recipe.policies[name]
    spec = spec if spec.follows is None else recipe.policies[spec.follows]
    return int(configuration(spec).get_text_config().hidden_size)


def _of_sampling(policy: Policy, sampler: TransformersSampler, prompts: int, prompt: int) -> int:
    """The larger of a prefill and of the last token's pass, when the cache is full."""
    at_once = min(prompts, max(1, sampler.rows_per_batch // sampler.samples))
    rows, before = at_once * sampler.samples, max(sampler.max_new_tokens - 2, 0)  # the last token is not read

    def write(rows: int, new: int, known: int, cache: Cache, **mask: torch.Tensor) -> Any:
        with policy.computing():
            return (
                policy.model(
                    input_ids=torch.ones(rows, new, dtype=torch.long),
                    position_ids=torch.arange(known, known + new)[None].expand(rows, new),
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                    **mask,
                )
                .logits[:, -1, : policy.vocabulary]
                .float()
            )

    def padded(rows: int, tokens: int) -> dict[str, torch.Tensor]:
        return {"attention_mask": torch.ones(rows, tokens, dtype=torch.long)}

    def read() -> DynamicCache:
        cache = DynamicCache(config=policy.model.config)
        write(at_once, prompt, 0, cache, **padded(at_once, prompt))
        return cache

    def last() -> None:
        logits = add()  # all three are held, as in `decode`
        whole = temper(logits, sampler.temperature)
        draw(restrict(whole, sampler.sampling), torch.ones(rows, dtype=torch.float64))

    prefill = growing = _peak(policy, read, gradient=False)
    with torch.no_grad():
        cache: Any = read()
        if may_share(policy.model):
            with _real():
                cache = GroupCache(cache, torch.ones(at_once, prompt, dtype=torch.long), sampler.samples)
            growing = _peak(policy, partial(_write_before, cache, rows, before), _tensors(cache), gradient=False)
            work = attending(policy.model, cache)
            add = partial(write, rows, 1, prompt + before, cache)
        else:
            cache.batch_repeat_interleave(sampler.samples)
            if before:
                write(rows, before, prompt, cache, **padded(rows, prompt + before))
            work = nullcontext()
            add = partial(write, rows, 1, prompt + before, cache, **padded(rows, prompt + before + 1))
    with work:
        return max(prefill, growing, _peak(policy, last, _tensors(cache), gradient=False))


def _tensors(cache: Any) -> list[Any]:
    """What a cache holds. Let go of the list: only the cache is to refer to them, so that the tracker sees them go."""
    names = ("keys", "values", "prompt_keys", "prompt_values")
    held = [getattr(layer, name, None) for layer in cache.layers for name in names]
    return [tensor for tensor in held if isinstance(tensor, torch.Tensor)]


def _write_before(cache: GroupCache, rows: int, tokens: int) -> None:
    """Fill a cache with so many tokens of every row, in few pieces that make it grow as single tokens do."""
    for layer in cache.layers:
        assert isinstance(layer, GroupLayer)
        while layer.written < tokens:
            full = layer.keys is None or layer.written == layer.keys.shape[2]
            room = FIRST_CAPACITY if layer.keys is None else 1 if full else layer.keys.shape[2] - layer.written
            new, keys, values = min(room, tokens - layer.written), layer.prompt_keys, layer.prompt_values
            layer.update(
                keys.new_empty((rows, keys.shape[1], new, keys.shape[3])),
                values.new_empty((rows, values.shape[1], new, values.shape[3])),
            )


def _peak(policy: Policy, work: Callable[[], Any], held: list[Any] | None = None, *, gradient: bool) -> int:
    """Bytes at the fullest moment of some work, with the tensors already held, without weights and gradients."""
    for weight in policy.model.parameters():
        if gradient and weight.requires_grad:
            weight.grad = torch.zeros_like(weight)  # there from the first update on
    known = [each for weight in policy.model.parameters() for each in (weight, weight.grad) if each is not None]
    tracker = Tracker([*known, *policy.model.buffers()], held or ())
    if held:
        held.clear()
    with nullcontext() if gradient else torch.no_grad(), tracker:
        result = work()
    del result
    return tracker.most


def _rows(count: int, prompt: int, width: int) -> Rollouts:
    """Rows of full length."""
    with _real():
        return Rollouts(
            prompts=((0,) * prompt,) * count,
            tokens=torch.zeros(count, width, dtype=torch.long),
            mask=torch.ones(count, width, dtype=torch.bool),
            groups=torch.zeros(count, dtype=torch.long),
            stop_reasons=("length",) * count,
            texts=("",) * count,
            columns={},
            behavior=None,
        )
