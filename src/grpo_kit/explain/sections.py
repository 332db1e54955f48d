"""The page about a recipe, section by section."""

from collections.abc import Iterator, Mapping

from grpo_kit.checks.findings import trained_rows
from grpo_kit.detail import Detail
from grpo_kit.explain.calls import Calls, evaluations, of_a_step, of_an_evaluation, rounds
from grpo_kit.explain.devices import memory
from grpo_kit.explain.objective import objective
from grpo_kit.explain.options import described, options
from grpo_kit.explain.page import Section, Table
from grpo_kit.explain.signals import signals
from grpo_kit.explain.writing import rows_in_words
from grpo_kit.recipe import Recipe
from grpo_kit.run.setup import Inputs
from grpo_kit.samplers import Replay
from grpo_kit.samplers.mixed import portions

SYMBOLS = (
    r"$i$ is a row (a completion), $t$ one of its tokens, $o_{it}$ that token, $|o_i|$ the number of its tokens that "
    r"count, $g$ its group (the rows of one prompt), $R$ the number of rows with a token that counts in an optimizer "
    r"step. $\log \pi$ are natural logarithms at the sampling temperature{temperature}."
)


def explain(recipe: Recipe, inputs: Inputs) -> tuple[Section, ...]:
    """What a recipe does, in sections; a recipe with mistakes never gets here (`open_recipe` lists them)."""
    longest = max(len(ids) for ids in inputs.prompts.ids)
    learners = [Section(title=f"Learner {name}", blocks=objective(recipe, name)) for name in recipe.learners]
    return (
        Section(title="Rows of a step", blocks=tuple(_rows(recipe, len(inputs.prompts)))),
        *learners,
        Section(title="Symbols", blocks=(_symbols(recipe),)),
        Section(title="Options", blocks=(_options(recipe),)),
        Section(title="Signals", blocks=(_signals(recipe),)),
        Section(title="Model calls of a step", blocks=tuple(_calls(recipe, longest))),
        *_evaluation(recipe, inputs),
        Section(title="Memory", blocks=tuple(memory(recipe, inputs, longest))),
    )


def _rows(recipe: Recipe, data: int) -> Iterator[str]:
    for _, sampler, prompts in portions(recipe.sampler, recipe.prompts_per_step):
        if isinstance(sampler, Replay):
            yield f"They come from the buffer {sampler.buffer}, filled before the first step:"
        yield from rows_in_words(recipe, sampler, prompts, data)
    if getattr(recipe.sampler, "greedy", False):
        yield "Beside them one greedy completion of each prompt, rewarded for comparison and never trained on."
    if recipe.curriculum is not None:
        yield (
            f"Prompts are drawn unseen ones first, then by p (1 - p) + {recipe.curriculum.floor:g} of their running "
            f"pass rate p, the mean of {recipe.curriculum.reward} (decay {recipe.curriculum.decay:g})."
        )
    if recipe.refill is not None:
        yield (
            f"Refill {described(recipe.refill.rule)} by {_sum(recipe.refill.rewards)}: up to "
            f"{rounds(recipe)} rounds of sampling, until {recipe.prompts_per_step} groups are kept."
        )
    if recipe.selection is not None:
        yield (
            f"Selection {described(recipe.selection.rule)} by {_sum(recipe.selection.rewards)}: "
            f"{trained_rows(recipe)} rows at most are trained on."
        )
    yield f"{recipe.steps} steps; seed {recipe.seed}."
    yield _checkpoints(recipe)
    for name, spec in recipe.policies.items():
        if spec.follows is not None:
            often = "every step" if spec.every == 1 else f"every {spec.every} steps"
            how = "a copy of" if spec.decay == 0 else f"{spec.decay:g} of itself and {1 - spec.decay:g} of"
            yield f"Policy '{name}' becomes {how} '{spec.follows}' {often}."


