"""Does an engine compute with the weights it is said to have? It and the policy score the same few tokens."""

from dataclasses import replace
from math import fsum

import torch

from grpo_kit.batch import Rollouts
from grpo_kit.engines.role import Running
from grpo_kit.policies.policy import Policy

TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 0.03, "bfloat16": 0.2}
"""Mean difference allowed, in nats a token, by the coarser of the two precisions."""
LENGTHS = 8, 24
"""Tokens of the probe's prompt and completion."""


def probe_rows(policy: Policy) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt and a completion of tokens from all over the vocabulary, the same for all policies with it."""
    prompt, completion = LENGTHS
    ids = tuple((7919 * place + place**2) % policy.vocabulary for place in range(1, 1 + prompt + completion))
    return ids[:prompt], ids[prompt:]


def verify(running: Running, policy: Policy, dtype: str) -> float:
    r"""Mean over the probe's tokens of $|\log \pi_\mathrm{engine} - \log \pi_\mathrm{policy}|$, in nats.

    ValueError where it is beyond rounding: the engine has other weights than the policy. A change of the weights that
    moves the probe less than rounding does goes unseen. `dtype` is the engine's precision.
    """
    prompt, completion = probe_rows(policy)
    (said,) = running.score([prompt], [completion], 0)
    own = _scores(policy, prompt, completion)
    gap = fsum(abs(one - other) for one, other in zip(said.logprobs, own, strict=True)) / len(own)
    allowed = max(TOLERANCES[dtype], TOLERANCES[str(policy.autocast or policy.model.dtype).removeprefix("torch.")])
    if not gap <= allowed:  # NaN, too
        raise ValueError(
            f"policy '{policy.name}': its engine does not have the weights of version {policy.version}: on the probe "
            f"the log-probabilities of the two differ by {gap:.3g} nats a token, and {allowed:g} is what rounding may "
            "do. The weights did not arrive, or the engine computes another model"
        )
    return gap


@torch.no_grad()
def _scores(policy: Policy, prompt: tuple[int, ...], completion: tuple[int, ...]) -> list[float]:
    """The policy's own log-probabilities, over its model's whole vocabulary as an engine has it."""
    tokens = torch.tensor([completion], device=policy.device)
    row = Rollouts(
        prompts=(prompt,),
        tokens=tokens,
        mask=torch.ones_like(tokens, dtype=torch.bool),
        groups=torch.zeros(1, dtype=torch.long, device=policy.device),
        stop_reasons=("length",),
        texts=("",),
        columns={},
        behavior=None,
    )
    output = policy.model.get_output_embeddings()
    return replace(policy, vocabulary=len(output.weight)).score(row).logprobs[0].tolist()  # pyright: ignore
