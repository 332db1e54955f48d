"""verl's side of the parity check, in its environment: `python theirs_verl.py BATCHES RESULTS`.

Everything is computed by the installed package: the advantages by its trainer's `compute_advantage`, the correction by
`compute_rollout_correction_and_add_to_batch`, the loss by the registered policy loss, the divergence by `kl_penalty`
and `agg_loss`, put together as in its actor.
"""

import sys
from collections.abc import Mapping

import torch
from case import Case
from torch import Tensor
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.core_algos import FixedKLController, agg_loss, get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.ray_trainer import apply_kl_penalty, compute_advantage
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.config import ActorConfig

from cases import CASES


def proto(batch: Mapping[str, Tensor], mask: Tensor) -> DataProto:
    """The batch as verl's trainer holds it; a row's reward stands on its last token."""
    last = batch["mask"].sum(1) - 1
    scores = torch.zeros_like(batch["old"]).scatter(1, last[:, None], batch["rewards"][:, None])
    tensors = {
        "response_mask": mask.double(),
        "token_level_scores": scores,
        "token_level_rewards": scores.clone(),
        "old_log_probs": batch["old"],
        "rollout_log_probs": batch["rollout"],
        "ref_log_prob": batch["reference"],
        "reward_baselines": batch["greedy"],
        "prompts": torch.zeros(len(mask), 1),
        "attention_mask": torch.cat([torch.ones(len(mask), 1), mask], dim=1).long(),
    }
    rewards = {"correctness": batch["rewards"].numpy(), "brief": batch["brief"].numpy()}
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": batch["groups"].numpy(), **rewards})


def result(case: Case, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Advantages, loss and gradient of one case on one batch."""
    options = dict(case.theirs)
    mask = batch["mask"] & ~batch["truncated"][:, None] if options.get("mask_truncated") else batch["mask"]
    data, algorithm = proto(batch, mask), AlgoConfig(**options.get("algorithm", {}))
    if "correction" in options:
        data, _ = compute_rollout_correction_and_add_to_batch(data, RolloutCorrectionConfig(**options["correction"]))
    if "reward_kl" in options:
        estimator, weight = options["reward_kl"]
        data, _ = apply_kl_penalty(data, FixedKLController(weight), estimator)
    if options.get("bypass"):
        data.batch["old_log_probs"] = data.batch["rollout_log_probs"]
    data = compute_advantage(
        data,
        options["advantage"],
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    )
    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **options.get("actor", {}))
    batch_info = {"loss_scale_factor": actor.loss_scale_factor}
    actor.global_batch_info.update(batch_info)
    current = batch["current"].clone().requires_grad_()
    held = data.batch
    loss, _ = get_policy_loss_fn(options["loss"])(
        old_log_prob=held["old_log_probs"],
        log_prob=current,
        advantages=held["advantages"],
        response_mask=held["response_mask"],
        loss_agg_mode=options["aggregate"],
        config=actor,
        rollout_is_weights=held.get("rollout_is_weights", None),
    )
    if actor.use_kl_loss:
        divergence = kl_penalty(current, held["ref_log_prob"], actor.kl_loss_type)
        pulled = agg_loss(divergence, held["response_mask"], options["aggregate"], **batch_info)
        loss = loss + actor.kl_loss_coef * pulled
    (gradient,) = torch.autograd.grad(loss, current)
    return {
        "advantages": held["advantages"] * mask,
        "loss": loss.detach(),
        "gradient": gradient,
        "counted": held["response_mask"],
    }


if __name__ == "__main__":
    batches = torch.load(sys.argv[1])
    cases = [case for case in CASES if case.peer == "verl"]
    found = {case.key: {name: result(case, batch) for name, batch in case.of(batches).items()} for case in cases}
    torch.save(found, sys.argv[2])
