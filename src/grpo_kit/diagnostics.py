"""Numbers that are only for looking at, taken from what the loss has already computed."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from grpo_kit.advantages.live import live
from grpo_kit.batch import Experience, Rollouts
from grpo_kit.corrections import factors
from grpo_kit.learner import Learner
from grpo_kit.learner_batch import LearnerBatch
from grpo_kit.logprobs import LogProbs
from grpo_kit.masked import group_is_flat, product, row_sum, select
from grpo_kit.offers import call_with
from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms import DivergenceTerm, PolicyGradient

LOW_SAMPLE_SIZE = 0.1
"""Below this share a warning is due: the gradient is as noisy as one of a tenth of the tokens with equal weights."""


def mean(values: torch.Tensor) -> float:
    """Mean of the numbers that are there (NaN left out); NaN only when none is."""
    known = values[~values.isnan()]
    return float(known.double().mean()) if known.numel() else math.nan


def effective_sample_size(weights: PerToken, mask: TokenMask) -> float:
    r"""$(\sum w)^2 / \sum w^2$ as a share of the counted tokens, in [0, 1]; low values mean few tokens decide."""
    chosen = weights[mask].double()
    squares = float(chosen.square().sum())
    return float(chosen.sum()) ** 2 / squares / len(chosen) if squares > 0 else 0.0


def chi_square(log_weights: PerToken, mask: TokenMask) -> float:
    r"""$\frac{1}{n} \sum w^2 - 1$ over the counted tokens: the chi-square distance to the writer, where $E[w] = 1$."""
    return float((2 * log_weights[mask].double()).exp().mean()) - 1


def share(found: TokenMask | RowMask, among: TokenMask | RowMask) -> float:
    """Share of the places of `among` that are in `found`; 0 where there is none."""
    return float((found & among).sum() / among.sum().clamp(min=1))


def low_sample_size(metrics: Mapping[str, float]) -> str | None:
    """What to warn of where a term's effective sample size is below `LOW_SAMPLE_SIZE`; the lowest one is named."""
    sizes = {key: value for key, value in metrics.items() if key.endswith("/effective_sample_size")}
    lowest = min(sizes, key=lambda key: sizes[key], default=None)
    if lowest is None or not sizes[lowest] < LOW_SAMPLE_SIZE:
        return None
    return (
        f"{lowest} is {sizes[lowest]:.3f}, below {LOW_SAMPLE_SIZE}: few tokens decide the gradient. Lower the bound of "
        "the correction, take it at another level, or sample from a policy nearer to the learner."
    )


def flat_groups(rewards: PerRow, groups: GroupId) -> float:
    """Share of groups whose rewards are all the same: they teach nothing."""
    flat = group_is_flat(rewards, groups, ~rewards.isnan())
    return float(torch.stack([flat[groups == group][0] for group in groups.unique()]).double().mean())


def of_sampling(rollouts: Rollouts) -> dict[str, float]:
    """`sampler/*` of the sampled rows: lengths, why they ended, and who wrote how much where several policies did."""
    if rollouts.greedy.any():
        rollouts = rollouts.take(torch.nonzero(~rollouts.greedy).flatten().tolist())
    lengths = rollouts.lengths.double()
    reasons = Counter(rollouts.stop_reasons)
    writers = dict.fromkeys(writer.policy for writer in rollouts.behavior.writers) if rollouts.behavior else {}
    written = {name: share(rollouts.written_by(name), rollouts.mask) for name in writers if len(writers) > 1}
    return {
        "sampler/rows": float(len(rollouts)),
        "sampler/tokens": float(lengths.sum()),
        "sampler/length_mean": float(lengths.mean()),
        "sampler/length_max": float(lengths.max()),
        **{f"sampler/stop_{reason}": count / len(rollouts) for reason, count in sorted(reasons.items())},
        **{f"sampler/written/{name}": found for name, found in written.items()},
    }


