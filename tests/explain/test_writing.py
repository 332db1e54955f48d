"""What `explain` says of samplers that hold others: who writes how much of a group, until when there are hints."""

import pytest

from grpo_kit import read_recipe
from grpo_kit.explain.memory import estimate
from grpo_kit.explain.objective import objective
from grpo_kit.explain.writing import rows_in_words, writing
from grpo_kit.policies.load import load_tokenizer

LARGE = "{kind='transformers', policy='large', samples=14, max_new_tokens=4, rows_per_batch=28}"
SMALL = "{kind='transformers', policy='small', samples=14, max_new_tokens=48, rows_per_batch=28}"
HINTED = f"kind='hinted', hints={LARGE}, of={SMALL}"
DATA = 4096
WITHOUT = "So no step is without hints. The paper saw training collapse that way: lower epochs, or train longer."


def codistill(sampler: str, *settings: str):
    return read_recipe("codistill", settings=[f"sampler={{{sampler}}}", *settings])


def said(recipe) -> list[str]:
    return list(rows_in_words(recipe, recipe.sampler, recipe.prompts_per_step, DATA))


# Hints in the steps that begin before epochs * 4096 prompts were drawn, 16 a step: 0.05 * 256 = 12.8, so 13 of them.
@pytest.mark.parametrize(
    ("epochs", "settings", "steps", "ends"),
    [
        ("0.05", [], "1 to 13", True),
        ("1.0", [], "1 to 100", False),
        ("1.0", ["steps=256"], "1 to 256", False),
        ("1.0", ["steps=257"], "1 to 256", True),
        ("0.5", ["steps=500", "refill={rewards={correctness=1.0}}"], "1 to 128 at most", True),
    ],
)
def test_until_when_there_are_hints(epochs, settings, steps, ends):
    whole, hints, *more = said(codistill(f"{HINTED}, epochs={epochs}", *settings))
    assert whole == "16 prompts with 14 completions each: 224 rows, written by 'small'."
    assert hints == (
        f"'large' writes the first 4 tokens of the completions by 'small' in steps {steps} "
        f"(epochs = {float(epochs):g}, 4096 prompts)."
    )
    assert more == ([] if ends else [WITHOUT])


def test_rows_that_share_hints_and_groups_of_two_writers():
    shared = HINTED.replace("samples=14", "samples=7", 1)
    assert "by 'small', 7 hints a prompt in steps" in said(codistill(shared))[1]
    few = "{kind='transformers', policy='large', samples=2, max_new_tokens=48}"
    (whole,) = said(codistill(f"kind='grouped', of=[{SMALL}, {few}]"))
    assert whole == "16 prompts with 16 completions each: 256 rows; of each group 14 by 'small' and 2 by 'large'."
    whole, hints, _ = said(codistill(f"kind='grouped', of=[{{{HINTED}}}, {few}]"))
    assert whole.endswith("of each group 14 by 'small' and 2 by 'large'.")
    assert hints.startswith("'large' writes the first 4 tokens of the completions by 'small'")


def test_a_buffer_of_rows_with_hints():
    _, hints = said(codistill(f"kind='replay', buffer='b', of={{{HINTED}}}"))
    assert hints == "'large' wrote the first 4 tokens of each, at every step: a buffer is filled as in the first epoch."


def test_what_a_hinted_sampler_is_called_for():
    large, small = writing(codistill(HINTED))
    assert [(own.sampler.policy, own.prompts, own.behind) for own in large.requests] == [("large", 16, 0)]
    behind, alone = small.requests
    assert (behind.sampler.samples, behind.sampler.max_new_tokens, behind.prompts, behind.behind) == (1, 44, 224, 4)
    assert (alone.sampler.samples, alone.sampler.max_new_tokens, alone.prompts, alone.behind) == (14, 48, 16, 0)


def test_memory_of_both_writers_is_estimated():
    """28 rows at once: the hint's writer fills 4 tokens of them; who goes on prefills each row by itself."""
    recipe, alone = codistill(HINTED), codistill(SMALL[1:-1])
    tokenizers = {name: load_tokenizer(spec) for name, spec in recipe.policies.items()}
    small, large = (estimate(recipe, name, tokenizers, 10).sampling for name in ("small", "large"))
    assert estimate(alone, "large", tokenizers, 10).sampling is None
    assert large > 0
    assert small >= estimate(alone, "small", tokenizers, 10).sampling


UNWEIGHED = "Without a correction a token that 'large' wrote counts as if 'small' had written it."


@pytest.mark.parametrize(
    ("sampler", "settings", "unweighed"),
    [
        (HINTED, [], True),
        (HINTED, ["learners.small.terms.policy.anchor=behavior"], False),
        (HINTED, ["learners.small.terms.policy.correction={kind='importance_weight'}"], False),
        (SMALL[1:-1], [], False),
    ],
)
def test_tokens_of_another_that_nothing_weighs_are_named(sampler, settings, unweighed):
    recipe = codistill(sampler, *settings)
    assert (UNWEIGHED in objective(recipe, "small")) == unweighed
    assert not any("Without a correction" in str(own) for own in objective(recipe, "large"))
