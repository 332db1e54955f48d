"""From a batch to a gradient: terms x weights, summed over micro-batches, for one optimizer step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_kit.detail import Detail
from grpo_kit.head import Distributions, Head, Hidden, TokenLogits, minimize, reading
from grpo_kit.learner import Learner, LiveLearner
from grpo_kit.learner_batch import LearnerBatch, changed
from grpo_kit.masked import select
from grpo_kit.policies.policy import Policy, places, put_back
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms import Term

REMEDY = "Lower the learning rate, bound the ratio or the correction, or look at that row."
EVERYTHING = slice(None)


class NonFiniteError(ArithmeticError):
    """A number that is not finite where training needs one; the message names step, learner, term and row."""


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


def accumulate(learner: LiveLearner, batch: LearnerBatch, rows: Sequence[int], *, step: int) -> Gradient:
    r"""Set the gradient of $\sum_k c_k \sum_{it} w_{it}\, \ell^{(k)}_{it}$ over the given rows: one optimizer step's.

    The weights are taken from all rows at once and the losses are plain sums, so that the split into micro-batches
    changes nothing. Raises NonFiniteError naming the row where a loss or the gradient is not finite.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    weights = token_weights(learner.settings, batch, rows)
    losses = dict.fromkeys(learner.settings.terms, 0.0)
    seen = torch.zeros_like(batch.counted, dtype=torch.get_default_dtype())
    for micro in learner.policy.micro_batches(batch.rollouts, rows):
        part = batch.take(micro)
        own = _of_rows(weights, micro, part.counted.shape[1])
        found = objective(learner, part, own, learner.settings.terms)
        for name, per_token in found.losses.items():
            _refuse_non_finite(per_token, step, learner.name, name, [batch.numbers[row] for row in micro])
            losses[name] += float(per_token.sum())
        if found.total.requires_grad:
            found.total.backward()
        seen[micro, : found.logprobs.shape[1]] = found.logprobs.to(seen)
    norm = torch.nn.utils.clip_grad_norm_(learner.policy.model.parameters(), learner.settings.optimizer.max_grad_norm)
    if not torch.isfinite(norm):
        _blame(learner, batch, weights, rows, step)
    return Gradient(losses=losses, logprobs=seen, norm=float(norm))


