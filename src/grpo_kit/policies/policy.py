"""A Hugging Face causal language model as a policy: it scores completions, whatever the layout, and saves itself."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int, Shaped
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from grpo_kit.batch import Rollouts
from grpo_kit.detail import Detail
from grpo_kit.head import Distributions, Head, Hidden, read as read_chunks, reading
from grpo_kit.joining import join_scores
from grpo_kit.policies.lora import copied, whole_weights, without_adapters
from grpo_kit.policies.served import scores_of
from grpo_kit.shapes import Logits, TokenIds, TokenMask
from grpo_kit.signals import Scores, TopTokens

SAMPLED = Detail()
"""Log-probabilities of the tokens themselves, and nothing more."""


@dataclass(kw_only=True, slots=True, eq=False)
class Policy:
    """A named language model with a version that counts its updates.

    Attributes:
        name: its name in the recipe.
        model: a causal language model in evaluation mode (no dropout, so that every score of a version is the same).
        tokenizer: its tokenizer.
        vocabulary: logits used, from the first; policies that share rollouts agree on their common part.
        micro_batch_tokens: largest number of padded tokens (prompt and completion) in one forward pass.
        autocast: lower precision for the forward pass of a model kept in float32; None computes as stored.
        version: optimizer steps taken so far.
        linear_head: whether its logits are the head's matrix times the last hidden states; None finds out by trying.
        shares_prompts: whether its samples can read one cache of their prompt, see `samplers.shared_prefix`; None finds
            out by trying.
        adapter: peft's model around a live `model` with adapters, see `Lora`; None without.
        engines: engines at work for it, by their settings; a copy has none.
        scored_by: the engine (`engines.Running`) that scores it; its weights are then not here.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    vocabulary: int
    micro_batch_tokens: int = 16384
    autocast: torch.dtype | None = None
    version: int = 0
    linear_head: bool | None = None
    shares_prompts: bool | None = None
    adapter: Any | None = None
    engines: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    scored_by: Any | None = field(default=None, init=False, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model is; the CPU where only an engine has its weights."""
        return self.model.device if self.has_weights else torch.device("cpu")

    @property
    def has_weights(self) -> bool:
        """Whether its weights are in this process."""
        return self.model.device.type != "meta"

    @property
    def pad_id(self) -> int:
        """The id that fills a batch; any will do, since masks go by length."""
        pad = self.tokenizer.pad_token_id
        return int(pad) if isinstance(pad, int) else min(self.eos_ids, default=0)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a completion, by the model's generation settings and by its tokenizer."""
        listed: Any = getattr(self.model.generation_config, "eos_token_id", None)
        ids: list[Any] = [*(listed if isinstance(listed, list | tuple) else [listed]), self.tokenizer.eos_token_id]
        return frozenset(i for i in ids if isinstance(i, int))

    def computing(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: autocast where this policy computes below its stored precision."""
        return torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()

    def micro_batches(self, rollouts: Rollouts, rows: Sequence[int]) -> Iterator[list[int]]:
        """Split rows into batches of at most `micro_batch_tokens` padded tokens, long rows first; rows stay whole."""
        lengths = rollouts.lengths.tolist()
        batch: list[int] = []
        prompt = completion = 0
        for row in sorted(rows, key=lambda row: (-len(rollouts.prompts[row]) - lengths[row], row)):
            prompt, completion = max(prompt, len(rollouts.prompts[row])), max(completion, lengths[row])
            if batch and (len(batch) + 1) * (prompt + completion) > self.micro_batch_tokens:
                yield batch
                batch, prompt, completion = [], len(rollouts.prompts[row]), lengths[row]
            batch.append(row)
        if batch:
            yield batch

    @property
    def head(self) -> Head:
        """The head that reads this policy's hidden states, over the shared vocabulary."""
        if not self.has_linear_head:
            return Head(None)
        output: Any = self.model.get_output_embeddings()
        weight, bias = output.weight, getattr(output, "bias", None)
        if self.vocabulary < len(weight):  # a cut copies the gradient, so none where nothing is cut off
            weight, bias = weight[: self.vocabulary], None if bias is None else bias[: self.vocabulary]
        return Head(weight, bias, self.autocast)

    @property
    def has_linear_head(self) -> bool:
        """Whether the logits are the head's matrix times the last hidden states, and nothing more; tried once."""
        if self.linear_head is None:
            self.linear_head = _is_linear(self.model)
        return self.linear_head

    def hidden(self, rollouts: Rollouts) -> Hidden:
        """The hidden state that predicts each completion token, of the tokens written alone, row after row.

        With a head that is no linear map these are the model's logits instead, see `Head`. ValueError where an engine
        has the weights.
        """
        if not self.has_weights:
            raise ValueError(
                f"policy '{self.name}' is scored by an engine, which gives no hidden states. Remove its engine"
            )
        ids, attention = self._padded(rollouts)
        width = rollouts.tokens.shape[1]
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
            "use_cache": False,
        }
        with self.computing():
            if self.has_linear_head:
                states = self.model.get_decoder()(**inputs).last_hidden_state
            else:
                states = self.model(**inputs, logits_to_keep=width + 1).logits[..., : self.vocabulary]
        states = rearrange(states[:, -width - 1 : -1], "row token width -> (row token) width")
        return states[places(rollouts.mask).to(states.device)]

    def logits(self, rollouts: Rollouts) -> Logits:
        """Logits in float32 (or wider) that predict each completion token, over the shared vocabulary, all at once.

        For looking at; what trains reads them in chunks. Zero where no token was written.
        """
        return put_back(self.head.logits(self.hidden(rollouts)), rollouts.mask.to(self.device))

    def score(self, rollouts: Rollouts, *, temperature: float = 1.0, detail: Detail = SAMPLED) -> Scores:
        """Log-probability (and what else `detail` asks for) of each completion token at a temperature.

        With gradient where enabled. One forward pass over all rows given; `score_all` splits a large batch. Zero where
        no token was written.
        """
        return self.read(self.hidden(rollouts), rollouts, temperature=temperature, detail=detail)

    def read(self, hidden: Hidden, rollouts: Rollouts, *, temperature: float, detail: Detail) -> Scores:
        """The scores of rollouts whose hidden states are there already, see `score`."""
        head = self.head
        tokens = rollouts.tokens.flatten()[places(rollouts.mask).to(rollouts.mask.device)].to(self.device)
        values = read_chunks(reading(tokens, detail, temperature), hidden, head)
        home = rollouts.mask.device  # policies may sit on devices of their own; everything else is with the rollouts
        values = [put_back(value.to(home), rollouts.mask) for value in values]
        logprobs = values.pop(0)
        spread = values.pop(0) if detail.entropy else None
        top = TopTokens(ids=values.pop(0), logprobs=values.pop(0)) if detail.top_k else None
        whole = None
        if detail.full:
            states = put_back(hidden.to(home), rollouts.mask)
            whole = Distributions(hidden=states, head=head, temperature=temperature)
        return Scores(logprobs=logprobs, entropy=spread, top=top, distributions=whole)

    @torch.no_grad()
    def score_all(self, rollouts: Rollouts, *, temperature: float = 1.0, detail: Detail = SAMPLED) -> Scores:
        """The scores of a batch of any size, without gradient, micro-batch by micro-batch.

        Whole distributions keep a copy of the head where the policy learns, so that its updates do not move them.
        """
        if self.scored_by is not None:
            own: Any = self.model.get_output_embeddings()
            sizes = {"vocabulary": self.vocabulary, "own": len(own.weight)}
            return scores_of(self.scored_by, rollouts, name=self.name, temperature=temperature, detail=detail, **sizes)
        parts = list(self.micro_batches(rollouts, range(len(rollouts))))
        if not parts:
            return Scores(logprobs=rollouts.mask.float())
        found = [self.score(rollouts.take(rows), temperature=temperature, detail=detail) for rows in parts]
        order = torch.tensor([row for rows in parts for row in rows], device=rollouts.mask.device)
        scores = join_scores(found, rollouts.mask.shape[1]).map(lambda values: values[order.argsort()])
        if scores.distributions is not None and any(weight.requires_grad for weight in self.model.parameters()):
            scores = replace(scores, distributions=scores.distributions.snapshot())
        return scores

    def engine(self, settings: Any) -> Any:
        """The running engine (`engines.Running`) with these settings (`engines.Engine`), started once."""
        if settings not in self.engines:
            self.engines[settings] = settings(self)
        return self.engines[settings]

    def close(self) -> None:
        """Stop its engines, all of them even where one fails at that; its error is raised then."""
        self.scored_by = None
        with ExitStack() as stack:
            while self.engines:
                stack.callback(self.engines.popitem()[1].close)

    def is_finite(self) -> bool:
        """Whether every weight is a finite number."""
        return all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())

    def frozen_copy(self, name: str, *, adapters: bool = True) -> "Policy":
        """A policy of the same weights that does not learn, with its adapters or without; see `policies.lora.copied`.

        Without adapters all of its weights are shared, and it computes in their precision.
        """
        model = copied(self.model) if adapters else without_adapters(self.model)
        autocast = self.autocast if adapters else None
        return replace(self, name=name, model=model, autocast=autocast, adapter=None)

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by its plain name, adapters merged, one at a time; see `policies.lora.whole_weights`."""
        return whole_weights(self.model)

    def save_whole(self, folder: Path) -> None:
        """Write whole weights (safetensors), configuration and tokenizer, as `AutoModelForCausalLM` loads them."""
        self.model.save_pretrained(folder, state_dict=dict(self.whole_weights()))
        self.tokenizer.save_pretrained(folder)

    def save(self, folder: Path) -> None:
        """Write the whole weights and, of a policy with one, its adapter to `adapter/` below, as peft loads it."""
        self.save_whole(folder)
        if self.adapter is not None:
            self.adapter.save_pretrained(folder / "adapter", save_embedding_layers=False)

    def _padded(self, rollouts: Rollouts) -> tuple[TokenIds, Tensor]:
        """Prompts padded on the left and completions on the right, so that all completions start at one column."""
        prompts, prompt_mask = pad_left(rollouts.prompts, self.pad_id, self.device)
        completions = torch.where(rollouts.mask, rollouts.tokens, self.pad_id).to(self.device)
        mask = rollouts.mask.to(device=self.device, dtype=torch.long)
        return torch.cat([prompts, completions], dim=1), torch.cat([prompt_mask, mask], dim=1)


def pad_left(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[TokenIds, TokenIds]:
    """Token ids padded on the left to the longest row, and the attention mask (1 for real tokens)."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows], dtype=torch.long, device=device)
    real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], dtype=torch.long, device=device)
    return ids, real


