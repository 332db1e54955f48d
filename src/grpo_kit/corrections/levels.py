"""Levels: over which of its row's tokens a token's log-ratio, or a divergence, is taken."""

from typing import Literal

from einops import rearrange
from torch.nn.functional import pad

from grpo_kit.masked import row_mean, row_sum, select
from grpo_kit.shapes import PerToken, TokenMask

Level = Literal["token", "prefix", "sequence", "geometric", "window"]
OF_ROWS = ("sequence", "geometric")
"""The levels at which all tokens of a row have one value."""


def at_level(values: PerToken, mask: TokenMask, level: Level, window: int | None) -> PerToken:
    r"""For each token the sum (at `geometric` the mean) of the values over its level; inputs outside the mask are 0.

    `token`: its own; `prefix`: $u \le t$; `window`: $t - \mathrm{window} < u \le t$; `sequence`, `geometric`: all.
    """
    values = select(values, mask)
    if level == "token":
        return values
    if level == "prefix":
        return values.cumsum(dim=1)
    if level == "window":
        assert window is not None, "refused by check_window"
        width = min(window, values.shape[1])
        return pad(values, (width - 1, 0)).unfold(1, width, 1).sum(dim=2)
    of_row = row_sum(values, mask) if level == "sequence" else row_mean(values, mask)
    return rearrange(of_row, "row -> row 1").expand_as(values)


def check_window(level: Level, window: int | None) -> None:
    """ValueError unless a window is given with level `window`, and only there."""
    if level == "window" and window is None:
        raise ValueError("level = 'window' needs a number of tokens; give window, for example window = 16")
    if level != "window" and window is not None:
        raise ValueError(f"window = {window} has nothing to do at level '{level}'; remove it or use level = 'window'")


def formula(level: Level, window: int | None, value: str) -> str:
    """The same as LaTeX, of a value written with the index `iu`."""
    if level == "token":
        return value.replace("iu", "it")
    if level == "geometric":
        return rf"\mathrm{{mean}}_u({value})"
    tokens = {"prefix": r"u \le t", "sequence": "u", "window": rf"t - {window} < u \le t"}[level]
    return rf"\sum_{{{tokens}}} {value if value == 'b_{iu}' else f'[{value}]'}"
