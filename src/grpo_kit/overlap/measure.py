"""Two policies compared at every token of some rollouts, a chunk of logits of each at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from grpo_kit.batch import Rollouts, StopReason
from grpo_kit.head import CHUNK, chunks
from grpo_kit.overlap.ratio import LIKELIEST, Comparison, compare
from grpo_kit.policies.policy import Policy, places


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measured:
    """What two policies say at every token of some rollouts.

    Attributes:
        values: one number a token, row after row.
        prompts: the group (prompt) of each token.
        positions: its place in its completion, from 0.
        lengths: tokens of each completion.
        stop_reasons: why each completion ended.
    """

    values: Comparison
    prompts: Int[Tensor, " token"]
    positions: Int[Tensor, " token"]
    lengths: Int[Tensor, " row"]
    stop_reasons: tuple[StopReason, ...]

    @property
    def ends(self) -> Int[Tensor, " end"]:
        """The places of the end-of-sequence tokens among all tokens."""
        ended = torch.tensor([reason == "eos" for reason in self.stop_reasons], dtype=torch.bool)
        return (self.lengths.cumsum(0) - 1)[ended & (self.lengths > 0)]


@torch.no_grad()
def measure(student: Policy, teacher: Policy, rollouts: Rollouts, k: int = LIKELIEST, *, size: int = CHUNK) -> Measured:
    """Compare two policies, on their common vocabulary and at the temperature of the rollouts.

    Rows decoded greedily, and rows that no policy wrote, are left out. ValueError where a log-probability is not
    finite.

    Args:
        student: whose rollouts they are; see `Comparison`.
        teacher: what it is compared with; it may be on another device.
        rollouts: a batch of any size.
        k: likeliest tokens compared.
        size: logits of each policy in one chunk at most.
    """
    rollouts = rollouts.take(torch.nonzero(rollouts.sampled & ~rollouts.greedy).flatten().tolist())
    tighter = min(student, teacher, key=lambda policy: policy.micro_batch_tokens)
    mask = rollouts.mask.cpu()
    found = torch.zeros((len(Comparison._fields), *mask.shape), dtype=torch.float64)
    for rows in tighter.micro_batches(rollouts, range(len(rollouts))):
        part = rollouts.take(rows)
        of_part = torch.stack(_comparison(student, teacher, part, k, size)).to(found)
        row, token = torch.nonzero(part.mask.cpu(), as_tuple=True)
        found[:, torch.tensor(rows)[row], token] = of_part
    _refuse_non_finite(found, student, teacher)
    row, token = torch.nonzero(mask, as_tuple=True)
    return Measured(
        values=Comparison(*found[:, row, token]),
        prompts=rollouts.groups.cpu()[row],
        positions=token,
        lengths=rollouts.lengths.cpu(),
        stop_reasons=rollouts.stop_reasons,
    )


def join(parts: Sequence[Measured]) -> Measured:
    """Several batches as one; they must number their prompts apart."""
    return Measured(
        values=Comparison(*(torch.cat(values) for values in zip(*(part.values for part in parts), strict=True))),
        prompts=torch.cat([part.prompts for part in parts]),
        positions=torch.cat([part.positions for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        stop_reasons=tuple(reason for part in parts for reason in part.stop_reasons),
    )


def _comparison(student: Policy, teacher: Policy, rollouts: Rollouts, k: int, size: int) -> Comparison:
    """The comparison at every token of some rows that fit into one forward pass of both."""
    vocabulary = min(student.vocabulary, teacher.vocabulary)
    own, other = student.hidden(rollouts), teacher.hidden(rollouts)
    tokens = rollouts.tokens.flatten()[places(rollouts.mask).to(rollouts.mask.device)].to(own.device)
    found = [
        compare(
            student.head.logits(own[part])[:, :vocabulary],
            teacher.head.logits(other[part])[:, :vocabulary].to(own.device),
            tokens[part],
            k,
            rollouts.temperature,
        )
        for part in chunks(len(own), max(student.vocabulary, teacher.vocabulary), size)
    ]
    return Comparison(*(torch.cat(values) for values in zip(*found, strict=True)))


def _refuse_non_finite(found: Tensor, student: Policy, teacher: Policy) -> None:
    bad = torch.nonzero(~torch.isfinite(found).all(dim=0))
    if len(bad):
        row, token = bad[0].tolist()
        raise ValueError(
            f"'{student.name}' and '{teacher.name}' cannot be compared at row {row}, token {token}: a log-probability "
            "is not finite there. The weights of one are damaged, or it calls impossible what the other may write"
        )
