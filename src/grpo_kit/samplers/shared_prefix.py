"""Attention to a prompt's keys and values that are there once a prompt, not once for each of its samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_utils import AttentionInterface

from grpo_kit.policies.policy import Policy

IMPLEMENTATION = "grpo_kit_shared_prefix"
"""The name of this attention in transformers; it has no mask function, so that no mask is made at any step."""
REPLACED = ("sdpa", "eager")
"""The attention implementations that it can stand in for."""
FIRST_CAPACITY = 32
"""Tokens of each row that there is room for at first; twice as many whenever they are written."""

Keys = Float[Tensor, "row head known width"]
"""Keys as transformers' attention has them."""
Values = Float[Tensor, "row head known depth"]
"""Values."""
Query = Float[Tensor, "row query_head 1 width"]
"""Queries of one new token a row; several of them may share a head of the keys."""


class GroupLayer(DynamicLayer):
    """One layer's cache while rows are written: of the prompts, once each, and of the tokens that each row wrote."""

    def __init__(self, prompts: DynamicLayer) -> None:
        """Begin with the layer of a cache in which the prompts were read."""
        super().__init__()
        assert prompts.keys is not None
        assert prompts.values is not None
        self.prompt_keys, self.prompt_values = prompts.keys, prompts.values
        self.written = 0
        self.is_initialized = True

    def update(
        self,
        key_states: Float[Tensor, "row head new width"],
        value_states: Float[Tensor, "row head new depth"],
        *_: Any,
        **__: Any,
    ) -> tuple[Keys, Values]:
        """Add tokens of every row; the keys and values of all tokens that the rows wrote."""
        length = self.written + key_states.shape[2]
        if self.keys is None or self.values is None or self.keys.shape[2] < length:
            self.keys, self.values = (
                _grown(held, new, self.written, length)
                for held, new in ((self.keys, key_states), (self.values, value_states))
            )
        self.keys[:, :, self.written : length] = key_states
        self.values[:, :, self.written : length] = value_states
        self.written = length
        return self.keys[:, :, :length], self.values[:, :, :length]

    def get_seq_length(self) -> int:
        """Tokens of the padded prompt and of the completion so far."""
        return self.prompt_keys.shape[2] + self.written

    def keep(self, rows: Int[Tensor, " row"], prompts: Int[Tensor, " prompt"] | None) -> None:
        """Keep some rows and, unless all stay, some prompts."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if prompts is not None:
            self.prompt_keys, self.prompt_values = self.prompt_keys[prompts], self.prompt_values[prompts]


class GroupCache(Cache):
    """The cache of rows that share prompts: `samples` rows a prompt at first, prompt after prompt.

    Attributes:
        bias: 0 where a prompt has a token and -inf where it is padded; None where none is.
        slots: the place of each row among `len(prompts) * width` places, `width` a prompt; None where the rows fill
            them all in order.
    """

    def __init__(self, prompts: DynamicCache, prompt_mask: Int[Tensor, "prompt token"], samples: int) -> None:
        """Begin with the cache in which the prompts were read, padded on the left as the mask says."""
        super().__init__(layers=[GroupLayer(layer) for layer in prompts.layers if isinstance(layer, DynamicLayer)])
        padded = prompt_mask == 0
        self.bias = torch.zeros_like(padded, dtype=torch.float32).masked_fill(padded, -torch.inf)[:, None, None, :]
        self.bias = self.bias if bool(padded.any()) else None
        self.owner = torch.arange(len(prompt_mask), device=prompt_mask.device).repeat_interleave(samples)
        self.width, self.slots, self.prompts = samples, None, len(prompt_mask)

    def keep(self, rows: Int[Tensor, " row"]) -> None:
        """Keep some rows, in order; prompts leave when a quarter of them has no row."""
        self.owner = self.owner[rows]
        left = torch.bincount(self.owner, minlength=self.prompts)
        kept = torch.nonzero(left).flatten() if int((left == 0).sum()) * 4 >= self.prompts else None
        for layer in self.layers:
            assert isinstance(layer, GroupLayer)
            layer.keep(rows, kept)
        if kept is not None:
            self.owner, left, self.prompts = torch.searchsorted(kept, self.owner), left[kept], len(kept)
            self.bias = None if self.bias is None else self.bias[kept]
        self.width = int(left.max())
        first = left.cumsum(0) - left
        own = torch.arange(len(self.owner), device=self.owner.device) - first[self.owner]
        full = len(self.owner) == self.prompts * self.width
        self.slots = None if full else self.owner * self.width + own

    def to_prompts(self, rows: Float[Tensor, "row head each width"]) -> Float[Tensor, "prompt head more width"]:
        """What each row has beside what the other rows of its prompt have; zeros where a prompt has fewer rows."""
        if self.slots is not None:
            rows = rows.new_zeros((self.prompts * self.width, *rows.shape[1:])).index_copy(0, self.slots, rows)
        return rearrange(rows, "(prompt sample) head each width -> prompt head (sample each) width", sample=self.width)

    def to_rows(self, found: Float[Tensor, "prompt head more width"]) -> Float[Tensor, "row head each width"]:
        """Back again."""
        rows = rearrange(found, "prompt head (sample each) width -> (prompt sample) head each width", sample=self.width)
        return rows if self.slots is None else rows[self.slots]


def _grown(held: Tensor | None, new: Tensor, written: int, length: int) -> Keys:
    """Room for at least `length` tokens, with those written in it."""
    capacity = max(FIRST_CAPACITY, 2 * written, length)
    room = new.new_empty((*new.shape[:2], capacity, new.shape[3]))
    if held is not None:
        room[:, :, :written] = held[:, :, :written]
    return room


_AT_WORK: ContextVar[GroupCache] = ContextVar("_AT_WORK")


def attend(
    module: torch.nn.Module,
    query: Query,
    key: Keys,
    value: Values,
    attention_mask: Shaped[Tensor, "..."] | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Float[Tensor, "row 1 query_head depth"], None]:
    r"""Softmax attention of each row's newest token to its prompt, padding left out, and to what the row wrote.

    One softmax over both parts, whose scores are taken apart: $q K_\mathrm{prompt}^\top$ for all rows of a prompt
    together, $q K_\mathrm{row}^\top$ row by row. NotImplementedError where the model asks for more than this.
    """
    more = [name for name, asked in others.items() if name not in IGNORED and asked is not None]
    if attention_mask is not None or dropout or more:
        raise NotImplementedError(f"attention with {more or 'a mask or dropout'}")
    cache = _AT_WORK.get()
    number: Any = module.layer_idx
    layer: Any = cache.layers[number]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    asked = rearrange(query * scale, "row (head each) 1 width -> row head each width", head=key.shape[1])
    to_prompt = cache.to_prompts(asked) @ layer.prompt_keys.transpose(2, 3)
    if cache.bias is not None:
        to_prompt = to_prompt + cache.bias.to(to_prompt.dtype)
    scores = torch.cat([cache.to_rows(to_prompt), asked @ key.transpose(2, 3)], dim=-1)
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    known = to_prompt.shape[-1]
    found = cache.to_rows(cache.to_prompts(weights[..., :known]) @ layer.prompt_values) + weights[..., known:] @ value
    return rearrange(found, "row head each width -> row 1 (head each) width"), None


IGNORED = {"position_ids", "cache_position", "use_cache", "is_causal", "output_attentions", "output_hidden_states"}
"""Arguments that change nothing for one new token; any other that is given is refused."""

AttentionInterface.register(IMPLEMENTATION, attend)


@contextmanager
def attending(model: PreTrainedModel, cache: GroupCache) -> Iterator[None]:
    """Let a model's attention be `attend` with a cache inside the block."""
    found: list[Any] = [part.config for part in model.modules() if hasattr(part, "config")]
    configs = {id(config): config for config in found}
    before = {key: config._attn_implementation for key, config in configs.items()}
    token = _AT_WORK.set(cache)
    try:
        for config in configs.values():
            config._attn_implementation = IMPLEMENTATION
        yield
    finally:
        _AT_WORK.reset(token)
        for key, config in configs.items():
            config._attn_implementation = before[key]


