"""Advantages in the table law x part."""

from grpo_kit import GroupMean, LeaveOneOut
from laws import advantages as laws, signatures
from laws.row import WhyNot, all_but, row, split_of

ROLE = "advantages"
PARTS = {
    "group_mean": GroupMean(),
    "group_mean/group": GroupMean(scale="group"),
    "group_mean/batch": GroupMean(scale="batch"),
    "leave_one_out": LeaveOneOut(),
}
BATCH = WhyNot("the deviation of the whole batch is in its denominator; batch-scaled advantages keep the zero only")
SEES_OTHER_GROUPS = {"group_mean/batch": BATCH}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, examples=3),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(4, ROLE, laws.equal_rewards_give_zero, *PARTS),
    row(4, ROLE, laws.a_group_of_one_gets_zero, *PARTS),
    row(4, ROLE, laws.the_offset_of_rewards_does_not_matter, *PARTS),
    row(4, ROLE, laws.groups_do_not_see_each_other, *all_but(PARTS, SEES_OTHER_GROUPS), why_not=SEES_OTHER_GROUPS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {
    3: "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
