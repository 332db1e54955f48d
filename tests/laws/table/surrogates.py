"""Surrogates in the table law x part."""

from grpo_kit import CISPO, DPPO, GMPO, SAPO, Clip, Reinforce
from laws import signatures, surrogates as laws
from laws.row import WhyNot, all_but, row, split_of

ROLE = "surrogates"
PARTS = {
    "reinforce": Reinforce(),
    "clip": Clip(),
    "clip/higher": Clip(low=0.2, high=0.28),
    "clip/cap": Clip(cap=3.0),
    "cispo": CISPO(),
    "cispo/relative": CISPO(bound="relative", low=0.2, high=0.28),
    "sapo": SAPO(),
    "gmpo": GMPO(),
    "dppo/tv": DPPO(),
    "dppo/kl": DPPO(divergence="kl", low=0.05, high=0.05),
}
SCALED = WhyNot("it bounds the weight of a gradient and never removes one")
NO_CLIP = {
    "reinforce": WhyNot("it has no clip at all, so nothing stops a ratio"),
    "cispo": SCALED,
    "cispo/relative": SCALED,
    "sapo": WhyNot("its gate is soft: the gradient falls off and is never 0"),
}
SCALES = dict.fromkeys(("cispo", "cispo/relative"), SCALED)
OF_ROWS = {"gmpo": WhyNot("its ratio is the row's geometric mean")}
PESSIMISTIC = WhyNot("on the pessimistic side the ratio has no bound, as in the paper; a cap is an option of clip")
UNBOUNDED = dict.fromkeys(("clip", "clip/higher", "gmpo"), PESSIMISTIC)

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, laws.rows_do_not_see_each_other, *PARTS),
    row(2, ROLE, laws.tokens_do_not_see_each_other, *all_but(PARTS, OF_ROWS), why_not=OF_ROWS),
    row(3, ROLE, laws.huge_ratios_stay_finite, *PARTS),
    row(3, ROLE, laws.no_ratio_overflows, *all_but(PARTS, UNBOUNDED), why_not=UNBOUNDED),
    row(5, ROLE, laws.on_policy_it_is_reinforce, *PARTS),
    row(5, ROLE, laws.clipped_is_not_pushed_further, *all_but(PARTS, NO_CLIP), why_not=NO_CLIP),
    row(5, ROLE, laws.a_wrong_move_is_always_pulled_back, *PARTS),
    row(5, ROLE, laws.it_says_what_it_clips, *all_but(PARTS, SCALES), why_not=SCALES),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {4: "it has no baseline", 6: "it is no correction", 7: "it is no divergence"}
