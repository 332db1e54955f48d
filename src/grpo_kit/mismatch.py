"""Mismatch: how far the log-probabilities of a sampler are from the trainer's, of the same tokens and weights."""

import math
from collections.abc import Mapping

import torch

from grpo_kit.batch import Rollouts
from grpo_kit.masked import wide
from grpo_kit.signals import Signals

OUTSIDE = 2.0
"""A token is outside where trainer and sampler differ by more than this factor, either way."""
LARGE_MEAN = 0.05
"""Above this mean |log-ratio|, in nats, a warning is due.

bfloat16 keeps 8 bits: logits between 8 and 32 are rounded by up to 0.06, and 0.01 to 0.03 nats of mean difference
between two bfloat16 programs, or one and a float32 one, is what honest rounding gives. 0.05 is a quarter of a clip
range of 0.2 on every token; other weights, a clearly other temperature or a wrong prompt give more."""
LARGE_SHARE = 0.01
"""Above this share of tokens outside a warning is due: rounding doubles the probability of almost no token, so that one
in a hundred is a fault of some tokens alone (a stop token, a part of the vocabulary, the first token of a row)."""


def of_mismatch(rollouts: Rollouts, signals: Signals) -> dict[str, float]:
    r"""`sampler/mismatch/<policy>/*` and `sampler/age/<policy>` of every policy that wrote rows and scored them.

    With $d_t = \log \mu(o_t) - \log \pi(o_t)$, the sampler's and the trainer's log-probability at the sampling
    temperature with nothing cut: `mean` $|d|$, `max` $|d|$, `k1` the mean of $d$ and `k3` the mean of
    $e^{-d} - 1 + d$, both estimates of $KL(\mu \| \pi)$ a token where nothing was cut, and `outside` the share of
    tokens with $|d| > \log 2$. Only of tokens whose writer had the weights that score them, so that a difference is
    one of numerics (or a fault) and not of learning; absent where there is none, or its sampler does not say
    `model_logprobs`. `age` is the mean number of updates between the writer's weights and those that score, over all
    tokens that the policy wrote.
    """
    behavior = rollouts.behavior
    if behavior is None:
        return {}
    report: dict[str, float] = {}
    newest = {key.policy: key.version for key in sorted(signals.scores) if key.view == "sampled"}
    for policy, version in newest.items():
        written = rollouts.written_by(policy)
        if not bool(written.any()):
            continue
        ages = torch.tensor([version - writer.version for writer in behavior.writers], device=written.device)
        report[f"sampler/age/{policy}"] = float(ages[behavior.writer[written]].double().mean())
        if behavior.model_logprobs is None:
            continue
        fresh = rollouts.tokens_of(
            lambda writer, policy=policy, version=version: (
                (writer.policy, writer.version) == (policy, version)
                and writer.sampling.temperature == rollouts.temperature  # greedy rows beside others: untempered
            )
        )
        off = (wide(behavior.model_logprobs) - wide(signals[policy].logprobs))[fresh].double()
        off = off[~off.isnan()]
        if off.numel():
            found = {
                "mean": off.abs().mean(),
                "max": off.abs().max(),
                "k1": off.mean(),
                "k3": ((-off).expm1() + off).mean(),
                "outside": (off.abs() > math.log(OUTSIDE)).double().mean(),
            }
            report |= {f"sampler/mismatch/{policy}/{key}": float(value) for key, value in found.items()}
    return report


def large_mismatch(metrics: Mapping[str, float]) -> str | None:
    """What to warn of where sampler and trainer say too different things of the same weights; the worst is named."""
    limits = {"mean": LARGE_MEAN, "outside": LARGE_SHARE}
    excess = {
        key: value / limits[key.rsplit("/", 1)[1]]
        for key, value in metrics.items()
        if key.startswith("sampler/mismatch/") and key.rsplit("/", 1)[1] in limits
    }
    worst = max(excess, key=lambda key: excess[key], default=None)
    if worst is None or not excess[worst] > 1:
        return None
    return (
        f"{worst} is {metrics[worst]:.3g}, above {limits[worst.rsplit('/', 1)[1]]}: for the same weights the sampler's "
        "log-probabilities are not the trainer's. Look at the precision (dtype) of both, the model and the weights "
        "that the sampler has, and its temperature; a correction with the scored policy as anchor bounds the harm."
    )
