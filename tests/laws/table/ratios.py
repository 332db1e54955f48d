"""Ratios in the table law x part."""

from grpo_kit import SequenceRatio, TokenRatio
from laws import levels as laws, signatures
from laws.row import row, split_of

ROLE = "ratios"
PARTS = {"token": TokenRatio(), "sequence": SequenceRatio()}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.padding_changes_nothing, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, laws.what_is_masked_does_not_matter, *PARTS),
    row(5, ROLE, laws.a_ratio_of_one_stays_one, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {4: "it has no baseline", 6: "it is no correction", 7: "it is no divergence"}
