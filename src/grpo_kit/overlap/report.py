"""A comparison for people, as lines of text."""

from collections.abc import Iterator, Sequence

from grpo_kit.overlap.advice import Advice
from grpo_kit.overlap.estimate import Estimate
from grpo_kit.overlap.result import Overlap

CAVEAT = (
    "The paper (Semi-OPD, arXiv:2610.11291) publishes no threshold: this one, and what is called weak, are conventions "
    "of this command (--threshold moves it). Only runs of both decide."
)


def lines(found: Overlap, advice: Advice) -> Iterator[str]:
    """Everything that is said of a comparison, the recommendation last."""
    chance = found.k / found.vocabulary
    size = f"{found.rollouts} rollouts of {found.prompts} prompts, {found.tokens} tokens"
    yield f"'{found.student}' (student) against '{found.teacher}' (teacher): {size}"
    of = f"top {found.k} of {found.vocabulary} tokens"
    overlap = _with_interval(found.overlap, ".3f")
    yield f"output-token overlap ratio, {of}: {overlap}; {chance:.2g} for unrelated policies"
    yield ""
    head = ("position", "tokens", "prompts", "overlap", "95 % interval", "student mass", "teacher mass")
    rows = [
        (
            str(each.first) if each.first == each.last else f"{each.first} to {each.last}",
            str(each.tokens),
            str(each.prompts),
            f"{each.overlap.value:.3f}",
            f"{each.overlap.low:.3f} to {each.overlap.high:.3f}",
            f"{each.student_common.value:.3f}",
            f"{each.teacher_common.value:.3f}",
        )
        for each in found.by_position
    ]
    yield from _table([head, *rows])
    yield ""
    masses = {name: _with_interval(each, ".3f") for name, each in found.masses.items()}
    yield from _table(
        [
            ("probability of", "student", "teacher"),
            ("the common tokens", masses["student_common"], masses["teacher_common"]),
            (f"its own top {found.k}", masses["student_top"], masses["teacher_top"]),
        ]
    )
    yield ""
    yield f"log teacher / student of the tokens written, nats: {_with_interval(found.log_ratio, '.4f')}"
    yield "  quantiles " + "  ".join(f"{float(level):.0%} {value:z.3f}" for level, value in found.quantiles.items())
    if found.log_ratio_at_end is not None:
        yield f"  of those that end a rollout alone: {_with_interval(found.log_ratio_at_end, '.4f')}"
    yield f"log teacher of the tokens written, nats: {_with_interval(found.teacher_logprob, '.4f')}"
    yield f"reverse KL (student || teacher), nats a token: {_with_interval(found.reverse_kl, '.4f')}"
    lengths = "  ".join(f"{name} {value:g}" for name, value in found.lengths.items() if name != "mean")
    yield f"tokens a rollout: mean {found.lengths['mean']:.1f}  {lengths}"
    reasons = ", ".join(f"{name} {count}" for name, count in found.stop_reasons.items())
    yield f"stop reasons: {reasons} ({found.cut:.1%} cut at the length limit)"
    yield ""
    yield from (f"warning: {warning}" for warning in advice.warnings)
    yield f"recommendation: {advice.choice}, since {advice.reason}"
    yield CAVEAT


def _with_interval(estimate: Estimate, form: str) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:z{form}} (no interval from one prompt)"
    return f"{estimate.value:z{form}} ({estimate.low:z{form}} to {estimate.high:z{form}})"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of cells under a heading, in columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
