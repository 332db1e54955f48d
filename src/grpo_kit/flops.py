"""Model FLOPs of what a step does: the matrix products that the models need, counted from rows and shapes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from grpo_kit.batch import Rollouts


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFlops:
    r"""What one token costs a transformer; a multiplication and an addition are two.

    A forward pass over a row of $p$ prompt and $c$ completion tokens reads $n = p + c - 1$ of them (the last one is
    nobody's input) and gives $c$ distributions:

    $$\text{linear} \cdot n + \text{attention} \cdot \tfrac{n (n + 1)}{2} + \text{head} \cdot c$$

    These are *model* FLOPs, as in a model-FLOPs utilization (PaLM, arXiv:2204.02311): without padding, what is computed
    again in a backward pass, norms and activations. All experts of a mixture count, and attention is to all tokens
    before, so that with sparse experts or a sliding window it is an upper bound.

    Attributes:
        linear: of all weight matrices but the head and the embeddings, 2 a weight and token.
        head: of the head, 2 x hidden size x vocabulary a distribution.
        attention: of the scores and the weighted sum of values, 4 x layers x heads x head size a pair of tokens.
        trained: share of the `linear` weights that learn; below 1 with adapters.
        head_learns: whether the head does.
    """

    linear: int
    head: int
    attention: int
    trained: float = 1.0
    head_learns: bool = True

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ModelFlops":
        """Read off a model."""
        head: Tensor = model.get_output_embeddings().weight  # pyright: ignore[reportOptionalMemberAccess]
        left_out = {id(head), *(id(own.weight) for own in model.modules() if isinstance(own, nn.Embedding))}
        matrices = [own for own in model.parameters() if own.ndim >= 2 and id(own) not in left_out]
        linear = sum(own.numel() for own in matrices)
        learns = sum(own.numel() for own in matrices if own.requires_grad)
        config = model.config.get_text_config()
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            linear=2 * linear,
            head=2 * head.numel(),
            attention=4 * config.num_hidden_layers * config.num_attention_heads * size,
            trained=learns / max(1, linear),
            head_learns=head.requires_grad,
        )

    def score(self, rollouts: Rollouts) -> float:
        """One forward pass over every row."""
        prompts, completions = _prompt_lengths(rollouts), rollouts.lengths.cpu().double()
        return float(self._row(prompts, completions, completions)[completions > 0].sum())

    def sample(self, rollouts: Rollouts, policy: str) -> float:
        """Writing the tokens that a policy wrote: each row up to its last one, a prompt once for all rows of it."""
        own = rollouts.written_by(policy).cpu()
        last = (own * torch.arange(1, own.shape[1] + 1)).max(dim=1).values.double()
        writes, prompts = last > 0, _prompt_lengths(rollouts)
        total = float(self._row(prompts, last, own.sum(dim=1).double())[writes].sum())
        rows = [row for row, there in enumerate(writes.tolist()) if there]
        firsts = {(int(rollouts.groups[row]), rollouts.prompts[row]): row for row in rows}
        again = prompts[sorted(set(rows) - set(firsts.values()))]
        return total - float(self._read(again).sum())

    def update(self, rollouts: Rollouts) -> float:
        """One forward and one backward pass over every row.

        The backward pass costs as much as the forward for the gradients of what goes into a product, and as much again
        for those of its weights, where they learn; attention has two inputs and no weights.
        """
        prompts, completions = _prompt_lengths(rollouts), rollouts.lengths.cpu().double()
        tokens = prompts + completions - 1
        linear, pairs = (2 + self.trained) * self.linear * tokens, tokens * (tokens + 1) / 2
        cost = linear + 3 * self.attention * pairs + (2 + self.head_learns) * self.head * completions
        return float(cost[completions > 0].sum())

    def _row(self, prompts: Tensor, completions: Tensor, distributions: Tensor) -> Tensor:
        return self._read(prompts + completions - 1) + self.head * distributions

    def _read(self, tokens: Tensor) -> Tensor:
        return self.linear * tokens + self.attention * tokens * (tokens + 1) / 2


def _prompt_lengths(rollouts: Rollouts) -> Tensor:
    return torch.tensor([len(prompt) for prompt in rollouts.prompts], dtype=torch.float64)
