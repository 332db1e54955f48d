"""Numbers that are only for looking at, taken from what the loss has already computed."""

import math
from collections import Counter
from collections.abc import Mapping

import torch

from grpo_kit.batch import Experience, Rollouts
from grpo_kit.learner import Learner
from grpo_kit.masked import group_is_flat, row_sum, select
from grpo_kit.objective import Batch
from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenMask
from grpo_kit.surrogates import Clip
from grpo_kit.terms import PolicyGradient


def mean(values: torch.Tensor) -> float:
    """Mean of the numbers that are there (NaN left out); NaN only when none is."""
    known = values[~values.isnan()]
    return float(known.double().mean()) if known.numel() else math.nan


def effective_sample_size(weights: PerToken, mask: TokenMask) -> float:
    r"""$(\sum w)^2 / \sum w^2$ as a share of the counted tokens, in [0, 1]; low values mean few tokens decide."""
    chosen = weights[mask].double()
    squares = float(chosen.square().sum())
    return float(chosen.sum()) ** 2 / squares / len(chosen) if squares > 0 else 0.0


def clip_fraction(log_ratio: PerToken, advantages: PerToken, mask: TokenMask, clip: Clip) -> float:
    """Share of the counted tokens with a non-zero advantage whose gradient the clip removed."""
    live = mask & (advantages != 0)
    too_high = log_ratio > math.log1p(clip.high)
    too_low = log_ratio < math.log1p(-clip.low)
    capped = log_ratio > math.log(clip.cap) if clip.cap is not None else torch.zeros_like(mask)
    dropped = torch.where(advantages >= 0, too_high, too_low | capped)
    return float((dropped & live).sum() / live.sum().clamp(min=1))


def flat_groups(rewards: PerRow, groups: GroupId) -> float:
    """Share of groups whose rewards are all the same: they teach nothing."""
    flat = group_is_flat(rewards, groups, ~rewards.isnan())
    return float(torch.stack([flat[groups == group][0] for group in groups.unique()]).double().mean())


def of_sampling(rollouts: Rollouts, seconds: float) -> dict[str, float]:
    """`sampler/*`: lengths, why rows ended, tokens a second."""
    lengths = rollouts.lengths.double()
    reasons = Counter(rollouts.stop_reasons)
    return {
        "sampler/rows": float(len(rollouts)),
        "sampler/tokens": float(lengths.sum()),
        "time/tokens_per_second": float(lengths.sum()) / max(seconds, 1e-9),
        "sampler/length_mean": float(lengths.mean()),
        "sampler/length_max": float(lengths.max()),
        **{f"sampler/stop_{reason}": count / len(rollouts) for reason, count in sorted(reasons.items())},
    }


def of_rewards(name: str, learner: Learner, experience: Experience, kept: RowMask) -> dict[str, float]:
    """`reward/<learner>/*`: the weighted total, each component, and the share of each status that is not ok."""
    if not learner.rewards:
        return {}
    rewards, groups = experience.rewards, experience.rollouts.groups
    total = rewards.total(learner.rewards)
    spread = torch.where(kept, total, torch.nan)
    report = {
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


def of_term(
    name: str, term: object, frozen: Mapping[str, PerToken], current: PerToken, batch: Batch
) -> dict[str, float]:
    """`learner/<name>/*` of one term after an optimizer step: ratio, clip, correction, share of rows with a signal."""
    mask = batch.counted
    if not isinstance(term, PolicyGradient) or not bool(mask.any()):
        return {}
    log_ratio = term.ratio(select(current - frozen["anchor"], batch.rollouts.mask), batch.rollouts.mask)
    drift = (current - frozen["behavior"])[mask]
    advantages = frozen["advantages"]
    report = {
        f"{name}/ratio_mean": float(log_ratio[mask].exp().mean()),
        f"{name}/log_ratio_to_behavior": float(drift.mean()),
        f"{name}/rows_without_advantage": float((row_sum(advantages.abs(), mask) == 0).double().mean()),
        f"{name}/advantage_abs": float(advantages[mask].abs().mean()),
    }
    if isinstance(term.surrogate, Clip):
        report[f"{name}/clip_fraction"] = clip_fraction(log_ratio, advantages, mask, term.surrogate)
    if "correction" in frozen:
        weights = frozen["correction"]
        raw = select(frozen["anchor"] - frozen["behavior"], batch.rollouts.mask)
        report |= {
            f"{name}/correction_mean": float(weights[mask].mean()),
            f"{name}/effective_sample_size": effective_sample_size(weights, mask),
            f"{name}/log_weight_token": float(raw[mask].mean()),
            f"{name}/log_weight_row": float(row_sum(raw, batch.rollouts.mask).mean()),
        }
    return report
