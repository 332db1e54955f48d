"""Selections in the table law x part."""

from grpo_kit import MaxVariance, RandomRows, Spread, TopBottom
from laws import selections as laws, signatures
from laws.row import WhyNot, all_but, row

ROLE = "selections"
PARTS = {
    "max_variance": MaxVariance(keep=2),
    "max_variance/three": MaxVariance(keep=3),
    "top_bottom": TopBottom(top=1, bottom=2),
    "top_bottom/top": TopBottom(top=2, bottom=0),
    "random": RandomRows(keep=2),
    "random/one": RandomRows(keep=1),
    "spread": Spread(),
}
RANDOM = ("random", "random/one")
TOGETHER = dict.fromkeys(RANDOM, WhyNot("one generator draws for all groups, so each group's draw is another alone"))
IN_ORDER = dict.fromkeys(RANDOM, WhyNot("its draws go to rows in order; only their distribution is the same"))
NO_NUMBER = {"spread": WhyNot("it keeps no number of rows but all or none", shown=False)}
IN_PART = {kind: WhyNot("it chooses rows, not groups") for kind in PARTS if kind != "spread"}

ROWS = (
    row(2, ROLE, laws.groups_do_not_see_each_other, *all_but(PARTS, TOGETHER), why_not=TOGETHER),
    row(2, ROLE, laws.rows_may_be_permuted, *all_but(PARTS, IN_ORDER), why_not=IN_ORDER),
    row(2, ROLE, laws.absent_rows_change_nothing, *PARTS),
    row(2, ROLE, laws.small_groups_are_kept_whole, *all_but(PARTS, NO_NUMBER), why_not=NO_NUMBER),
    row(2, ROLE, laws.keep_is_the_most_of_a_group, *all_but(PARTS, NO_NUMBER), why_not=NO_NUMBER),
    row(2, ROLE, laws.a_group_is_kept_or_dropped_whole, "spread", why_not=IN_PART),
    row(2, ROLE, laws.the_same_generator_keeps_the_same_rows, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {
    1: "the rows of a step are chosen before it is split",
    3: "they see rows, not tokens; a NaN there is a missing reward (law 2)",
    4: "it has no baseline",
    5: "it has no ratio",
    6: "it is no correction",
    7: "it is no divergence",
}
