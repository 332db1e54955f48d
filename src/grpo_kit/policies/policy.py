"""A Hugging Face causal language model as a policy: it scores completions, whatever the layout, and saves itself."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from grpo_kit.batch import Rollouts, Scores
from grpo_kit.shapes import Logits, TokenIds


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
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    vocabulary: int
    micro_batch_tokens: int = 16384
    autocast: torch.dtype | None = None
    version: int = 0

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

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

    def logits(self, rollouts: Rollouts) -> Logits:
        """Logits in float32 (or wider) that predict each completion token, over the shared vocabulary."""
        ids, attention = self._padded(rollouts)
        width = rollouts.tokens.shape[1]
        with self.computing():
            output = self.model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=(attention.cumsum(1) - 1).clamp(min=0),
                use_cache=False,
                logits_to_keep=width + 1,
            )
        logits = output.logits[:, -width - 1 : -1, : self.vocabulary]
        return logits if logits.dtype == torch.float64 else logits.float()

    def score(self, rollouts: Rollouts, *, temperature: float = 1.0, entropy: bool = False) -> Scores:
        """Log-probability (and entropy) of each completion token at a temperature, with gradient where enabled.

        One forward pass over all rows given; `score_all` splits a large batch. Values under the mask are finite but
        mean nothing.
        """
        logits = self.logits(rollouts) / temperature
        tokens = torch.where(rollouts.mask, rollouts.tokens, 0).to(self.device)
        chosen = rearrange(logits.gather(2, rearrange(tokens, "row token -> row token 1")), "row token 1 -> row token")
        total = logits.logsumexp(dim=2)
        spread = None
        if entropy:
            # H = log Z - E[logit]; -inf logits carry no probability and are left out of the expectation.
            probabilities = logits.softmax(dim=2)
            spread = total - (probabilities * torch.where(probabilities > 0, logits, 0)).sum(dim=2)
        home = rollouts.mask.device  # policies may sit on devices of their own; everything else is with the rollouts
        return Scores(logprobs=(chosen - total).to(home), entropy=None if spread is None else spread.to(home))

    @torch.no_grad()
    def score_all(self, rollouts: Rollouts, *, temperature: float = 1.0, entropy: bool = False) -> Scores:
        """The scores of a batch of any size, without gradient, micro-batch by micro-batch."""
        logprobs = torch.zeros(rollouts.mask.shape, device=rollouts.mask.device, dtype=self._score_dtype())
        spread = torch.zeros_like(logprobs) if entropy else None
        for rows in self.micro_batches(rollouts, range(len(rollouts))):
            scores = self.score(rollouts.take(rows), temperature=temperature, entropy=entropy)
            width = scores.logprobs.shape[1]
            logprobs[rows, :width] = scores.logprobs
            if spread is not None and scores.entropy is not None:
                spread[rows, :width] = scores.entropy
        return Scores(logprobs=logprobs, entropy=spread)

    def is_finite(self) -> bool:
        """Whether every weight is a finite number."""
        return all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())

    def save(self, folder: Path) -> None:
        """Write weights (safetensors), configuration and tokenizer, as `AutoModelForCausalLM` loads them."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def _score_dtype(self) -> torch.dtype:
        return torch.float64 if self.model.dtype == torch.float64 else torch.float32

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
