"""How a case is written that compares one of our recipes with one of a peer: plain data, read in every environment.

`ours` are `--set` settings of the recipe's learner; `theirs` options of TRL's trainer or names and options of verl's
functions. A default that differs is set equal here, on the side that has the option, so that each row says which
settings make the two the same. What no option can change is a named difference of `differences.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, eq=False)
class Case:
    """One algorithm in one of our recipes and in one peer."""

    name: str
    peer: Literal["TRL", "verl"]
    recipe: str
    ours: tuple[str, ...]
    theirs: Mapping[str, Any]
    differences: tuple[str, ...]
    batches: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name in the files."""
        return f"{self.name} {self.peer}"

    def of(self, batches: Mapping[str, Any]) -> dict[str, Any]:
        """The batches it is compared on."""
        return {name: batch for name, batch in batches.items() if name.startswith(self.batches)}


LEARNER = "learners.small"
TERM = f"{LEARNER}.terms.policy"
KL_WEIGHT = 0.04
WIDTH = 12
"""The length at which the batches' sampler cuts."""

LENGTH = 48
"""The constant length by which the recipes without a length bias divide."""


def kl(estimator: str, more: str = "") -> tuple[str, str]:
    """Settings that add a divergence to the reference."""
    divergence = f"{{ kind = 'sampled_kl', estimator = '{estimator}' }}"
    term = f"{{ kind = 'divergence', to = 'reference', divergence = {divergence}, weight = {KL_WEIGHT}{more} }}"
    return "policies.reference={ model = 'tiny:small' }", f"{LEARNER}.terms.kl={term}"


def of_kind(key: str, kind: str, **settings: object) -> str:
    """The setting of another part."""
    inside = "".join(f", {name} = {str(v).lower() if v is True else repr(v)}" for name, v in settings.items())
    return f"{key}={{ kind = '{kind}'{inside} }}"


def surrogate(kind: str, **settings: object) -> str:
    """The setting of another surrogate."""
    return of_kind(f"{TERM}.surrogate", kind, **settings)


def advantage(kind: str, **settings: object) -> str:
    """The setting of another advantage."""
    return of_kind(f"{TERM}.advantage", kind, **settings)


def correction(kind: str, **settings: object) -> str:
    """The setting of a correction of the sampler's mismatch."""
    return of_kind(f"{TERM}.correction", kind, **settings)


def weigh(**settings: object) -> str:
    """The setting of an importance weight for the sampler's mismatch."""
    return correction("importance_weight", **settings)


TOKENS = of_kind(f"{LEARNER}.weighting", "equal_tokens")
EPS = f"{TERM}.advantage.eps=1e-4"
WHOLE = f"{LEARNER}.mask_truncated=true"
OPSM = {"metric": "k1", "level": "geometric", "high": 0.05, "only_negative": True, "at": "update"}

UNCAPPED = {"clip_ratio_c": 1e6}
VANILLA = {"advantage": "grpo", "loss": "vanilla", "actor": UNCAPPED}
VERL_GRPO = {**VANILLA, "aggregate": "seq-mean-token-mean"}
VERL_TOKENS = {**VANILLA, "aggregate": "token-mean"}
VERL_SUMS = {"loss": "gpg", "aggregate": "seq-mean-token-sum-norm", "actor": {"loss_scale_factor": LENGTH}}
UNSCALED = {"norm_adv_by_std_in_grpo": False}


def clip(low: float, high: float, cap: float = 1e6) -> dict[str, float]:
    """verl's clip."""
    return {"clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": cap}


def kl_loss(kind: str) -> dict[str, Any]:
    """verl's divergence to the reference."""
    return {**UNCAPPED, "use_kl_loss": True, "kl_loss_coef": KL_WEIGHT, "kl_loss_type": kind}


def trl(name: str, recipe: str, ours: tuple[str, ...], *differences: str, on: str = "even", **theirs: Any) -> Case:
    """A case against TRL."""
    return Case(name, "TRL", recipe, ours, theirs, differences, (on,))


def verl(
    name: str,
    recipe: str,
    ours: tuple[str, ...],
    theirs: Mapping[str, Any],
    *differences: str,
    on: tuple[str, ...] = ("even", "ragged"),
    **more: Any,
) -> Case:
    """A case against verl."""
    return Case(name, "verl", recipe, ours, {**theirs, **more}, differences, on)
