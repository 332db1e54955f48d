"""Which of our recipes should equal what of the peers: plain data, read in every environment.

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


RECIPES = (
    trl("GRPO", "grpo", (EPS,), loss_type="grpo"),
    verl("GRPO", "grpo", (), VERL_GRPO),
    trl(
        "Dr. GRPO",
        "dr_grpo",
        (),
        loss_type="dr_grpo",
        scale_rewards="none",
        max_completion_length=LENGTH,
    ),
    verl(
        "Dr. GRPO",
        "dr_grpo",
        (),
        {**VANILLA, "aggregate": "seq-mean-token-sum-norm"},
        algorithm=UNSCALED,
        actor={**UNCAPPED, "loss_scale_factor": LENGTH},
    ),
    trl("DAPO", "dapo", (EPS,), loss_type="dapo", epsilon_high=0.28),
    verl("DAPO", "dapo", (), VERL_TOKENS, actor=clip(0.2, 0.28)),
    trl(
        "DAPO, truncated rows left out",
        "dapo",
        (EPS, WHOLE),
        loss_type="dapo",
        epsilon_high=0.28,
        mask_truncated_completions=True,
    ),
    verl("DAPO, truncated rows left out", "dapo", (WHOLE,), VERL_TOKENS, mask_truncated=True, actor=clip(0.2, 0.28)),
    trl(
        "GSPO",
        "gspo",
        (EPS,),
        loss_type="grpo",
        importance_sampling_level="sequence",
        epsilon=3e-4,
        epsilon_high=4e-4,
    ),
    verl("GSPO", "gspo", (), {**VERL_GRPO, "loss": "gspo"}, actor=clip(3e-4, 4e-4)),
    trl(
        "CISPO",
        "cispo",
        (EPS, f"{TERM}.surrogate.high=1.3"),
        "constant",
        loss_type="cispo",
        epsilon_high=1.3,
    ),
    verl(
        "CISPO",
        "cispo",
        (surrogate("cispo", bound="relative", low=0.2, high=0.28),),
        {**VERL_TOKENS, "loss": "cispo"},
        "constant",
        actor=clip(0.2, 0.28),
    ),
    trl("RLOO, first update", "rloo", (), "sum over rows", on="even-same", trainer="RLOO", beta=0.05),
    verl("RLOO", "rloo", (), {**VERL_SUMS, "advantage": "rloo"}, "constant", reward_kl=("k1", 0.05)),
    verl(
        "REINFORCE++", "reinforce_pp", (), {**VERL_TOKENS, "advantage": "reinforce_plus_plus"}, reward_kl=("k1", 0.01)
    ),
    verl(
        "REINFORCE++, discounted",
        "reinforce_pp",
        (f"{TERM}.advantage.gamma=0.9",),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus"},
        algorithm={"gamma": 0.9},
        reward_kl=("k1", 0.01),
    ),
    verl(
        "REINFORCE++ with baseline",
        "reinforce_pp",
        ("sampler.samples=8", advantage("reinforce_pp_baseline", shift=True)),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus_baseline"},
        reward_kl=("k1", 0.01),
    ),
    verl("OPO", "opo", (), {**VERL_SUMS, "advantage": "opo"}, "constant"),
    verl(
        "GPG",
        "gpg",
        (),
        {**VERL_TOKENS, "advantage": "gpg", "loss": "gpg"},
        "nonzero rewards",
        "constant",
    ),
    trl("SAPO", "sapo", (EPS,), loss_type="sapo"),
    verl("SAPO", "sapo", (), {**VERL_GRPO, "loss": "sapo"}),
    trl("GMPO", "gmpo", (EPS,), trainer="GMPO"),
    verl("GMPO", "gmpo", (), {**VERL_GRPO, "loss": "geo_mean"}, actor=clip(0.4, 0.4)),
    verl(
        "DPPO, total variation",
        "dppo",
        (),
        {**VERL_TOKENS, "loss": "dppo_tv"},
        "constant",
        bypass=True,
        algorithm=UNSCALED,
        actor=clip(0.15, 0.15, 20.0),
    ),
    verl(
        "DPPO, KL",
        "dppo",
        (surrogate("dppo", divergence="kl", low=0.004, high=0.005, cap=1.5),),
        {**VERL_TOKENS, "loss": "dppo_kl"},
        "constant",
        bypass=True,
        algorithm=UNSCALED,
        actor=clip(0.004, 0.005, 1.5),
    ),
    trl(
        "GDPO",
        "gdpo",
        (EPS, f"{TERM}.advantage.advantage.eps=1e-4"),
        loss_type="grpo",
        multi_objective_aggregation="normalize_then_sum",
        reward_weights=[1.0, 0.5],
    ),
    verl(
        "GDPO",
        "gdpo",
        (surrogate("reinforce"),),
        {**VERL_GRPO, "advantage": "gdpo", "loss": "gpg"},
        "moments of tokens",
        "constant",
        algorithm={"gdpo_reward_keys": ["correctness", "brief"], "gdpo_reward_weights": [1.0, 0.5]},
    ),
    trl("Lite PPO", "lite_ppo", (EPS,), loss_type="dapo", scale_rewards="batch"),
    verl("ReMax", "remax", (), {**VERL_SUMS, "advantage": "remax"}, "constant"),
)
"""Each shipped recipe that a peer has the algorithm of, with no setting but those that nothing of the peer's equals."""

