"""Advantages in the table law x part."""

from grpo_kit import (
    GPG,
    OPO,
    EMABaseline,
    GroupMean,
    LeaveOneOut,
    MaxRL,
    PassAtK,
    PerComponent,
    ReinforcePP,
    ReinforcePPBaseline,
    ReMax,
    Summand,
    WeightedSum,
)
from laws import advantages as laws, signatures
from laws.row import WhyNot, all_but, row, split_of

ROLE = "advantages"
OF_TASK = Summand(weight=0.3, advantage=LeaveOneOut(), rewards={"task": 1.0})
PARTS = {
    "group_mean": GroupMean(),
    "group_mean/group": GroupMean(scale="group"),
    "group_mean/batch": GroupMean(scale="batch"),
    "leave_one_out": LeaveOneOut(),
    "opo": OPO(),
    "max_rl": MaxRL(),
    "gpg": GPG(),
    "pass_at_k": PassAtK(k=2),
    "pass_at_k/all": PassAtK(k=8),
    "reinforce_pp": ReinforcePP(),
    "reinforce_pp/discounted": ReinforcePP(gamma=0.5),
    "reinforce_pp_baseline": ReinforcePPBaseline(),
    "reinforce_pp_baseline/shift": ReinforcePPBaseline(shift=True),
    "remax": ReMax(),
    "ema_baseline": EMABaseline(),
    "per_component": PerComponent(),
    "per_component/none": PerComponent(advantage=LeaveOneOut(), scale="none"),
    "weighted_sum": WeightedSum(of=(Summand(weight=0.7, advantage=GroupMean()), OF_TASK)),
    "weighted_sum/tokens": WeightedSum(of=(OF_TASK, Summand(advantage=ReinforcePP()))),
}
BATCH = WhyNot("the deviation of the whole batch is in its denominator; batch-scaled advantages keep the zero only")
OTHER_BASELINE = {
    "reinforce_pp": WhyNot("its baseline is the mean over the batch's tokens, not the group's"),
    "reinforce_pp/discounted": WhyNot("its baseline is the mean over the batch's tokens, not the group's"),
    "remax": WhyNot("its baseline is the reward of another completion"),
    "ema_baseline": WhyNot("its baseline is the mean of batches, not the group's"),
    "weighted_sum/tokens": WhyNot("one of its summands has no baseline of the group"),
}
SHIFTED = {
    "reinforce_pp_baseline/shift": WhyNot("the mean over the batch's tokens is subtracted from all rows"),
}
SEES_OTHER_GROUPS = {
    "group_mean/batch": BATCH,
    "gpg": WhyNot("it scales by the share of rows in groups with spread"),
    "reinforce_pp_baseline": BATCH,
    "reinforce_pp_baseline/shift": BATCH,
    "per_component": BATCH,
    **{kind: why for kind, why in OTHER_BASELINE.items() if kind != "remax"},
}
DEPENDS_ON_OFFSET = {
    "max_rl": WhyNot("it is relative to the mean reward: 1 beside 0 is not 2 beside 1"),
    "reinforce_pp/discounted": WhyNot("an offset on the last token is discounted by the way to it"),
}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.rows_may_be_permuted, *PARTS),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(4, ROLE, laws.equal_rewards_give_zero, *all_but(PARTS, OTHER_BASELINE), why_not=OTHER_BASELINE),
    row(4, ROLE, laws.a_group_of_one_gets_zero, *all_but(PARTS, OTHER_BASELINE), why_not=OTHER_BASELINE),
    row(
        4,
        ROLE,
        laws.an_equal_group_gets_zero_beside_others,
        *all_but(PARTS, OTHER_BASELINE | SHIFTED),
        why_not=OTHER_BASELINE | SHIFTED,
    ),
    row(
        4,
        ROLE,
        laws.the_offset_of_rewards_does_not_matter,
        *all_but(PARTS, DEPENDS_ON_OFFSET),
        why_not=DEPENDS_ON_OFFSET,
    ),
    row(4, ROLE, laws.groups_do_not_see_each_other, *all_but(PARTS, SEES_OTHER_GROUPS), why_not=SEES_OTHER_GROUPS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    3: "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
