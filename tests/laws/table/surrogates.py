"""Surrogates in the table law x part."""

from grpo_kit import Clip, Reinforce
from laws import signatures, surrogates as laws
from laws.row import WhyNot, all_but, row, split_of

ROLE = "surrogates"
PARTS = {
    "reinforce": Reinforce(),
    "clip": Clip(),
    "clip/higher": Clip(low=0.2, high=0.28),
    "clip/cap": Clip(cap=3.0),
}
NO_CLIP = {"reinforce": WhyNot("it has no clip at all, so nothing stops a ratio")}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, examples=3),
    row(2, ROLE, laws.tokens_do_not_see_each_other, *PARTS),
    row(3, ROLE, laws.huge_ratios_stay_finite, *PARTS),
    row(5, ROLE, laws.on_policy_it_is_reinforce, *PARTS),
    row(5, ROLE, laws.clipped_is_not_pushed_further, *all_but(PARTS, NO_CLIP), why_not=NO_CLIP),
    row(5, ROLE, laws.a_wrong_move_is_always_pulled_back, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, examples=1),
)
NOT_ABOUT = {4: "it has no baseline", 6: "it is no correction", 7: "it is no divergence"}