PARTS = (
    trl(
        "truncated rows left out",
        "grpo",
        (EPS, WHOLE),
        "rows left out",
        loss_type="grpo",
        mask_truncated_completions=True,
    ),
    trl("missing rewards", "grpo", (EPS,), "rows left out", on="missing", loss_type="grpo"),
    verl("groups of one", "grpo", (), VERL_GRPO, "lone rows", on=("single",)),
    trl("two-sided clip", "grpo", (EPS, f"{TERM}.surrogate.cap=1.6"), loss_type="grpo", delta=1.6),
    verl("dual clip", "grpo", (f"{TERM}.surrogate.cap=1.6",), VERL_GRPO, actor={"clip_ratio_c": 1.6}),
    verl("REINFORCE", "grpo", (surrogate("reinforce"),), {**VERL_GRPO, "loss": "gpg"}, "constant"),
    verl(
        "pass@k",
        "grpo",
        (advantage("pass_at_k", k=5),),
        {**VERL_GRPO, "advantage": "grpo_passk"},
        algorithm=UNSCALED,
    ),
    trl(
        "k3 as a term",
        "grpo",
        (EPS, *kl("k3")),
        loss_type="grpo",
        beta=KL_WEIGHT,
        use_bias_correction_kl=False,
    ),
    trl(
        "k3 as a term, weighted",
        "grpo",
        (EPS, *kl("k3", ", importance = true")),
        on="even-exact",
        loss_type="grpo",
        beta=KL_WEIGHT,
    ),
    verl("k3 as a term", "grpo", (TOKENS, *kl("k3")), VERL_TOKENS, "bounded k3", actor=kl_loss("k3")),
    verl("k2 as a term", "grpo", kl("k2"), VERL_GRPO, actor=kl_loss("k2")),
    verl(
        "k3 with the gradient of k2",
        "grpo",
        (TOKENS, *kl("k3+")),
        VERL_TOKENS,
        "bounded k3",
        actor=kl_loss("k3+"),
    ),
    verl("k1 with the gradient of k2", "grpo", kl("k1+"), VERL_GRPO, actor=kl_loss("k1+")),
    trl(
        "TIS, token",
        "grpo",
        (EPS, weigh(level="token", high=1.3)),
        loss_type="grpo",
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=1.3,
    ),
    verl(
        "TIS, token",
        "grpo",
        (weigh(level="token", high=1.3),),
        VERL_GRPO,
        correction={"rollout_is": "token", "rollout_is_threshold": 1.3},
    ),
    verl(
        "TIS, token, normalized",
        "grpo",
        (weigh(level="token", high=1.3, normalize="batch"),),
        VERL_GRPO,
        correction={"rollout_is": "token", "rollout_is_threshold": 1.3, "rollout_is_batch_normalize": True},
    ),
    trl(
        "TIS, sequence",
        "grpo",
        (EPS, weigh(level="sequence", high=2.0)),
        loss_type="grpo",
        vllm_importance_sampling_mode="sequence_truncate",
        vllm_importance_sampling_clip_max=2.0,
    ),
    verl(
        "TIS, sequence",
        "grpo",
        (weigh(level="sequence", high=2.0),),
        VERL_GRPO,
        correction={"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    ),
    verl(
        "TIS, sequence, normalized",
        "grpo",
        (weigh(level="sequence", high=2.0, normalize="batch"),),
        VERL_GRPO,
        correction={"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
    ),
    trl(
        "IcePop",
        "grpo",
        (EPS, weigh(level="token", action="mask", low=0.8, high=1.3)),
        loss_type="grpo",
        vllm_importance_sampling_mode="token_mask",
        vllm_importance_sampling_clip_min=0.8,
        vllm_importance_sampling_clip_max=1.3,
    ),
    verl(
        "IcePop",
        "grpo",
        (weigh(level="token", action="mask", low=0.8, high=1.3),),
        VERL_GRPO,
        correction={"rollout_is": "token", "rollout_is_threshold": "0.8_1.3"},
    ),
    trl("OPSM", "grpo", (EPS, correction("divergence_mask", **OPSM)), loss_type="grpo", off_policy_mask_threshold=0.05),
    verl(
        "rejection by k3",
        "grpo",
        (TOKENS, correction("divergence_mask", metric="k3", high=0.05)),
        VERL_TOKENS,
        "rejected tokens",
        correction={"rollout_is": None, "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.05},
    ),
)
"""Parts that no recipe of their own has, put into recipe `grpo`."""

CASES = (*RECIPES, *PARTS)
