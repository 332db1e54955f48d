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
WIDTH = 12
"""The length at which the batches' sampler cuts: Dr. GRPO's constant."""

REFERENCE = "policies.reference={ model = 'tiny:small' }"


KL_WEIGHT = 0.04


def kl(estimator: str, more: str = "") -> tuple[str, str]:
    """Settings that add a divergence to the reference."""
    divergence = f"{{ kind = 'sampled_kl', estimator = '{estimator}' }}"
    term = f"{{ kind = 'divergence', to = 'reference', divergence = {divergence}, weight = {KL_WEIGHT}{more} }}"
    return REFERENCE, f"{LEARNER}.terms.kl={term}"


def weigh(**settings: object) -> str:
    """The setting of an importance weight for the sampler's mismatch."""
    inside = ", ".join(f"{key} = {value!r}" for key, value in settings.items())
    return f"{TERM}.correction={{ kind = 'importance_weight', {inside} }}"


ROWS, TOKENS = (f"{LEARNER}.weighting={{ kind = '{kind}' }}" for kind in ("equal_rows", "equal_tokens"))
LENGTH = f"{LEARNER}.weighting.length={WIDTH}"
STD, EPS, DUAL = f"{TERM}.advantage.scale=group", f"{TERM}.advantage.eps=1e-4", f"{TERM}.surrogate.cap=3.0"
HIGHER, WHOLE = f"{TERM}.surrogate.high=0.28", f"{LEARNER}.mask_truncated=true"
GSPO = (f"{TERM}.ratio={{ kind = 'sequence' }}", f"{TERM}.surrogate.low=3e-4", f"{TERM}.surrogate.high=4e-4")


def surrogate(kind: str, **settings: object) -> str:
    """The setting of another surrogate."""
    inside = "".join(f", {key} = {value!r}" for key, value in settings.items())
    return f"{TERM}.surrogate={{ kind = '{kind}'{inside} }}"


def advantage(kind: str, **settings: object) -> str:
    """The setting of another advantage."""
    inside = "".join(f", {key} = {str(value).lower()}" for key, value in settings.items())
    return f"{TERM}.advantage={{ kind = '{kind}'{inside} }}"


KL_REWARD = (
    REFERENCE,
    "rewards.kl={ kind = 'kl_penalty', policy = 'small', reference = 'reference' }",
    f"{LEARNER}.rewards={{ correctness = 1.0, kl = {KL_WEIGHT} }}",
)
TWO_REWARDS = (
    "rewards.format={ kind = 'soft_overlong', max_length = 12, cache = 4 }",
    f"{LEARNER}.rewards={{ correctness = 1.0, format = 0.5 }}",
)
OPSM = (
    f"{TERM}.correction={{ kind = 'divergence_mask', metric = 'k1', level = 'geometric', high = 0.05, "
    "only_negative = true, at = 'update' }"
)

VANILLA = {"advantage": "grpo", "loss": "vanilla"}
VERL_GRPO = {**VANILLA, "aggregate": "seq-mean-token-mean"}
VERL_TOKENS = {**VANILLA, "aggregate": "token-mean"}
BETWEEN = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
CENTRED = {"norm_adv_by_std_in_grpo": False}


def kl_loss(kind: str) -> dict[str, Any]:
    """verl's divergence to the reference."""
    return {"use_kl_loss": True, "kl_loss_coef": KL_WEIGHT, "kl_loss_type": kind}


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


