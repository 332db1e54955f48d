"""What a run is about beside its recipe: the weights that it began with, and what it asks."""

from dataclasses import replace
from typing import Any

from grpo_kit.buffers.fingerprints import Identity, differences, prompts_identity, weights_of
from grpo_kit.recipe import Recipe
from grpo_kit.run.inputs import Inputs


def identity_of(recipe: Recipe, inputs: Inputs) -> dict[str, Any]:
    """By name: hashes of every policy's first weights, of prompts and questions, and of the tokenizer that says them.

    A run that goes on must find the same, since the checkpoint holds none of it: weights that nothing moves, prompts.
    """
    tokenizer = next(iter(inputs.tokenizers.values()))
    found: dict[str, Any] = {
        f"policies.{name}": weights_of(replace(spec, engine=None))  # whoever scores by them
        for name, spec in recipe.policies.items()
        if spec.model is not None
    }
    found |= prompts_identity(tokenizer, inputs.prompts)
    if inputs.questions is not None:
        of_questions = prompts_identity(tokenizer, inputs.questions)
        found |= {f"evaluation.{name}": said for name, said in of_questions.items() if name.startswith("data.")}
    return found


def apart(before: Identity, now: Identity, *, questions: bool) -> list[str]:
    """In what a run differs from how it began, a line each; of its questions only where others were not asked for."""
    compared = [
        {name: said for name, said in each.items() if questions or not name.startswith("evaluation.")}
        for each in (before, now)
    ]
    return differences(*compared)
