"""Weightings in the table law x part."""

from grpo_kit import EqualRows, EqualTokens, FixedLength
from laws import signatures, weightings as laws
from laws.row import row, split_of

ROLE = "weightings"
PARTS = {"equal_tokens": EqualTokens(), "equal_rows": EqualRows(), "fixed_length": FixedLength(length=4)}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.padding_changes_nothing, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, laws.nothing_counts_outside_the_mask, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