def of_rewards(name: str, learner: Learner, experience: Experience, kept: RowMask) -> dict[str, float]:
    """`reward/<learner>/*`: the weighted total, each component, and the share of each status that is not ok.

    They are of the sampled rows, not of a data set's; the total of greedy ones stands by itself.
    """
    if not learner.rewards:
        return {}
    greedy, report = experience.rollouts.greedy, {}
    if greedy.any():
        report[f"reward/{name}/greedy"] = mean(experience.rewards.total(learner.rewards)[greedy.cpu()])
    if (left_out := greedy | ~experience.rollouts.sampled).any():
        sampled = torch.nonzero(~left_out).flatten()
        experience, kept = experience.take(sampled.tolist()), kept[sampled]
    rewards, groups = experience.rewards, experience.rollouts.groups
    total = rewards.total(learner.rewards)
    spread = torch.where(kept, total, torch.nan)
    report |= {
        f"reward/{name}/total": mean(total),
        f"reward/{name}/kept": mean(spread),
        f"reward/{name}/flat_groups": flat_groups(spread, groups),
        f"reward/{name}/missing": float(total.isnan().double().mean()),
    }
    for component_name in learner.rewards:
        component = rewards.components[component_name]
        report[f"reward/{name}/{component_name}"] = mean(component.per_row())
        for status, count in sorted(Counter(component.statuses).items()):
            if status != "ok":
                report[f"reward/{name}/{component_name}_{status}"] = count / len(component.statuses)
    return report


def of_term(prefix: str, name: str, term: object, current: PerToken, batch: LearnerBatch) -> dict[str, float]:
    """`learner/<name>/*` of one term after an optimizer step: ratio, clip, gap to the writer, correction; or its KL."""
    mask, written, frozen = batch.applies[name], batch.rollouts.mask, batch.frozen[name]
    if not bool(mask.any()):
        return {}
    if isinstance(term, DivergenceTerm):
        return {f"{prefix}/{key}": value for key, value in term.report(frozen).items()}
    if not isinstance(term, PolicyGradient):
        return {}
    logprobs = term.logprobs(current, frozen, written)
    log_ratio = term.ratio(logprobs.log_ratio, written)
    advantages = term.advantages(Scores(logprobs=current), frozen, mask)
    report = {
        "log_ratio_to_behavior": float((logprobs.current - logprobs.behavior)[mask].mean()),
        "rows_without_advantage": float((row_sum(advantages.abs(), mask) == 0)[mask.any(dim=1)].double().mean()),
        "advantage_abs": float(advantages[mask].abs().mean()),
        **_gap(term, logprobs, mask),
    }
    if term.needs_anchor:
        report["ratio_mean"] = float(log_ratio[mask].exp().mean())
    for _, part in live(term.advantage):
        scores = frozen[f"teacher/{part.teacher}"]
        assert isinstance(scores, Scores)
        report[f"log_ratio_of_{part.teacher}"] = float((scores.logprobs - logprobs.current)[mask].mean())
    if clipped := getattr(term.surrogate, "clipped", None):
        found = call_with(clipped, select(log_ratio, mask), advantages, mask=mask, logprobs=logprobs)
        report["clip_fraction"] = share(found, mask & (advantages != 0))
    if term.correction is not None:
        report |= _correction(term, frozen, logprobs, advantages, mask, written)
    return {f"{prefix}/{key}": value for key, value in report.items()}


def _gap(term: PolicyGradient, logprobs: LogProbs, mask: TokenMask) -> dict[str, float]:
    """How far the policy that scored the rows, or with the writer as anchor the current one, is from the writer."""
    scored = logprobs.current if term.anchor == "behavior" else logprobs.anchor
    gap = (scored - logprobs.behavior)[mask].double()
    return {
        "gap_mean": float(gap.abs().mean()),
        "gap_max": float(gap.abs().max()),
        "gap_kl": float((gap.expm1() - gap).mean()),
    }


def _correction(
    term: PolicyGradient,
    frozen: Mapping[str, Any],
    logprobs: LogProbs,
    advantages: PerToken,
    mask: TokenMask,
    written: TokenMask,
) -> dict[str, float]:
    """What a correction does: the weights before its bounds, at its level, and those that multiply the loss."""
    log_token = logprobs.log_correction
    weights = select(frozen["correction"], mask) if "correction" in frozen else mask.to(log_token)
    level = select  # a correction without a weight of its own is seen token by token
    for factor, is_live in reversed(factors(term.correction)):
        level = getattr(factor, "log_weight", level)
        if is_live:
            moved = logprobs.current - logprobs.behavior
            weights = product(weights, call_with(factor, moved, mask, advantages=advantages))
    raw = level(log_token, mask)
    return {
        "correction_mean": float(weights[mask].mean()),
        "effective_sample_size": effective_sample_size(weights, mask),
        "raw_effective_sample_size": effective_sample_size((raw - raw[mask].max()).exp(), mask),
        "raw_chi_square": chi_square(raw, mask),
        "kept_tokens": share(weights != 0, mask),
        "kept_rows": share((select(weights, mask) != 0).any(dim=1), mask.any(dim=1)),
        "log_weight_token": float(log_token[mask].mean()),
        "log_weight_row": float(row_sum(log_token, written).mean()),
    }
