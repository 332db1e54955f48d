"""Selections in the table law x part."""

from grpo_kit import MaxVariance, TopBottom
from laws import selections as laws, signatures
from laws.row import row

ROLE = "selections"
PARTS = {
    "max_variance": MaxVariance(keep=2),
    "max_variance/three": MaxVariance(keep=3),
    "top_bottom": TopBottom(top=1, bottom=2),
    "top_bottom/top": TopBottom(top=2, bottom=0),
}

ROWS = (
    row(2, ROLE, laws.groups_do_not_see_each_other, *PARTS),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(2, ROLE, laws.small_groups_are_kept_whole, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {
    1: "the rows of a step are chosen before it is split",
    3: "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
