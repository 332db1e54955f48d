"""Mistakes about which checkpoints stay."""

from collections.abc import Iterator

from grpo_kit.checks.findings import Finding
from grpo_kit.recipe import Recipe


def of_checkpoints(recipe: Recipe) -> Iterator[Finding]:
    """A best checkpoint by an evaluation that is not made, or not where checkpoints are."""
    best, evaluation = recipe.checkpoints.best, recipe.evaluation
    if best is None or not best.startswith("eval/"):
        return
    if evaluation is None:
        yield f"checkpoints.best: '{best}' needs an [evaluation], and there is none.", "evaluation"
        return
    _, learner, *_ = f"{best}/".split("/")
    if learner not in recipe.learners:
        yield f"checkpoints.best: '{best}' is of no policy that learns: {', '.join(recipe.learners)}.", "learners"
    if evaluation.every % recipe.checkpoints.every:
        yield (
            f"checkpoints.best: an evaluation every {evaluation.every} steps and a checkpoint every "
            f"{recipe.checkpoints.every} seldom meet. Let evaluation.every be a multiple of checkpoints.every.",
            "evaluation.every",
            "checkpoints.every",
        )
