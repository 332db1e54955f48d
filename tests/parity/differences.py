"""Differences that no option sets equal, each by name, with whose it is and how it is checked.

A difference is a correction of the peer's result: after it the result must equal ours, and before it must not, or the
explanation is out of date.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from case import KL_WEIGHT, LENGTH, Case
from torch import Tensor

Result = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Why a peer differs from us, and what makes its result ours."""

    whose: Literal["theirs", "ours"]
    why: str
    corrected: Callable[[Case, Result, Result, Mapping[str, Tensor]], Result]


def rows_left_out(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Times all rows over those with a counted token."""
    factor = len(batch["mask"]) / ours["counted"].any(1).sum()
    return {**theirs, "loss": theirs["loss"] * factor, "gradient": theirs["gradient"] * factor}


def sum_over_rows(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Over the constant length of a row; plus the mean advantage, the loss of a ratio of 1."""
    return {
        **theirs,
        "loss": theirs["loss"] + theirs["advantages"][:, 0].mean(),
        "gradient": theirs["gradient"] / LENGTH,
    }


def moments_of_tokens(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """The one scale and shift that make their advantages ours, and what they make of a loss linear in them."""
    mask = batch["mask"]
    scale = theirs["advantages"][mask].std() / ours["advantages"][mask].std()
    shift = theirs["advantages"][mask].mean() - scale * ours["advantages"][mask].mean()
    weights = shift * mask / mask.sum(1, keepdim=True) / len(mask)
    return {
        "advantages": (theirs["advantages"] - shift) / scale * mask,
        "loss": (theirs["loss"] + (weights * batch["current"]).sum()) / scale,
        "gradient": (theirs["gradient"] + weights) / scale,
    }


def rejected_tokens(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Times the kept tokens over all; their advantages where the rejected ones have none."""
    factor = theirs["counted"].sum() / batch["mask"].sum()
    advantages = torch.where(theirs["counted"].bool(), theirs["advantages"], ours["advantages"])
    return {"advantages": advantages, "loss": theirs["loss"] * factor, "gradient": theirs["gradient"] * factor}


def bounded_k3(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Plus value and gradient of what k3 exceeds 10 by, over all tokens of the batch."""
    log_ratio = batch["current"] - batch["reference"]
    beyond = batch["mask"] & ((-log_ratio).exp() - 1 + log_ratio > 10)
    weight = KL_WEIGHT / batch["mask"].sum()
    loss = weight * torch.where(beyond, (-log_ratio).exp() - 1 + log_ratio - 10, 0).sum()
    gradient = weight * torch.where(beyond, 1 - (-log_ratio).exp(), 0)
    if case.theirs["actor"]["kl_loss_type"] == "k3+":
        gradient = torch.zeros_like(gradient)
    return {**theirs, "loss": theirs["loss"] + loss, "gradient": theirs["gradient"] + gradient}


def lone_rows(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Nothing is left where every advantage is the row's own reward; else the peer's result as it is."""
    is_reward = theirs["advantages"].allclose(batch["rewards"][:, None] * batch["mask"])
    return {name: torch.zeros_like(value) for name, value in theirs.items()} if is_reward else theirs


def nonzero_rewards(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Times the rows with a reward over the rows of groups with spread."""
    same = batch["groups"][:, None] == batch["groups"]
    lowest = torch.where(same, batch["rewards"], torch.inf).amin(1)
    highest = torch.where(same, batch["rewards"], -torch.inf).amax(1)
    factor = batch["rewards"].count_nonzero() / (lowest < highest).sum()
    return {name: value * factor for name, value in theirs.items()}


def constant(case: Case, theirs: Result, ours: Result, batch: Mapping[str, Tensor]) -> Result:
    """Minus the gradient times the anchor's log-probabilities: the loss is linear in the current ones.

    Our plain score function is its own anchor: nothing else looks at one.
    """
    alone = case.theirs.get("loss") == "gpg"
    anchor = batch["current" if alone else "rollout" if case.theirs.get("bypass") else "old"]
    return {**theirs, "loss": theirs["loss"] - (ours["gradient"] * anchor).sum()}


DIFFERENCES = {
    "rows left out": Difference(
        whose="theirs",
        why="TRL divides by all rows, so a truncated row left out of the loss, or one without a reward, still counts "
        "as one of loss 0; we and verl divide by the rows with a counted token. Equal after the factor of the two "
        "counts.",
        corrected=rows_left_out,
    ),
    "rejected tokens": Difference(
        whose="theirs",
        why="verl's rejection takes tokens out of the mask, so the others share their weight; ours sets their weight "
        "to 0 and leaves the denominator, so that rejecting most rows makes the step small. Equal after the factor of "
        "the two counts of tokens.",
        corrected=rejected_tokens,
    ),
    "sum over rows": Difference(
        whose="theirs",
        why="TRL's RLOO clips the product of a row's ratios and sums over its tokens; ours is the score function with "
        "a constant length. The first update is the same, and compared: equal after dividing by the length.",
        corrected=sum_over_rows,
    ),
    "moments of tokens": Difference(
        whose="theirs",
        why="verl's GDPO takes the last mean and deviation over tokens, so that long rows count more and the mean is "
        "not 0; we (as TRL) take the deviation over rows. Equal after one scale and shift of the advantages.",
        corrected=moments_of_tokens,
    ),
    "bounded k3": Difference(
        whose="theirs",
        why="verl cuts k3 off at 10, where its gradient then is 0: tokens that the reference likes better by a factor "
        "of 14 and more are not pulled at all. Equal after adding the rest and its gradient.",
        corrected=bounded_k3,
    ),
    "lone rows": Difference(
        whose="theirs",
        why="A group of one row has nothing to be compared with: its advantage is 0 with us, its bare reward in verl. "
        "Checked: their advantages are the rewards.",
        corrected=lone_rows,
    ),
    "nonzero rewards": Difference(
        whose="theirs",
        why="GPG scales its advantages up by all rows over those of groups with spread; verl divides by the number of "
        "rows whose reward is not 0 in their place. Equal after the factor of the two counts.",
        corrected=nonzero_rewards,
    ),
    "constant": Difference(
        whose="ours",
        why=r"A loss $-w A \log \pi$ of the peers is $-w A \log \rho$ with us, smaller by a constant: the gradient is "
        "the same and the loss 0 on policy. Equal after subtracting the constant.",
        corrected=constant,
    ),
}
