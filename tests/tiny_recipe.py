"""A recipe made in Python that trains a tiny policy in no time, for tests of the loop and of its steps."""

from grpo_kit import (
    AdamW,
    Arithmetic,
    Clip,
    FixedLength,
    GroupMean,
    Learner,
    PolicyGradient,
    PolicySpec,
    Python,
    Recipe,
    TransformersSampler,
)

TERM = PolicyGradient(advantage=GroupMean(), surrogate=Clip())


def letters(completions, **columns):
    """A reward that differs between rows: the share of letters a to e."""
    return [sum(text.count(letter) for letter in "abcde") / 8 for text in completions]


def learner(**changes) -> Learner:
    settings = {
        "rewards": {"task": 1.0},
        "terms": {"policy": TERM},
        "weighting": FixedLength(length=4),
        "optimizer": AdamW(lr=1e-2),
    }
    return Learner(**settings | changes)


def recipe(**changes) -> Recipe:
    settings = {
        "name": "test",
        "steps": 1,
        "prompts_per_step": 2,
        "policies": {"small": PolicySpec(model="tiny:small")},
        "data": Arithmetic(),
        "sampler": TransformersSampler(policy="small", samples=4, max_new_tokens=4),
        "rewards": {"task": Python(function=letters)},
        "learners": {"small": learner()},
    }
    return Recipe(**settings | changes)