def _checkpoints(recipe: Recipe) -> str:
    own = recipe.checkpoints
    often = "every step" if own.every == 1 else f"every {own.every} steps and at the end"
    stay = "the latest checkpoint stays" if own.keep == 1 else f"the latest {own.keep} checkpoints stay"
    best = "" if own.best is None else f", and the one with the highest {own.best}"
    skips = recipe.max_non_finite_skips
    finite = f"the first {skips} are left out" if skips else "the first one stops the run"
    return f"The state is saved {often}: {stay}{best}. Of numbers that are not finite {finite}."


def _sum(weights: Mapping[str, float]) -> str:
    return " + ".join(name if weight == 1 else f"{weight:g} {name}" for name, weight in weights.items())


def _symbols(recipe: Recipe) -> str:
    temperature = getattr(recipe.sampler, "temperature", None)
    return SYMBOLS.replace("{temperature}", "" if temperature is None else f" ({temperature:g})")


def _options(recipe: Recipe) -> Table:
    def shown(pairs: tuple[tuple[str, str], ...]) -> str:
        return ", ".join(f"{key} = {value}" if value else f"no {key}" for key, value in pairs) or "-"

    rows = ((own.place, own.kind or "-", shown(own.active), shown(own.default)) for own in options(recipe))
    return Table(headings=("place", "kind", "set", "at its default"), rows=tuple(rows), literal=True)


def _signals(recipe: Recipe) -> Table:
    said = {
        "sampled": "comes with the rows, no pass of its own",
        "kept": "comes from the buffer, no pass of its own",
        "scored": "one pass over all rows, without gradient",
        "current": "every optimizer step, with gradient",
    }
    rows = tuple(
        (
            rf"$\log {signal.symbol}(o_{{it}})$" + _with(signal.detail),
            signal.policy,
            said[signal.when],
            ", ".join(signal.readers) or "only recorded",
        )
        for signal in signals(recipe)
    )
    return Table(headings=("signal", "computed by", "when", "read by"), rows=rows)


def _with(detail: Detail) -> str:
    """What of the distributions is read beside the log-probability of the token."""
    said = [
        *(["entropy"] if detail.entropy else []),
        *([f"the {detail.top_k} likeliest tokens"] if detail.top_k else []),
        *(["whole distributions"] if detail.full else []),
    ]
    return "".join(f" and {each}" for each in said)


def _calls(recipe: Recipe, longest: int) -> Iterator[str | Table]:
    yield _call_table(of_a_step(recipe, longest))
    tokens = getattr(recipe.sampler, "max_new_tokens", None)
    if tokens is not None:
        yield f"The upper numbers are for completions of {tokens} tokens after prompts of {longest}, the longest."
    if rounds(recipe) > 1:
        yield f"A refill samples and scores up to {rounds(recipe)} rounds; rows and upper numbers are of them all."


def _evaluation(recipe: Recipe, inputs: Inputs) -> Iterator[Section]:
    if recipe.evaluation is None or inputs.questions is None:
        return
    longest = max(len(ids) for ids in inputs.questions.ids)
    table = _call_table(of_an_evaluation(recipe, len(inputs.questions), longest))
    often = evaluations(recipe)
    when = f"{often} times in the run: before the first step, every {recipe.evaluation.every}, and after the last."
    yield Section(title="Model calls of an evaluation", blocks=(table, when))


def _call_table(calls: tuple[Calls, ...]) -> Table:
    def passes(call: Calls) -> str:
        if call.most is None:
            return f"{call.fewest} or more"
        return f"{call.fewest}" if call.fewest == call.most else f"{call.fewest} to {call.most}"

    rows = tuple(
        (
            call.what,
            call.policy,
            str(call.rows),
            passes(call) + (", each with a backward pass" if call.steps else ""),
            str(call.steps) if call.steps else "-",
        )
        for call in calls
    )
    return Table(headings=("what", "policy", "rows", "forward passes", "optimizer steps"), rows=rows)
