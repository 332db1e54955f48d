"""From a batch to a gradient: terms x weights, summed over micro-batches, for one optimizer step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_kit.batch import Experience, Rollouts
from grpo_kit.detail import Detail
from grpo_kit.learner import Learner, LiveLearner
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from grpo_kit.shapes import PerToken, RowMask, TokenMask
from grpo_kit.signals import Scores

REMEDY = "Lower the learning rate, bound the ratio or the correction, or look at that row."


class NonFiniteError(ArithmeticError):
    """A number that is not finite where training needs one; the message names step, learner, term and row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The rows one learner trains on, with everything its terms have fixed about them.

    Attributes:
        rollouts: the rows.
        numbers: each row's number in the step's experience, by which errors name it.
        counted: True where a token counts in the loss; a part of `rollouts.mask`.
        frozen: each term's fixed tensors, by the term's name.
    """

    rollouts: Rollouts
    numbers: tuple[int, ...]
    counted: TokenMask
    frozen: Mapping[str, Mapping[str, PerToken]]

    def take(self, rows: Sequence[int]) -> "Batch":
        """The given rows, cut to the longest of them."""
        rollouts = self.rollouts.take(rows)
        width = rollouts.mask.shape[1]
        frozen = {term: {k: v[list(rows), :width] for k, v in fixed.items()} for term, fixed in self.frozen.items()}
        counted = self.counted[list(rows), :width]
        numbers = tuple(self.numbers[row] for row in rows)
        return Batch(rollouts=rollouts, numbers=numbers, counted=counted, frozen=frozen)


def freeze(name: str, learner: Learner, experience: Experience, kept: RowMask, memory: Memory) -> Batch:
    """Fix a learner's advantages, anchors and corrections, then keep the selected rows that have a reward.

    A row whose reward is missing does not exist for the learner: it is neither in a baseline nor in a denominator.
    """
    rollouts = experience.rollouts
    total = experience.rewards.total(learner.rewards) if learner.rewards else torch.zeros(len(rollouts))
    total = total.to(rollouts.mask.device)
    kept = kept & ~total.isnan() & ~rollouts.greedy
    counted = rollouts.mask & kept[:, None]
    if learner.mask_truncated:
        whole = torch.tensor([reason != "length" for reason in rollouts.stop_reasons], device=counted.device)
        counted = counted & whole[:, None]
    rewards = LearnerRewards(total=total, weights=learner.rewards, kept=kept, counted=counted)
    frozen = {
        key: term.freeze(experience, rewards, name, memory.under(f"learners.{name}.terms.{key}"))
        for key, term in learner.terms.items()
    }
    batch = Batch(
        rollouts=rollouts,
        numbers=tuple(range(len(rollouts))),
        counted=counted,
        frozen=frozen,
    )
    return batch.take(torch.nonzero(kept).flatten().tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """What accumulating one optimizer step's gradient showed.

    Attributes:
        losses: each term's weighted loss, its own factor left out.
        logprobs: the current log-probabilities of all rows of the batch (zero for rows of other steps), detached.
        norm: of the whole gradient before clipping.
    """

    losses: Mapping[str, float]
    logprobs: PerToken
    norm: float


def accumulate(learner: LiveLearner, batch: Batch, rows: Sequence[int], *, step: int) -> Gradient:
    r"""Set the gradient of $\sum_k c_k \sum_{it} w_{it}\, \ell^{(k)}_{it}$ over the given rows: one optimizer step's.

    The weights are taken from all rows at once and the losses are plain sums, so that the split into micro-batches
    changes nothing. Raises NonFiniteError naming the row where a loss or the gradient is not finite.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    weights = torch.zeros_like(batch.counted, dtype=torch.get_default_dtype())
    weights[list(rows)] = learner.settings.weighting(batch.counted[list(rows)]).to(weights)
    losses = dict.fromkeys(learner.settings.terms, 0.0)
    seen = torch.zeros_like(weights)
    for micro in learner.policy.micro_batches(batch.rollouts, rows):
        current, parts = _terms(learner, batch, weights, micro)
        for name, per_token in parts.items():
            _refuse_non_finite(per_token, step, learner.name, name, [batch.numbers[row] for row in micro])
            losses[name] += float(per_token.detach().sum())
        total = _total(learner, parts)
        if total.requires_grad:
            total.backward()
        seen[micro, : current.logprobs.shape[1]] = current.logprobs.detach().to(seen)
    norm = torch.nn.utils.clip_grad_norm_(learner.policy.model.parameters(), learner.settings.optimizer.max_grad_norm)
    if not torch.isfinite(norm):
        _blame(learner, batch, weights, rows, step)
    return Gradient(losses=losses, logprobs=seen, norm=float(norm))


def mini_batches(rows: int, count: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Shuffle the rows and deal them into `count` even mini-batches, each one optimizer step."""
    order = torch.randperm(rows, generator=generator).tolist()
    for number in range(count):
        mini_batch = sorted(order[number::count])
        if mini_batch:
            yield mini_batch


def _terms(
    learner: LiveLearner, batch: Batch, weights: PerToken, rows: Sequence[int]
) -> tuple[Scores, dict[str, Tensor]]:
    """The current scores of some rows, and each term's weighted loss per token on them."""
    part, settings = batch.take(rows), learner.settings
    current = learner.policy.score(
        part.rollouts, temperature=part.rollouts.temperature, detail=Detail(entropy=settings.needs_entropy)
    )
    own = weights[list(rows), : part.counted.shape[1]].to(current.logprobs)
    written = part.rollouts.mask
    return current, {
        name: own * term(current, part.frozen[name], written, part.counted) for name, term in settings.terms.items()
    }


def _total(learner: LiveLearner, parts: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([learner.settings.terms[name].weight * loss.sum() for name, loss in parts.items()]).sum()


def _refuse_non_finite(values: Tensor, step: int, learner: str, term: str, rows: Sequence[int]) -> None:
    bad = torch.nonzero(~torch.isfinite(values))
    if len(bad):
        row, token = rows[int(bad[0, 0])], int(bad[0, 1])
        raise NonFiniteError(
            f"step {step}, learner '{learner}', term '{term}': the loss of row {row} is "
            f"{float(values[tuple(bad[0])].detach())} at token {token}. {REMEDY}"
        )


def _blame(learner: LiveLearner, batch: Batch, weights: PerToken, rows: Sequence[int], step: int) -> None:
    """Find the term and row behind a gradient that is not finite, one at a time, and raise naming them."""
    weight_list = [weight for weight in learner.policy.model.parameters() if weight.requires_grad]
    for row in rows:
        for name, loss in _terms(learner, batch, weights, [row])[1].items():
            gradients = torch.autograd.grad(loss.sum(), weight_list, retain_graph=True, allow_unused=True)
            if any(gradient is not None and not torch.isfinite(gradient).all() for gradient in gradients):
                raise NonFiniteError(
                    f"step {step}, learner '{learner.name}', term '{name}': the gradient of row "
                    f"{batch.numbers[row]} is not finite. {REMEDY}"
                )
    raise NonFiniteError(
        f"step {step}, learner '{learner.name}': the summed gradient is not finite although each row's is; "
        "it overflows. Lower the weights of its terms."
    )
