"""Corrections in the table law x part."""

from grpo_kit import DivergenceMask, ImportanceWeight, Product
from laws import corrections as laws, levels, signatures
from laws.row import WhyNot, all_but, row, split_of

ROLE = "corrections"
GEO_RS = ImportanceWeight(level="geometric", action="mask", temper=0, low=0.7, high=1.4)
OPSM = DivergenceMask(metric="k1", high=0.3, only_negative=True, at="update")
WEIGHTS = {
    "importance_weight/token/truncate": ImportanceWeight(),
    "importance_weight/token/mask": ImportanceWeight(action="mask", low=0.5, high=5.0),
    "importance_weight/prefix/mask": ImportanceWeight(level="prefix", action="mask", low=0.5, high=2.0),
    "importance_weight/window/truncate": ImportanceWeight(level="window", window=2, low=0.1, high=3.0),
    "importance_weight/sequence/truncate": ImportanceWeight(level="sequence", high=5.0),
    "importance_weight/geometric/truncate": ImportanceWeight(level="geometric", low=0.9, high=1.1),
}
NORMALIZED = {
    "importance_weight/normalize/group": ImportanceWeight(normalize="group"),
    "importance_weight/normalize/batch": ImportanceWeight(level="sequence", action="mask", normalize="batch"),
}
MASKS = {
    "divergence_mask/k2/prefix": DivergenceMask(metric="k2", level="prefix", high=0.3),
    "divergence_mask/k3/window": DivergenceMask(metric="k3", level="window", window=2, high=0.3),
    "divergence_mask/k3/geometric": DivergenceMask(high=0.3),
}
PARTS = {
    **WEIGHTS,
    "importance_weight/tempered": ImportanceWeight(level="prefix", low=0.5, high=4.0, temper=0.5),
    "importance_weight/geo_rs": GEO_RS,
    **NORMALIZED,
    **MASKS,
    "divergence_mask/both_sides": DivergenceMask(metric="k1", level="sequence", low=-0.5, high=0.5),
    "divergence_mask/opsm": OPSM,
    "product": Product(of=(ImportanceWeight(), Product(of=(GEO_RS, OPSM)))),
}
DIVIDED = {kind: WhyNot("its bounds are of the weight before the division by the mean") for kind in NORMALIZED}

ROWS = (
    row(1, ROLE, split_of(ROLE), *PARTS, share=0.07),
    row(2, ROLE, levels.rows_may_be_permuted, *PARTS),
    row(2, ROLE, levels.padding_changes_nothing, *PARTS),
    row(2, ROLE, levels.absent_rows_change_nothing, *PARTS),
    row(3, ROLE, levels.what_is_masked_does_not_matter, *PARTS),
    row(6, ROLE, laws.one_when_the_two_agree, *PARTS),
    row(6, ROLE, laws.kept_in_its_bounds, *all_but(PARTS, DIVIDED), why_not=DIVIDED),
    row(6, ROLE, laws.detached, *PARTS),
    row(12, ROLE, signatures.shapes_are_stated, *PARTS, share=0),
)
NOT_ABOUT = {4: "it has no baseline", 5: "it has no ratio", 7: "it is no divergence"}
