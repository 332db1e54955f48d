"""Corrections in the table law x part."""

from grpo_kit import ImportanceWeight
from laws import corrections as laws, levels, signatures
from laws.row import row, split_of

ROLE = "corrections"
PARTS = {
    f"importance_weight/{level}/{action}": ImportanceWeight(level=level, action=action, low=low, high=high)
    for level, low, high in (("token", 0, 2), ("prefix", 0.5, 2), ("sequence", 0, 5), ("geometric", 0.9, 1.1))
    for action in ("truncate", "mask")
}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, examples=2),
    row(2, ROLE, levels.rows_may_be_permuted, *PARTS),
    row(2, ROLE, levels.padding_changes_nothing, *PARTS),
    row(2, ROLE, levels.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, levels.what_is_masked_does_not_matter, *PARTS),
    row(6, ROLE, laws.one_when_the_two_agree, *PARTS),
    row(6, ROLE, laws.kept_in_its_bounds, *PARTS),
    row(6, ROLE, laws.detached, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {4: "it has no baseline", 5: "it has no ratio", 7: "it is no divergence"}
