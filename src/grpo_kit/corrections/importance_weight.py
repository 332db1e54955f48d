"""The bounded importance weight anchor / behavior at a chosen level."""

from math import inf, log
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from grpo_kit.corrections.levels import OF_ROWS, Level, at_level, check_window, formula
from grpo_kit.formula import number
from grpo_kit.masked import group_max, group_sum, row_mean, row_sum, select
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerToken, TokenMask


@part("importance_weight")
class ImportanceWeight:
    r"""Weight each token by $w = \pi_\mathrm{anchor} / \mu$, at a level, kept inside $[\mathrm{low}, \mathrm{high}]$.

    With $\ell_t = \log \pi_\mathrm{anchor}(o_t) - \log \mu(o_t)$ the level is `token`: $e^{\ell_t}$; `prefix`:
    $e^{\sum_{u \le t} \ell_u}$; `window`: the same over the last `window` tokens; `sequence`: $e^{\sum_u \ell_u}$;
    `geometric`: $e^{\frac{1}{|o|}\sum_u \ell_u}$. Only the untruncated sequence product is unbiased for a reward at
    the end of the row; its variance grows with the length of the row, and over long rows it vanishes. `truncate` moves
    a weight to the nearest bound (V-trace clips so, arXiv:1802.01561); `mask` sets it to 0 outside. Then comes the
    power `temper`, then the normalization; the bounds are of the weight as it was before both.

    Points in it: TIS (truncated importance sampling; Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training") is the default, level `token` or `sequence`, `truncate`, `high` 2. MIS (masked; Liu et al.
    2025, "When speed kills stability") is level `sequence`, `mask`, `high` 2, or 3 as in TRL. IcePop
    (arXiv:2510.18855) is level `token`, `mask`, `low` 0.5, `high` 5. Geo-RS, the rejection of rows by their geometric
    mean (same authors as MIS), is level `geometric`, `mask`, `temper` 0, `low` 0.999, `high` 1.001.

    Attributes:
        level: over which tokens the quotient is taken.
        window: number of tokens of level `window`, and of no other; at least 1.
        action: what happens to a weight outside the bounds.
        low: lower bound, in [0, 1].
        high: upper bound, at least 1; `inf` for none.
        temper: power of the bounded weight, in [0, 1]; less than 1 trades variance for bias, 0 only keeps or drops.
        normalize: divide by the mean weight of the group or of the batch, dropped ones included: the mean over rows
            at the levels `sequence` and `geometric`, else over counted tokens. The batch is the step's rows.

    Example:
        >>> weight = ImportanceWeight(level="sequence", high=2.0)
        >>> weight(torch.tensor([[2.0, 0.25]]).log(), torch.tensor([[True, True]]))
        tensor([[0.5000, 0.5000]])
    """

    level: Level = "token"
    window: Annotated[int, Field(ge=1)] | None = None
    action: Literal["truncate", "mask"] = "truncate"
    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=1, allow_inf_nan=True)] = 2.0
    temper: Annotated[float, Field(ge=0, le=1)] = 1.0
    normalize: Literal["none", "group", "batch"] = "none"

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> "ImportanceWeight":
        check_window(self.level, self.window)
        if self.temper == 0 and self.action == "truncate":
            raise ValueError("temper = 0 makes every truncated weight 1; use action = 'mask' or a larger temper")
        if self.action == "truncate" and self.low == self.high:
            raise ValueError(
                "low = high = 1 makes every truncated weight 1; use wider bounds, or remove the correction"
            )
        if self.action == "mask" and self.low == 0 and self.high == inf:
            raise ValueError(
                "action = 'mask' with low = 0 and high = inf drops nothing; give a bound, or use action = 'truncate' "
                "for the weight without bounds"
            )
        return self

    @property
    def formula(self) -> str:
        """Weight of a token."""
        weight, bounds = f"e^{{{self._level()}}}", f"{number(self.low)}, {number(self.high)}"
        if self.action == "truncate":
            power = "" if self.temper == 1 else f"^{{{number(self.temper)}}}"
            found = rf"\operatorname{{clip}}({weight}, {bounds}){power}"
        elif self.temper == 1:
            found = rf"{weight} \text{{ inside }} [{bounds}] \text{{, else }} 0"
        else:
            value = rf"e^{{{number(self.temper)} \cdot [{self._level()}]}}" if self.temper else "1"
            found = rf"{value} \text{{ where }} {weight} \text{{ inside }} [{bounds}] \text{{, else }} 0"
        over = "rows" if self.level in OF_ROWS else "tokens"
        scope = {"none": "", "group": rf"group's {over}", "batch": rf"batch's {over}"}[self.normalize]
        return found + (rf" \text{{, divided by the mean over the {scope}}}" if scope else "")

    def log_weight(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Logarithm of each token's weight before bounds, power and normalization."""
        return select(at_level(log_ratio.detach(), mask, self.level, self.window), mask)

    def __call__(self, log_ratio: PerToken, mask: TokenMask, groups: GroupId | None = None) -> PerToken:
        """Detached weights; see the class."""
        raw = self.log_weight(log_ratio, mask)
        low, high = log(self.low) if self.low else -inf, log(self.high)
        kept = mask & (raw >= low) & (raw <= high) if self.action == "mask" else mask
        if self.normalize != "none":
            return self._normalized(self.temper * raw.clamp(low, high), kept, mask, groups)
        return select((self.temper * raw).exp().clamp(self.low**self.temper, self.high**self.temper), kept)

    def _normalized(self, log_weights: PerToken, kept: TokenMask, mask: TokenMask, groups: GroupId | None) -> PerToken:
        """The weights over their mean; the largest, which cancels, is taken out so that not all can underflow."""
        if self.normalize == "group" and groups is None:
            raise ValueError("normalize = 'group' needs the keyword groups, the group of each row")
        together = torch.zeros(len(mask), dtype=torch.long, device=mask.device) if self.normalize == "batch" else groups
        assert together is not None, "checked above"
        of_rows = self.level in OF_ROWS
        largest = group_max(torch.where(kept, log_weights, -inf).amax(dim=1), together, kept.any(dim=1))
        weights = select((log_weights - largest[:, None]).exp(), kept)
        totals = row_mean(weights, mask) if of_rows else row_sum(weights, mask)
        counts = (mask.any(dim=1) if of_rows else mask.sum(dim=1)).to(totals)
        means = group_sum(totals, together) / group_sum(counts, together)
        return weights / torch.where(means > 0, means, 1)[:, None]

    def _level(self) -> str:
        return formula(self.level, self.window, "b_{iu}")