def token_weights(settings: Learner, batch: LearnerBatch, rows: Sequence[int]) -> dict[str, PerToken]:
    """How much each token of an optimizer step counts in each term; 0 for the batch's other rows."""
    rows = list(rows)

    def weigh(mask: TokenMask) -> PerToken:
        weights = torch.zeros_like(mask, dtype=torch.get_default_dtype())
        weights[rows] = settings.weighting(mask[rows]).to(weights)
        return weights

    shared = weigh(batch.counted)
    own = {
        name for name, term in settings.terms.items() if (w := getattr(term, "where", None)) and w.denominator == "own"
    }
    return {name: weigh(mask) if name in own else select(shared, mask) for name, mask in batch.applies.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The objective on some rows.

    Attributes:
        total: its gradient is the objective's; formed already where the head is concerned, so for one backward pass.
        losses: each term's weighted loss of each token, its own factor left out; detached.
        logprobs: current log-probabilities, detached.
    """

    total: Tensor
    losses: Mapping[str, PerToken]
    logprobs: PerToken


def objective(
    learner: LiveLearner, batch: LearnerBatch, weights: Mapping[str, PerToken], terms: Mapping[str, Term]
) -> Objective:
    r"""The sum of some terms over all rows of a batch, its distributions read in chunks of tokens.

    A term that is local to the token is taken chunk by chunk, and its gradient formed on the spot. A term that couples
    the tokens of a row sees all log-probabilities first, without gradient; its derivative $g_{it}$ with respect to them
    is then known, and $\sum_{it} g_{it} \log \pi(o_{it})$ has its gradient. So each chunk of logits is formed once for
    the gradient, and the matrix `[token, vocabulary]` never.
    """
    policy, mask, temperature = learner.policy, batch.rollouts.mask, batch.rollouts.temperature
    index = places(mask)

    def flat(values: Tensor, part: slice = EVERYTHING) -> Tensor:
        """The values of the tokens written, or of a part of them, row after row."""
        return values.flatten(0, 1)[index[part].to(values.device)].to(policy.device)

    local = {name: term for name, term in terms.items() if getattr(term, "token_local", False)}
    coupled = {name: term for name, term in terms.items() if name not in local}
    detail = Detail(entropy=any(term.needs_entropy for term in terms.values()))
    hidden, read = policy.hidden(batch.rollouts), reading(flat(batch.rollouts.tokens), detail, temperature)
    losses, slopes = _coupled(policy, hidden, batch, weights, coupled, detail)
    fixed = {name: batch.frozen[name] for name in local}

    def of_chunk(logits: TokenLogits, part: slice) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The objective of a chunk, taken as a batch of one row; its log-probabilities and each term's losses."""
        found = read(logits, part)
        current = Scores(
            logprobs=found[0][None],
            entropy=found[1][None] if detail.entropy else None,
            distributions=Distributions(hidden=logits[None], head=Head(None), temperature=temperature),
        )
        written = torch.ones_like(current.logprobs, dtype=torch.bool)
        total, own = logits.new_zeros(()), list[Tensor]()
        for slope, values in zip(slopes, found, strict=False):
            total = total + (flat(slope, part) * values).sum()
        for name, frozen in changed(fixed, lambda values: flat(values, part)[None]).items():
            weight, applies = (flat(values[name], part)[None] for values in (weights, batch.applies))
            loss = weight * local[name](current, frozen, written, applies)
            total = total + local[name].weight * loss.sum()
            own.append(loss[0])
        return total, (found[0], *own)

    total, values = minimize(of_chunk, hidden, policy.head)
    logprobs, *own = (put_back(each.to(mask.device), mask) for each in values)
    return Objective(total=total, losses=losses | dict(zip(local, own, strict=True)), logprobs=logprobs)


def _coupled(
    policy: Policy,
    hidden: Hidden,
    batch: LearnerBatch,
    weights: Mapping[str, PerToken],
    terms: Mapping[str, Term],
    detail: Detail,
) -> tuple[dict[str, PerToken], list[PerToken]]:
    """The losses of terms that see whole rows, and their sum's derivative by log-probabilities (and entropies)."""
    if not terms:
        return {}, []
    rollouts = batch.rollouts
    with torch.no_grad():
        current = policy.read(hidden, rollouts, temperature=rollouts.temperature, detail=detail)
    leaves = [values.requires_grad_() for values in (current.logprobs, current.entropy) if values is not None]
    losses = {
        name: weights[name] * term(current, batch.frozen[name], rollouts.mask, batch.applies[name])
        for name, term in terms.items()
    }
    total = torch.stack([terms[name].weight * loss.sum() for name, loss in losses.items()]).sum()
    slopes = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None for _ in leaves]
    return (
        {name: loss.detach() for name, loss in losses.items()},
        [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves, slopes, strict=True)],
    )


def _of_rows(weights: Mapping[str, PerToken], rows: Sequence[int], width: int) -> dict[str, Tensor]:
    return {name: values[list(rows), :width] for name, values in weights.items()}


def mini_batches(rows: int, count: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Shuffle the rows and deal them into `count` even mini-batches, each one optimizer step."""
    order = torch.randperm(rows, generator=generator).tolist()
    for number in range(count):
        mini_batch = sorted(order[number::count])
        if mini_batch:
            yield mini_batch


def _refuse_non_finite(values: Tensor, step: int, learner: str, term: str, rows: Sequence[int]) -> None:
    bad = torch.nonzero(~torch.isfinite(values))
    if len(bad):
        row, token = rows[int(bad[0, 0])], int(bad[0, 1])
        raise NonFiniteError(
            f"step {step}, learner '{learner}', term '{term}': the loss of row {row} is "
            f"{float(values[tuple(bad[0])].detach())} at token {token}. {REMEDY}"
        )


def _blame(
    learner: LiveLearner, batch: LearnerBatch, weights: Mapping[str, PerToken], rows: Sequence[int], step: int
) -> None:
    """Find the term and row behind a gradient that is not finite, one at a time, and raise naming them."""
    weight_list = [weight for weight in learner.policy.model.parameters() if weight.requires_grad]
    for row in rows:
        for name, term in learner.settings.terms.items():
            part = batch.take([row])
            own = _of_rows(weights, [row], part.counted.shape[1])
            total = objective(learner, part, own, {name: term}).total
            gradients = torch.autograd.grad(total, weight_list, allow_unused=True)
            if any(gradient is not None and not torch.isfinite(gradient).all() for gradient in gradients):
                raise NonFiniteError(
                    f"step {step}, learner '{learner.name}', term '{name}': the gradient of row "
                    f"{batch.numbers[row]} is not finite. {REMEDY}"
                )
    raise NonFiniteError(
        f"step {step}, learner '{learner.name}': the summed gradient is not finite although each row's is; "
        "it overflows. Lower the weights of its terms."
    )
