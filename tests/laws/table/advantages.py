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
    ReverseKL,
    Summand,
    TeacherLogRatio,
    TopK,
    WeightedSum,
)
from laws import advantages as laws, live_advantages, signatures
from laws.enumerated import K
from laws.row import WhyNot, all_but, row, split_of

ROLE = "advantages"
OF_TASK = Summand(weight=0.3, advantage=LeaveOneOut(), rewards={"task": 1.0})
LIVE = {
    "teacher_log_ratio": TeacherLogRatio(teacher="other"),
    "teacher_log_ratio/control_variate": TeacherLogRatio(teacher="other", control_variate=ReverseKL()),
    "teacher_log_ratio/top_k": TeacherLogRatio(teacher="other", control_variate=ReverseKL(top_k=TopK(k=K))),
}
OF_REWARDS = {
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
    "weighted_sum/live": WeightedSum(of=(OF_TASK, *(Summand(weight=0.1, advantage=own) for own in LIVE.values()))),
}
PARTS = OF_REWARDS | LIVE
NO_REWARDS = dict.fromkeys(
    LIVE, WhyNot("it looks at no reward, but at two policies; the law of its own is below", False)
)
NOT_LIVE = dict.fromkeys(OF_REWARDS, WhyNot("it is of rewards", shown=False))
NOT_CENTERED = {
    "teacher_log_ratio": WhyNot("its mean is minus the reverse KL"),
    "teacher_log_ratio/top_k": WhyNot("the top k with its tail is not all of the KL"),
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


def of_rewards(number, law, not_for=None):
    why_not = NO_REWARDS | (not_for or {})
    return row(number, ROLE, law, *all_but(PARTS, why_not), why_not=why_not)


def of_live(number, law, not_for=None):
    why_not = NOT_LIVE | (not_for or {})
    return row(number, ROLE, law, *all_but(PARTS, why_not), why_not=why_not)


ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    of_rewards(2, laws.rows_may_be_permuted),
    of_rewards(2, laws.absent_rows_change_nothing),
    of_live(2, live_advantages.tokens_are_apart),
    of_rewards(4, laws.equal_rewards_give_zero, OTHER_BASELINE),
    of_rewards(4, laws.a_group_of_one_gets_zero, OTHER_BASELINE),
    of_rewards(4, laws.an_equal_group_gets_zero_beside_others, OTHER_BASELINE | SHIFTED),
    of_rewards(4, laws.the_offset_of_rewards_does_not_matter, DEPENDS_ON_OFFSET),
    of_rewards(4, laws.groups_do_not_see_each_other, SEES_OTHER_GROUPS),
    of_live(4, live_advantages.nothing_at_an_equal_teacher),
    of_live(4, live_advantages.nothing_of_it_is_learned),
    of_live(4, live_advantages.its_gradient_is_the_reverse_kl_s),
    of_live(4, live_advantages.its_mean_is_zero, NOT_CENTERED),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    3: "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
