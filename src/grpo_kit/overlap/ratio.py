"""The output-token overlap ratio and what belongs to it, from a chunk of two policies' logits for the same tokens."""

from typing import NamedTuple

import torch
from einops import reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_kit.divergences.distributions import kullback_leibler
from grpo_kit.head import TokenLogits, chosen
from grpo_kit.masked import wide

LIKELIEST = 64
"""The paper's number of tokens compared at each position."""

AnyLogits = Float[Tensor, "*token vocabulary"]
EachToken = Float[Tensor, "*token"]
Members = Bool[Tensor, "*token vocabulary"]


class Comparison(NamedTuple):
    r"""What two policies say at each position; $S_k$ and $T_k$ are the $k$ likeliest tokens of student and teacher.

    Attributes:
        overlap: $|S_k \cap T_k| / k$, in [0, 1].
        student_common: the student's probability of $S_k \cap T_k$.
        teacher_common: the teacher's.
        student_top: the student's probability of $S_k$, the most that `student_common` can be.
        teacher_top: the teacher's of $T_k$.
        log_ratio: $\log \pi_T(o_t) - \log \pi_S(o_t)$ of the token written, in nats: the advantage of on-policy
            distillation.
        teacher_logprob: $\log \pi_T(o_t)$ in nats.
        reverse_kl: $\mathrm{KL}(\pi_S \| \pi_T)$ over the whole vocabulary, in nats.
    """

    overlap: EachToken
    student_common: EachToken
    teacher_common: EachToken
    student_top: EachToken
    teacher_top: EachToken
    log_ratio: EachToken
    teacher_logprob: EachToken
    reverse_kl: EachToken


def likeliest(logits: AnyLogits, k: int) -> Members:
    """True for the `k` likeliest tokens; of those that tie for the last places the lowest ids."""
    if not 1 <= k <= logits.shape[-1]:
        raise ValueError(f"k = {k}: give 1 to {logits.shape[-1]}, the size of the vocabulary")
    least = logits.topk(k, dim=-1).values[..., -1:]
    above, tied = logits > least, logits == least
    room = k - reduce(above.long(), "... vocabulary -> ... 1", "sum")
    return above | (tied & (tied.cumsum(-1, dtype=torch.int32) <= room))


def tokens_compared(vocabulary: int) -> int:
    """How many of the likeliest tokens to compare: `LIKELIEST`, or a quarter of a vocabulary too small for that."""
    return max(1, min(LIKELIEST, vocabulary // 4))


def overlap_ratio(
    student: AnyLogits, teacher: Float[Tensor, "*token teacher_vocabulary"], k: int = LIKELIEST
) -> EachToken:
    r"""Share of the student's `k` likeliest tokens that are among the teacher's: $|S_k \cap T_k| / k$ at each position.

    The diagnostic of Semi-OPD (arXiv:2610.11291, k = 64), there averaged over all tokens that the initial student
    writes; also of thunlp's OPD (arXiv:2604.13016, k = 16). 1 for equal logits and where `k` is the vocabulary;
    symmetric; two unrelated policies are at `k` / vocabulary. A temperature changes nothing. Of tokens that tie for the
    last places the lowest ids are taken.

    Args:
        student: logits or log-probabilities.
        teacher: of the same tokens, over the same vocabulary; ValueError where it is of another size.
        k: likeliest tokens compared, 1 to the size of the vocabulary; ValueError beyond.

    Example:
        >>> overlap_ratio(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([[3.0, 0.0, 2.0, 1.0]]), k=2)
        tensor([0.5000])
    """
    if student.shape[-1] != teacher.shape[-1]:
        raise ValueError(
            f"the student has {student.shape[-1]} logits a token and the teacher {teacher.shape[-1]}; cut both to "
            "their common vocabulary"
        )
    return _share(likeliest(student, k) & likeliest(teacher, k), k).to(wide(student))


def compare(
    student: TokenLogits,
    teacher: TokenLogits,
    tokens: Int[Tensor, " token"],
    k: int = LIKELIEST,
    temperature: float = 1.0,
) -> Comparison:
    """Everything that is compared at the positions of a chunk; see `Comparison`.

    Args:
        student: its logits.
        teacher: the teacher's, over the same vocabulary.
        tokens: the token written at each position.
        k: likeliest tokens compared.
        temperature: divides both logits, above 0: that of the rollouts, at which training compares the two.
    """
    student, teacher = wide(student) / temperature, wide(teacher) / temperature
    of_student, of_teacher = likeliest(student, k), likeliest(teacher, k)
    common = of_student & of_teacher
    own, other = student.log_softmax(-1), teacher.log_softmax(-1)
    teacher_logprob = chosen(teacher, tokens)
    return Comparison(
        overlap=_share(common, k).to(own),
        student_common=_mass(own, common),
        teacher_common=_mass(other, common),
        student_top=_mass(own, of_student),
        teacher_top=_mass(other, of_teacher),
        log_ratio=teacher_logprob - chosen(student, tokens),
        teacher_logprob=teacher_logprob,
        reverse_kl=kullback_leibler(own, other),
    )


def _share(members: Members, k: int) -> EachToken:
    return reduce(members.long(), "... vocabulary -> ...", "sum") / k


def _mass(logprobs: AnyLogits, members: Members) -> EachToken:
    """Probability of some tokens, at most 1."""
    return reduce(torch.where(members, logprobs.exp(), 0), "... vocabulary -> ...", "sum").clamp(max=1)
