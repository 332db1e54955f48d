"""From a measured overlap to a plain recommendation: on-policy distillation, its offline form, or no opinion."""

from dataclasses import dataclass
from typing import Literal

from grpo_kit.overlap.result import Overlap

THRESHOLD = 0.75
"""The overlap from which live rollouts are recommended: a convention of this command. The paper publishes none.

It is above one half, since the offline form did better in 14 of the paper's 17 pairs: without a reason for live
rollouts it is the first to try."""
CUT = 0.25
"""Share of rollouts cut at the length limit from which the initial student is called weak: a convention, too."""
UNLIKELY = -1.0
"""Mean log teacher / student from which it is called weak, in nats a token: a convention, too."""
ENDLESS = -3.0
"""Mean log teacher / student of the end-of-sequence tokens from which the teacher is said to go on where the student
ends, in nats: it ends there 20 times less readily. A convention, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A recommendation.

    Attributes:
        choice: what is recommended.
        reason: why, in sentences.
        warnings: signs that the initial student is too weak for its rollouts to be learned from, and that this teacher
            would teach it not to end.
    """

    choice: Literal["OPD", "Semi-OPD", "undecided"]
    reason: str
    warnings: tuple[str, ...]


def advise(found: Overlap, threshold: float = THRESHOLD) -> Advice:
    """What an overlap speaks for; see `docs/overlap.md` for how far it can be trusted.

    High: the student already proposes what the teacher would, so that live rollouts can pay. Low: its first rollouts
    are cheaper, and did better in most of the paper's pairs. Undecided where the interval contains the threshold, and
    where the overlap is low but the initial student looks weak, for then the offline form is known to fail.
    """
    value, low, high = found.overlap.value, found.overlap.low, found.overlap.high
    assert low is not None
    assert high is not None
    weak = _signs_of_weakness(found)
    warnings = (*weak, *_endless(found))
    if low <= threshold <= high:
        problem = f"the 95 % interval of the overlap, {low:.3f} to {high:.3f}, contains the threshold {threshold:g}."
        return Advice(choice="undecided", reason=f"{problem} More --prompts narrow it.", warnings=warnings)
    if value > threshold:
        reason = (
            f"the overlap {value:.3f} is above the threshold {threshold:g}: the student already proposes what the "
            "teacher would, so that live rollouts (OPD) can pay for their cost."
        )
        return Advice(choice="OPD", reason=reason, warnings=warnings)
    below = f"the overlap {value:.3f} is below the threshold {threshold:g}"
    if weak:
        reason = (
            f"{below}, which speaks for Semi-OPD, but the initial student looks weak, and from the rollouts of a weak "
            "student Semi-OPD is known to do worse than OPD. Train the student on data first, or try both."
        )
        return Advice(choice="undecided", reason=reason, warnings=warnings)
    reason = (
        f"{below}: rollouts written once by the initial student (Semi-OPD) are cheaper, and did better in most of the "
        "paper's pairs."
    )
    return Advice(choice="Semi-OPD", reason=reason, warnings=warnings)


def _endless(found: Overlap) -> list[str]:
    """A teacher that goes on where the student ends."""
    ends = found.log_ratio_at_end
    if ends is None or ends.value > ENDLESS:
        return []
    return [
        f"'{found.teacher}' hardly ever ends where '{found.student}' does: {ends.value:.2f} nats of log teacher / "
        "student at the tokens that end a rollout. Distillation then teaches the student not to end. Do both know one "
        "chat template and one end-of-sequence token?"
    ]


def _signs_of_weakness(found: Overlap) -> list[str]:
    """Signs of a weak initial student."""
    warnings: list[str] = []
    if found.cut >= CUT:
        warnings.append(
            f"{found.cut:.1%} of the rollouts were cut at the length limit. Raise max_new_tokens, or the student does "
            "not know how to end."
        )
    if found.log_ratio.value <= UNLIKELY:
        warnings.append(
            f"'{found.teacher}' gives the rollouts very low probability: {found.log_ratio.value:.2f} nats a token "
            f"against that of '{found.student}'."
        )
    return warnings
