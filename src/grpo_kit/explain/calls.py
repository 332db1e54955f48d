"""Which calls of the models one step and one evaluation make, with their numbers where they are known beforehand."""

from dataclasses import dataclass
from math import ceil

from grpo_kit.checks.findings import trained_rows
from grpo_kit.explain.writing import Request, Writing, writing
from grpo_kit.recipe import Recipe
from grpo_kit.run.buffering import kept_details
from grpo_kit.samplers import Replay
from grpo_kit.samplers.mixed import portions


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Model calls of one kind.

    Attributes:
        what: `sample`, `score`, `update`, `evaluate: sampled`, `evaluate: greedy` or `evaluate: entropy`.
        policy: whose model is called.
        rows: completions that go through it, at most: an update leaves rows without a reward out, and a refill may
            need fewer rounds than it may try.
        steps: optimizer steps; 0 where none is taken.
        fewest: forward passes at least.
        most: forward passes at most; None where the sampler does not say.
    """

    what: str
    policy: str
    rows: int
    steps: int = 0
    fewest: int
    most: int | None


def of_a_step(recipe: Recipe, longest_prompt: int) -> tuple[Calls, ...]:
    """The calls of one pass through the loop, in their order; the most are those of all rounds that a refill tries."""
    written, longest = written_rows(recipe), _longest(recipe, longest_prompt)
    found = [
        _sampling(recipe, policy, own)
        for own in writing(recipe)
        if not isinstance(own.requests[0].sampler, Replay)
        for policy in getattr(own.requests[0].sampler, "reads", ())
    ]
    for name in [name for name in recipe.scored() if name not in kept_details(recipe)]:
        most = _micro_batches(recipe, name, written, longest)
        most = None if most is None else most * rounds(recipe)
        found.append(Calls(what="score", policy=name, rows=written * rounds(recipe), fewest=1, most=most))
    for name, learner in recipe.learners.items():
        rows = trained_rows(recipe)
        steps = learner.epochs * min(learner.mini_batches, rows)
        parts = [len(range(number, rows, learner.mini_batches)) for number in range(learner.mini_batches)]
        most = sum(_micro_batches(recipe, name, part, longest) or 0 for part in parts if part) if longest else None
        found.append(
            Calls(
                what="update",
                policy=name,
                rows=rows * learner.epochs,
                steps=steps,
                fewest=steps,
                most=None if most is None else most * learner.epochs,
            )
        )
    return tuple(found)


def written_rows(recipe: Recipe) -> int:
    """Rows of one round of sampling, greedy ones too."""
    return sum(prompts * _written(own) for _, own, prompts in portions(recipe.sampler, recipe.prompts_per_step))


def evaluations(recipe: Recipe) -> int:
    """How often a whole run evaluates: before the first step, every so many, and after the last."""
    if recipe.evaluation is None:
        return 0
    whole, rest = divmod(recipe.steps, recipe.evaluation.every)
    return 1 + whole + (rest > 0)


def rounds(recipe: Recipe) -> int:
    """Rounds of sampling a step at most."""
    return 1 if recipe.refill is None else recipe.refill.tries


def _sampling(recipe: Recipe, policy: str, own: Writing) -> Calls:
    """Of one of a sampler's requests a step: from the fewest to the most passes of any."""
    batches = [_batches(request) for request in own.requests]
    tokens = [getattr(request.sampler, "max_new_tokens", None) for request in own.requests]
    most: int | None = None
    if all(tokens) and all(getattr(request.sampler, "rows_per_batch", None) for request in own.requests):
        most = max(a * (b or 0) for a, b in zip(batches, tokens, strict=True)) * rounds(recipe)
    rows = max(request.prompts * _written(request.sampler) for request in own.requests) * rounds(recipe)
    return Calls(what="sample", policy=policy, rows=rows, fewest=min(batches) if own.always else 0, most=most)


def _batches(request: Request) -> int:
    """One prefill a batch of prompts, then a pass a token until all rows of the batch have ended."""
    sampler, per_batch = request.sampler, getattr(request.sampler, "rows_per_batch", None)
    batches = ceil(request.prompts / max(1, per_batch // _samples(sampler))) if per_batch else 1
    return batches * (2 if getattr(sampler, "greedy", False) else 1)  # greedy rows are batches of their own


def _samples(sampler: object) -> int:
    return getattr(sampler, "samples", 1)


def _written(sampler: object) -> int:
    """Completions a prompt, a greedy one too."""
    return _samples(sampler) + bool(getattr(sampler, "greedy", False))


def _longest(recipe: Recipe, longest_prompt: int) -> int | None:
    """Tokens of the longest row there can be, prompt and completion."""
    tokens = getattr(recipe.sampler, "max_new_tokens", None)
    return None if tokens is None else longest_prompt + tokens


def _micro_batches(recipe: Recipe, policy: str, rows: int, longest: int | None) -> int | None:
    """Forward passes for some rows if all were as long as can be."""
    return None if longest is None else ceil(rows / rows_at_once(recipe, policy, rows, longest))


def rows_at_once(recipe: Recipe, policy: str, rows: int, longest: int) -> int:
    """Rows of full length in one forward pass: what `micro_batch_tokens` allows, one at least."""
    return min(rows, max(1, recipe.policies[policy].micro_batch_tokens // longest))


def of_an_evaluation(recipe: Recipe, questions: int, longest_question: int) -> tuple[Calls, ...]:
    """The calls of one evaluation of all live policies on so many questions."""
    settings = recipe.evaluation
    if settings is None:
        return ()
    tokens = settings.max_new_tokens or getattr(recipe.sampler, "max_new_tokens", 512)
    per_batch = settings.rows_per_batch or getattr(recipe.sampler, "rows_per_batch", 512)
    found: list[Calls] = []
    for name in recipe.learners:
        for what, samples in (("evaluate: sampled", settings.samples), ("evaluate: greedy", 1)):
            batches, rows = ceil(questions / max(1, per_batch // samples)), questions * samples
            found.append(Calls(what=what, policy=name, rows=rows, fewest=batches, most=batches * tokens))
        rows = questions * settings.samples
        most = _micro_batches(recipe, name, rows, longest_question + tokens)
        found.append(Calls(what="evaluate: entropy", policy=name, rows=rows, fewest=1, most=most))
    return tuple(found)