CASES = (
    trl("GRPO", "grpo", (STD, EPS, ROWS), loss_type="grpo"),
    verl("GRPO", "grpo", (STD, ROWS, DUAL), VERL_GRPO),
    trl(
        "GRPO, batch scale",
        "grpo",
        (f"{TERM}.advantage.scale=batch", EPS, ROWS),
        loss_type="grpo",
        scale_rewards="batch",
    ),
    trl(
        "GRPO, truncated rows left out",
        "grpo",
        (STD, EPS, ROWS, WHOLE),
        "rows left out",
        loss_type="grpo",
        mask_truncated_completions=True,
    ),
    trl("Dr. GRPO", "grpo", (LENGTH,), loss_type="dr_grpo", scale_rewards="none"),
    verl(
        "Dr. GRPO",
        "grpo",
        (LENGTH, DUAL),
        {**VANILLA, "aggregate": "seq-mean-token-sum-norm"},
        algorithm=CENTRED,
        actor={"loss_scale_factor": WIDTH},
    ),
    trl(
        "DAPO",
        "grpo",
        (STD, EPS, TOKENS, HIGHER, WHOLE),
        loss_type="dapo",
        epsilon_high=0.28,
        mask_truncated_completions=True,
    ),
    verl(
        "DAPO",
        "grpo",
        (STD, TOKENS, HIGHER, WHOLE, DUAL),
        VERL_TOKENS,
        mask_truncated=True,
        actor={"clip_ratio_high": 0.28},
    ),
    trl(
        "GSPO",
        "grpo",
        (STD, EPS, ROWS, *GSPO),
        loss_type="grpo",
        importance_sampling_level="sequence",
        epsilon=3e-4,
        epsilon_high=4e-4,
    ),
    verl(
        "GSPO",
        "grpo",
        (STD, ROWS, *GSPO),
        {**VERL_GRPO, "loss": "gspo"},
        actor={"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4},
    ),
    trl("two-sided clip", "grpo", (STD, EPS, ROWS, f"{TERM}.surrogate.cap=1.6"), loss_type="grpo", delta=1.6),
    verl("dual clip", "grpo", (STD, ROWS, f"{TERM}.surrogate.cap=1.6"), VERL_GRPO, actor={"clip_ratio_c": 1.6}),
    trl(
        "k3 as a term",
        "grpo",
        (TOKENS, *kl("k3")),
        loss_type="dapo",
        scale_rewards="none",
        beta=KL_WEIGHT,
        use_bias_correction_kl=False,
    ),
    verl(
        "k3 as a term",
        "grpo",
        (TOKENS, DUAL, *kl("k3")),
        VERL_TOKENS,
        "bounded k3",
        algorithm=CENTRED,
        actor=kl_loss("k3"),
    ),
    verl(
        "k2 as a term",
        "grpo",
        (TOKENS, DUAL, *kl("k2")),
        VERL_TOKENS,
        algorithm=CENTRED,
        actor=kl_loss("k2"),
    ),
    trl(
        "TIS, token",
        "grpo",
        (TOKENS, weigh(level="token", high=1.3)),
        loss_type="dapo",
        scale_rewards="none",
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=1.3,
    ),
    verl(
        "TIS, token",
        "grpo",
        (TOKENS, DUAL, weigh(level="token", high=1.3)),
        VERL_TOKENS,
        algorithm=CENTRED,
        correction={"rollout_is": "token", "rollout_is_threshold": 1.3},
    ),
    trl(
        "TIS, sequence",
        "grpo",
        (TOKENS, weigh(level="sequence", high=2.0)),
        loss_type="dapo",
        scale_rewards="none",
        vllm_importance_sampling_mode="sequence_truncate",
        vllm_importance_sampling_clip_max=2.0,
    ),
    verl(
        "TIS, sequence",
        "grpo",
        (TOKENS, DUAL, weigh(level="sequence", high=2.0)),
        VERL_TOKENS,
        algorithm=CENTRED,
        correction={"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    ),
    trl(
        "IcePop",
        "grpo",
        (TOKENS, weigh(level="token", action="mask", low=0.8, high=1.3)),
        loss_type="dapo",
        scale_rewards="none",
        vllm_importance_sampling_mode="token_mask",
        vllm_importance_sampling_clip_min=0.8,
        vllm_importance_sampling_clip_max=1.3,
    ),
    verl(
        "IcePop",
        "grpo",
        (TOKENS, DUAL, weigh(level="token", action="mask", low=0.8, high=1.3)),
        VERL_TOKENS,
        algorithm=CENTRED,
        correction={"rollout_is": "token", "rollout_is_threshold": "0.8_1.3"},
    ),
    verl(
        "RLOO",
        "grpo",
        (f"{TERM}.advantage={{ kind = 'leave_one_out' }}", ROWS, DUAL),
        {**VERL_GRPO, "advantage": "rloo"},
    ),
    verl(
        "REINFORCE",
        "grpo",
        (TOKENS, surrogate("reinforce")),
        {**VERL_TOKENS, "loss": "gpg"},
        "constant",
        algorithm=CENTRED,
    ),
    verl("groups of one", "grpo", (), VERL_GRPO, "lone rows", on=("single",)),
    trl(
        "CISPO",
        "grpo",
        (STD, EPS, TOKENS, surrogate("cispo", high=1.3)),
        "constant",
        loss_type="cispo",
        epsilon_high=1.3,
    ),
    verl(
        "CISPO",
        "grpo",
        (STD, TOKENS, surrogate("cispo", bound="relative", low=0.2, high=0.28)),
        {**VERL_TOKENS, "loss": "cispo"},
        "constant",
        actor=BETWEEN,
    ),
    trl("SAPO", "grpo", (STD, EPS, ROWS, surrogate("sapo")), loss_type="sapo"),
    verl("SAPO", "grpo", (STD, ROWS, surrogate("sapo")), {**VERL_GRPO, "loss": "sapo"}),
    trl("GMPO", "grpo", (STD, EPS, ROWS, surrogate("gmpo")), trainer="GMPO"),
    verl(
        "GMPO",
        "grpo",
        (STD, ROWS, surrogate("gmpo")),
        {**VERL_GRPO, "loss": "geo_mean"},
        actor={"clip_ratio_low": 0.4, "clip_ratio_high": 0.4},
    ),
    verl(
        "DPPO, total variation",
        "grpo",
        (TOKENS, surrogate("dppo", low=0.02, high=0.03)),
        {**VERL_TOKENS, "loss": "dppo_tv"},
        "constant",
        algorithm=CENTRED,
        actor={"clip_ratio_low": 0.02, "clip_ratio_high": 0.03, "clip_ratio_c": 20.0},
    ),
    verl(
        "DPPO, KL",
        "grpo",
        (TOKENS, surrogate("dppo", divergence="kl", low=0.004, high=0.005, cap=1.5)),
        {**VERL_TOKENS, "loss": "dppo_kl"},
        "constant",
        algorithm=CENTRED,
        actor={"clip_ratio_low": 0.004, "clip_ratio_high": 0.005, "clip_ratio_c": 1.5},
    ),
    verl(
        "GPG",
        "grpo",
        (TOKENS, surrogate("reinforce"), advantage("gpg")),
        {**VERL_TOKENS, "advantage": "gpg", "loss": "gpg"},
        "nonzero rewards",
        "constant",
    ),
    verl(
        "pass@k",
        "grpo",
        (TOKENS, advantage("pass_at_k", k=5)),
        {**VERL_TOKENS, "advantage": "grpo_passk"},
        algorithm=CENTRED,
    ),
    verl(
        "REINFORCE++",
        "grpo",
        (TOKENS, DUAL, advantage("reinforce_pp")),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus"},
    ),
    verl(
        "REINFORCE++, discounted",
        "grpo",
        (TOKENS, DUAL, advantage("reinforce_pp", gamma=0.9)),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus"},
        algorithm={"gamma": 0.9},
    ),
    verl(
        "REINFORCE++ with baseline",
        "grpo",
        (TOKENS, DUAL, advantage("reinforce_pp_baseline", shift=True)),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus_baseline"},
    ),
    verl("OPO", "grpo", (TOKENS, DUAL, advantage("opo")), {**VERL_TOKENS, "advantage": "opo"}),
    verl(
        "k1 as a reward",
        "grpo",
        (TOKENS, DUAL, advantage("leave_one_out"), *KL_REWARD),
        {**VERL_TOKENS, "advantage": "rloo"},
        reward_kl="k1",
    ),
    verl(
        "k1 as a reward of tokens",
        "grpo",
        (TOKENS, DUAL, advantage("reinforce_pp"), *KL_REWARD),
        {**VERL_TOKENS, "advantage": "reinforce_plus_plus"},
        reward_kl="k1",
    ),
    verl(
        "k3 with the gradient of k2",
        "grpo",
        (TOKENS, DUAL, *kl("k3+")),
        VERL_TOKENS,
        "bounded k3",
        algorithm=CENTRED,
        actor=kl_loss("k3+"),
    ),
    verl(
        "k1 with the gradient of k2",
        "grpo",
        (TOKENS, DUAL, *kl("k1+")),
        VERL_TOKENS,
        algorithm=CENTRED,
        actor=kl_loss("k1+"),
    ),
    trl("OPSM", "grpo", (TOKENS, OPSM), loss_type="dapo", scale_rewards="none", off_policy_mask_threshold=0.05),
    verl(
        "TIS, token, normalised",
        "grpo",
        (TOKENS, DUAL, weigh(level="token", high=1.3, normalize="batch")),
        VERL_TOKENS,
        algorithm=CENTRED,
        correction={"rollout_is": "token", "rollout_is_threshold": 1.3, "rollout_is_batch_normalize": True},
    ),
    verl(
        "TIS, sequence, normalised",
        "grpo",
        (TOKENS, DUAL, weigh(level="sequence", high=2.0, normalize="batch")),
        VERL_TOKENS,
        algorithm=CENTRED,
        correction={"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
    ),
    trl("missing rewards", "grpo", (STD, EPS, ROWS), "rows left out", on="missing", loss_type="grpo"),
    trl(
        "RLOO, first update",
        "grpo",
        (LENGTH, surrogate("reinforce"), advantage("leave_one_out"), *KL_REWARD),
        "sum over rows",
        on="even-same",
        trainer="RLOO",
        beta=KL_WEIGHT,
    ),
    trl(
        "k3 as a term, weighted",
        "grpo",
        (TOKENS, *kl("k3", ", importance = true")),
        on="even-exact",
        loss_type="dapo",
        scale_rewards="none",
        beta=KL_WEIGHT,
    ),
    trl(
        "GDPO",
        "grpo",
        (
            TOKENS,
            *TWO_REWARDS,
            advantage("per_component", eps=1e-4),
            f"{TERM}.advantage.advantage={{ kind = 'group_mean', scale = 'group', eps = 1e-4 }}",
        ),
        loss_type="dapo",
        multi_objective_aggregation="normalize_then_sum",
        reward_weights=[1.0, 0.5],
    ),
    verl(
        "GDPO",
        "grpo",
        (TOKENS, *TWO_REWARDS, surrogate("reinforce"), advantage("per_component")),
        {**VERL_TOKENS, "advantage": "gdpo", "loss": "gpg"},
        "moments of tokens",
        "constant",
        algorithm={"gdpo_reward_keys": ["correctness", "format"], "gdpo_reward_weights": [1.0, 0.5]},
    ),
    verl(
        "rejection by k3",
        "grpo",
        (TOKENS, DUAL, f"{TERM}.correction={{ kind = 'divergence_mask', metric = 'k3', high = 0.05 }}"),
        VERL_TOKENS,
        "rejected tokens",
        algorithm=CENTRED,
        correction={"rollout_is": None, "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.05},
    ),
)
