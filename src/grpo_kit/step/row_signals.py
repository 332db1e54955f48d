"""What a step takes down about its first rows, for people to look at: no part reads it, and nothing depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from grpo_kit.batch import Experience
from grpo_kit.detail import Detail
from grpo_kit.learner_batch import LearnerBatch
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.shapes import AnyShape, PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms import PolicyGradient

SEEN = Detail(entropy=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSignals:
    """Signals of the first rows of a step, with the weights from before its updates.

    Terms go by `<learner>/<term>`, as in the metrics. NaN is a number that does not exist: of a token that does not
    count for the term, and of all tokens of a row that its learner does not train on.

    Attributes:
        scores: of each policy whose weights are here: log-probabilities and entropies.
        trained: for each learner, the rows among these that it trains on.
        counted: for each term, True where a token counts.
        advantages: for each policy gradient; a live one as it is at scoring time, without its control variate.
        corrections: for each policy gradient with a correction, the weights; live factors as at scoring time.
    """

    scores: Mapping[str, Scores]
    trained: Mapping[str, frozenset[int]]
    counted: Mapping[str, TokenMask]
    advantages: Mapping[str, PerToken]
    corrections: Mapping[str, PerToken]


def row_signals(
    recipe: Recipe,
    policies: Mapping[str, Policy],
    experience: Experience,
    batches: Mapping[str, LearnerBatch],
    count: int,
) -> RowSignals | None:
    """The signals of the first `count` rows, once more scored where that is needed; None for no rows.

    It draws nothing at random and changes nothing.
    """
    count = min(count, len(experience.rollouts))
    if count == 0:
        return None
    scores = _scores(recipe, policies, experience, count)
    mask = experience.rollouts.mask[:count]
    trained, counted, advantages, corrections = {}, {}, {}, {}
    for learner, batch in batches.items():
        own = {row: place for place, row in enumerate(batch.numbers) if row < count}
        trained[learner] = frozenset(own)
        for name, term in recipe.learners[learner].terms.items():
            key, applies = f"{learner}/{name}", batch.applies[name]
            counted[key] = _spread(applies, own, torch.zeros_like(mask))
            if isinstance(term, PolicyGradient):
                advantage, weights = _of_policy_gradient(term, batch, name, scores[learner].logprobs, own)
                advantages[key] = _spread(advantage, own, torch.full_like(mask, torch.nan, dtype=advantage.dtype))
                if weights is not None:
                    corrections[key] = _spread(weights, own, torch.full_like(mask, torch.nan, dtype=weights.dtype))
    return RowSignals(scores=scores, trained=trained, counted=counted, advantages=advantages, corrections=corrections)


def _of_policy_gradient(
    term: PolicyGradient, batch: LearnerBatch, name: str, logprobs: AnyShape, own: Mapping[int, int]
) -> tuple[PerToken, PerToken | None]:
    """Advantages, and weights where there is a correction, of a batch; right for the rows that are looked at.

    The others have the anchor, or the writer, for the current policy: nothing here has scored them.
    """
    frozen, applies = batch.frozen[name], batch.applies[name]
    current = torch.as_tensor(frozen.get("anchor", frozen["behavior"])).clone()
    current[list(own.values())] = logprobs[list(own), : current.shape[1]].to(current)
    advantages = term.advantages(Scores(logprobs=current), frozen, applies)
    weights = None
    if term.correction is not None:
        logprobs_of_term = term.logprobs(current, frozen, batch.rollouts.mask)
        weights = term.weights(logprobs_of_term, frozen, applies, advantages) if own else torch.ones_like(current)
        weights = torch.where(applies, weights, torch.nan)
    return torch.where(applies, advantages, torch.nan), weights


def _scores(recipe: Recipe, policies: Mapping[str, Policy], experience: Experience, count: int) -> dict[str, Scores]:
    """Of every policy that the step scored, and of every learner, whose weights are here.

    Log-probabilities that the step has are kept: they are the very numbers that it computes with.
    """
    rollouts, signals = experience.rollouts, experience.signals
    first = rollouts.take(range(count))
    missing = rollouts.mask.shape[1] - first.mask.shape[1]
    found: dict[str, Scores] = {}
    for name in dict.fromkeys([*(key.policy for key in signals.scores), *recipe.learners]):
        there = signals[name] if any(key.policy == name for key in signals.scores) else None
        entropy = None if there is None or there.entropy is None else there.entropy[:count]
        logprobs = None if there is None else there.logprobs[:count]
        if entropy is None:
            policy = policies.get(name)  # a replay sampler's buffer stands in for teachers that are not loaded
            if policy is None or not policy.has_weights:
                continue
            seen = policy.score_all(first, temperature=rollouts.temperature, detail=SEEN)
            seen = seen.map(lambda values: pad(values, (0, missing)))
            entropy, logprobs = seen.entropy, seen.logprobs if logprobs is None else logprobs
        assert logprobs is not None
        found[name] = Scores(logprobs=logprobs, entropy=entropy)
    return found


def _spread(values: torch.Tensor, own: Mapping[int, int], into: torch.Tensor) -> torch.Tensor:
    """Rows of a learner's batch (places by their numbers in the step) put into a tensor of all that are looked at."""
    into[list(own), : values.shape[1]] = values[list(own.values())]
    return into
