"""Advantages: how much better than its baseline each row is."""

from grpo_kit.advantages.ema_baseline import EMABaseline
from grpo_kit.advantages.gpg import GPG
from grpo_kit.advantages.group_mean import GroupMean
from grpo_kit.advantages.leave_one_out import LeaveOneOut
from grpo_kit.advantages.max_rl import MaxRL
from grpo_kit.advantages.opo import OPO
from grpo_kit.advantages.pass_at_k import PassAtK
from grpo_kit.advantages.per_component import PerComponent
from grpo_kit.advantages.reinforce_pp import ReinforcePP
from grpo_kit.advantages.reinforce_pp_baseline import ReinforcePPBaseline
from grpo_kit.advantages.remax import ReMax
from grpo_kit.advantages.role import ADVANTAGES, Advantage
from grpo_kit.advantages.teacher_log_ratio import TeacherLogRatio
from grpo_kit.advantages.weighted_sum import Summand, WeightedSum

ADVANTAGES.built_in |= {
    "group_mean": GroupMean,
    "leave_one_out": LeaveOneOut,
    "opo": OPO,
    "max_rl": MaxRL,
    "gpg": GPG,
    "pass_at_k": PassAtK,
    "reinforce_pp": ReinforcePP,
    "reinforce_pp_baseline": ReinforcePPBaseline,
    "remax": ReMax,
    "ema_baseline": EMABaseline,
    "per_component": PerComponent,
    "weighted_sum": WeightedSum,
    "teacher_log_ratio": TeacherLogRatio,
}

__all__ = [
    "ADVANTAGES",
    "GPG",
    "OPO",
    "Advantage",
    "EMABaseline",
    "GroupMean",
    "LeaveOneOut",
    "MaxRL",
    "PassAtK",
    "PerComponent",
    "ReMax",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "Summand",
    "TeacherLogRatio",
    "WeightedSum",
]