def may_share(model: PreTrainedModel) -> bool:
    """Whether a model's attention and cache are of the kinds that `attend` can stand in for."""
    config: Any = model.config.get_text_config(decoder=True)
    plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    return config._attn_implementation in REPLACED and plain


@torch.no_grad()
def can_share(policy: Policy) -> bool:
    """Whether a policy says the same with `attend` as with its own attention; tried on two prompts of two rows."""
    model: Any = policy.model
    if not may_share(policy.model):
        return False
    config = model.config.get_text_config(decoder=True)
    ids = torch.arange(4 * 3, device=policy.device).view(4, 3) % policy.vocabulary
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]], device=policy.device)
    own, shared = DynamicCache(config=config), DynamicCache(config=config)
    expected = found = torch.empty(0)
    try:
        with policy.computing():
            for cache in (own, shared):
                model(input_ids=ids[:2], attention_mask=mask, position_ids=_positions(mask), past_key_values=cache)
            own.batch_repeat_interleave(2)
            group, mask = GroupCache(shared, mask, samples=2), mask.repeat_interleave(2, 0)
            for new in ids.T[:2, :, None]:
                mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
                inputs = {"input_ids": new, "position_ids": _positions(mask)[:, -1:]}
                expected = model(**inputs, attention_mask=mask, past_key_values=own).logits.float()
                with attending(model, group):
                    found = model(**inputs, past_key_values=group).logits.float()
    except Exception:  # a model of another build fails in ways of its own
        return False
    spread = (expected - expected.mean(-1, keepdim=True)).norm()
    exact = policy.autocast is None and model.dtype in (torch.float32, torch.float64)
    return bool((found - expected).norm() <= (1e-4 if exact else 3e-2) * spread)


def _positions(mask: Int[Tensor, "row token"]) -> Int[Tensor, "row token"]:
    return (mask.cumsum(1) - 1).clamp(min=0)