def places(mask: TokenMask) -> Int[Tensor, " place"]:
    """Where the tokens of a mask are among all places, row after row."""
    return torch.from_numpy(np.flatnonzero(mask.cpu().numpy()))


def put_back(values: Shaped[Tensor, "place *more"], mask: TokenMask) -> Shaped[Tensor, "row token *more"]:
    """Values of the tokens of a mask, each at its place; 0 elsewhere."""
    found = values.new_zeros((mask.numel(), *values.shape[1:])).index_copy(0, places(mask).to(values.device), values)
    return found.unflatten(0, mask.shape)


@torch.no_grad()
def _is_linear(model: PreTrainedModel) -> bool:
    """Whether a model's logits are its head's matrix times its last hidden states and no more; tried on four tokens.

    Large known numbers stand in for what the head says, and must come out as they are: a cap does not show in the small
    logits of an untrained model.
    """
    output: Any = model.get_output_embeddings()
    if type(output) is not torch.nn.Linear:  # quantized or adapted: more than its matrix
        return False
    seen = list[tuple[Tensor, Tensor]]()

    def stand_in(_: torch.nn.Module, inputs: tuple[Tensor, ...], said: Tensor) -> Tensor:
        numbers = torch.linspace(-100, 100, said.numel()).to(said).view_as(said)
        seen.append((inputs[0], numbers))
        return numbers

    tokens = torch.arange(len(output.weight), device=model.device)[None, :4]  # not one: padding's state may be all 0
    try:
        states = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
    except (AttributeError, TypeError):
        return False
    hook = output.register_forward_hook(stand_in)
    try:
        logits = model(input_ids=tokens, use_cache=False).logits
    finally:
        hook.remove()
    if len(seen) != 1:
        return False
    given, numbers = seen[0]
    if given.shape != states.shape or logits.shape != numbers.shape:
        return False
    return torch.equal(logits, numbers.to(logits)) and bool((given - states).norm() <= 1e-2 * states.norm())
