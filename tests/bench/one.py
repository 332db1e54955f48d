"""One measurement in a process of its own, in either environment: `python one.py VARIANT LOSS VOCABULARY WIDTH TOKENS`.

Prints a line of JSON: seconds, seconds of all processors together, peak memory beyond the inputs in bytes, the loss
and the norm of its gradient. Threads: OMP_NUM_THREADS, else 2.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

THREADS = 2
Loss = Callable[["Inputs"], Tensor]


class Inputs:
    """Hidden states and head of a student, the same of a teacher of its size, and a token a place."""

    def __init__(self, vocabulary: int, width: int, tokens: int) -> None:
        draw = torch.Generator().manual_seed(0)
        self.hidden, self.teacher_hidden = (torch.randn(tokens, width, generator=draw) for _ in range(2))
        self.weight, self.teacher_weight = (
            torch.randn(vocabulary, width, generator=draw).mul_(width**-0.5) for _ in range(2)
        )
        self.ids = torch.randint(vocabulary, (tokens,), generator=draw)
        self.hidden.requires_grad_()
        self.weight.requires_grad_()

    def teacher_logits(self, part: slice = slice(None)) -> Tensor:
        with torch.no_grad():
            return self.teacher_hidden[part] @ self.teacher_weight.T


def reverse_kl(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """The formula, of each token."""
    student, teacher = logits.log_softmax(-1), teacher_logits.log_softmax(-1)
    return (student.exp() * (student - teacher)).sum(-1)


def dense(loss: str) -> Loss:
    """As one writes it with all logits at once."""
    if loss == "reverse_kl":
        return lambda own: reverse_kl(own.hidden @ own.weight.T, own.teacher_logits()).mean()
    return lambda own: -(own.hidden @ own.weight.T).log_softmax(-1).gather(1, own.ids[:, None]).mean()


def ours(loss: str, *, formed_in_forward: bool) -> Loss:
    """The same formulas on chunks of logits, by `read` or by `minimize`."""
    from grpo_kit.head import Head, chosen, minimize, read

    def total(own: Inputs) -> Tensor:
        def losses(logits: Tensor, part: slice) -> Tensor:
            if loss == "reverse_kl":
                return reverse_kl(logits, own.teacher_logits(part))
            return -chosen(logits, own.ids[part])

        if not formed_in_forward:
            return read(lambda *chunk: (losses(*chunk),), own.hidden, Head(own.weight))[0].mean()

        def weighted(logits: Tensor, part: slice) -> tuple[Tensor, tuple[Tensor, ...]]:
            each = losses(logits, part)
            return each.sum() / len(own.ids), (each,)

        return minimize(weighted, own.hidden, Head(own.weight))[0]

    return total


def trl_dense(loss: str) -> Loss:
    """TRL's own function of all logits at once."""
    if loss == "reverse_kl":
        from trl.experimental.gkd import GKDTrainer

        def total(own: Inputs) -> Tensor:
            logits = own.hidden @ own.weight.T, own.teacher_logits()
            return GKDTrainer.generalized_jsd_loss(*logits, beta=1.0, reduction="sum") / len(own.ids)

        return total
    from trl.trainer.utils import selective_log_softmax

    return lambda own: -selective_log_softmax(own.hidden @ own.weight.T, own.ids).mean()


def trl_chunked(loss: str) -> Loss:
    """TRL's own function of hidden states and head, as its trainers call it."""
    from trl.trainer import utils
    from trl.trainer.distillation_trainer import _chunked_divergence_loss

    if loss == "reverse_kl":
        return lambda own: _chunked_divergence_loss(
            own.hidden[None],
            own.teacher_hidden[None],
            own.weight,
            own.teacher_weight,
            torch.ones(1, len(own.ids)),
            beta=1.0,
        )[0]
    size = utils._CHUNKED_LOGPROB_CHUNK_SIZE
    score = utils._ChunkedLogProbFunction.apply
    return lambda own: -score(own.hidden, own.weight, None, own.ids, 1.0, size, None, 1.0, ())[0].mean()


VARIANTS: dict[str, Callable[[str], Loss]] = {
    "dense": dense,
    "read": lambda loss: ours(loss, formed_in_forward=False),
    "minimize": lambda loss: ours(loss, formed_in_forward=True),
    "trl_dense": trl_dense,
    "trl_chunked": trl_chunked,
}


def kilobytes(field: str) -> int:
    """A field of the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main(variant: str, loss: str, vocabulary: str, width: str, tokens: str) -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", THREADS)))
    function = VARIANTS[variant](loss)
    function(Inputs(1000, 64, 64)).backward()  # what is set up once is no part of the measurement
    own = Inputs(int(vocabulary), int(width), int(tokens))
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's high-water mark starts anew: the peak is exact
    before, start, busy = kilobytes("VmRSS"), time.perf_counter(), time.process_time()
    total = function(own)
    total.backward()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = 1024 * (kilobytes("VmHWM") - before)
    assert own.hidden.grad is not None
    assert own.weight.grad is not None
    norm = torch.stack([own.hidden.grad.norm(), own.weight.grad.norm()]).norm()
    measured = {"seconds": seconds, "processor": busy, "peak": peak, "loss": total.item(), "gradient": norm.item()}
    print(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
