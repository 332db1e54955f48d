"""Everything a recipe needs from the world, loaded and checked before the first step."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from grpo_kit.checks import shared_vocabulary
from grpo_kit.config import RecipeError, examine
from grpo_kit.data import Data, PromptSet, PromptStream, Rows, as_rows, encode_prompts
from grpo_kit.data.columns import missing_columns
from grpo_kit.data.encode import Judge
from grpo_kit.data.report import bad_rows, first_faults
from grpo_kit.detail import Detail
from grpo_kit.policies import Policy, load_policy, load_tokenizer
from grpo_kit.policies.load import device_of, mistake_of_lora, position_limit, vocabulary_size
from grpo_kit.policies.serving import load_served
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import Python, Reward
from grpo_kit.run.buffering import mistakes_of_buffer
from grpo_kit.run.engines import too_short
from grpo_kit.run.inputs import Inputs
from grpo_kit.samplers.mixed import places_of


def open_recipe(name: str, *, settings: Sequence[str] = (), allow_code: bool = False) -> tuple[Recipe, Inputs]:
    """Read a recipe file, its tokenizers and its data; RecipeError lists the mistakes of all three at once."""
    examined = examine(name, settings=settings, allow_code=allow_code)
    inputs, found = (
        _find_inputs(examined.recipe, examined.removed, allow_code=allow_code) if examined.recipe else (None, [])
    )
    mistakes = [*examined.mistakes, *found]
    if mistakes or examined.recipe is None or inputs is None:
        raise RecipeError(mistakes, name)
    return examined.recipe, inputs


def load_inputs(recipe: Recipe) -> Inputs:
    """Load tokenizers and data of a recipe; RecipeError with all that is wrong with them."""
    inputs, mistakes = _find_inputs(recipe, {}, allow_code=True)
    if mistakes or inputs is None:
        raise RecipeError(mistakes, recipe.name)
    return inputs


def _find_inputs(recipe: Recipe, removed: Collection[str], *, allow_code: bool) -> tuple[Inputs | None, list[str]]:
    """What a recipe names in the world, and what is wrong with it; places taken out for a mistake are left alone.

    Without `allow_code` no code that comes with a model runs.
    """
    if not allow_code:
        policies = {name: replace(spec, trust_remote_code=False) for name, spec in recipe.policies.items()}
        recipe = replace(recipe, policies=policies)
    tokenizers, mistakes = open_tokenizers(recipe)
    reads = getattr(recipe.sampler, "reads", ())
    tokenizer = next((tokenizers[name] for name in (*reads, *tokenizers) if name in tokenizers), None)
    rewards = {} if any(place.startswith("rewards") for place in removed) else recipe.rewards
    samplers = {} if any(place.startswith("sampler") for place in removed) else places_of(recipe.sampler)
    sources: list[tuple[str, Data, int | None]] = [("data", recipe.data, getattr(recipe.sampler, "prompts", None))]
    if recipe.evaluation is not None:
        sources.append(("evaluation.data", recipe.evaluation.data, recipe.evaluation.questions))
    sets: dict[str, PromptSet] = {}
    said: set[str] = set()
    for place, data, limit in sources:
        if any(gone == place or gone.startswith(f"{place}.") for gone in removed):
            continue
        try:
            writers = samplers if place == "data" else {}
            found = _prompts(recipe, as_rows(data()), rewards, writers, tokenizer, limit)
            if found is not None:
                sets[place] = found
        except ValueError as error:
            if str(error) not in said:  # the same file or hub name for both: one mistake
                mistakes.append(f"{place}: {error}")
            said.add(str(error))
    mistakes += [*_too_long(recipe, sets, tokenizers), *_too_many(recipe, tokenizers)]
    if "data" in sets:
        mistakes += too_short(recipe, max((len(ids) for ids in sets["data"].ids), default=0))
    if recipe.curriculum is not None and "data" in sets and len(sets["data"]) < recipe.prompts_per_step:
        few = (
            f"prompts_per_step: {recipe.prompts_per_step}, but a curriculum draws no prompt twice in a step and there "
        )
        mistakes.append(few + f"are {len(sets['data'])} prompts. Lower it, or remove [curriculum].")
    if mistakes or "data" not in sets:
        return None, mistakes
    inputs = Inputs(tokenizers=tokenizers, prompts=sets["data"], questions=sets.get("evaluation.data"))
    mistakes = [] if any(place.startswith("sampler") for place in removed) else mistakes_of_buffer(recipe, inputs)
    return inputs, mistakes


def _prompts(
    recipe: Recipe,
    rows: Rows,
    rewards: Mapping[str, Reward],
    samplers: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase | None,
    limit: int | None,
) -> PromptSet | None:
    """Rows as prompts that every reward and sampler can use; ValueError says why not. None for want of a tokenizer."""
    parts = {**samplers, **{f"rewards.{name}": part for name, part in rewards.items()}}
    readers = {column: place for place, part in parts.items() for column in getattr(part, "columns", ())}
    missing = {column: column for column in ("prompt", *sorted(readers)) if column not in rows.columns}
    if missing:
        raise ValueError(missing_columns(rows, missing, readers))
    if tokenizer is None:
        return None
    # A function takes what values there are; other rewards need one, and may say themselves which they can read.
    strict = {name: part for name, part in rewards.items() if not isinstance(part, Python)}
    judges = {name: part.row_faults for name, part in strict.items() if hasattr(part, "row_faults")}  # pyright: ignore[reportAttributeAccessIssue]
    plain = {column for name, part in strict.items() if name not in judges for column in getattr(part, "columns", ())}
    needed = sorted(
        {column for part in (*strict.values(), *samplers.values()) for column in getattr(part, "columns", ())}
    )
    fillers = {place: part.row_faults for place, part in samplers.items() if hasattr(part, "row_faults")}
    found = encode_prompts(
        rows,
        tokenizer,
        max_tokens=recipe.max_prompt_tokens,
        needed=needed,
        free=set(needed) - plain,
        judges=[partial(_named, f"rewards.{name}", judge) for name, judge in judges.items()],
        writers=[partial(_named, place, partial(judge, tokenizer=tokenizer)) for place, judge in fillers.items()],
        limit=limit,
    )
    if recipe.on_bad_row == "stop" and found.skipped:
        raise ValueError(
            f"{rows.source}: {bad_rows(found)} and on_bad_row is 'stop': {'; '.join(first_faults(found.skipped))}"
        )
    return found


def _named(place: str, judge: Judge, columns: Mapping[str, Sequence[object]]) -> dict[int, str]:
    """What a reward or a sampler says of the rows it cannot use, under its place."""
    return {row: f"{place}: {reason}" for row, reason in judge(columns).items()}


def open_tokenizers(recipe: Recipe) -> tuple[dict[str, PreTrainedTokenizerBase], list[str]]:
    """The tokenizer of every policy with a model of its own, which must be the same, and what is wrong with them."""
    tokenizers: dict[str, PreTrainedTokenizerBase] = {}
    mistakes: list[str] = []
    for name, spec in recipe.policies.items():
        if spec.model is not None:
            try:
                tokenizers[name] = load_tokenizer(spec)
            except ValueError as error:
                mistakes.append(f"policies.{name}.model: {error}.")
            try:
                device_of(spec)
            except ValueError as error:
                mistakes.append(f"policies.{name}.device: {error}.")
            if name in tokenizers and (problem := mistake_of_lora(spec)):
                mistakes.append(f"policies.{name}.lora: {problem}.")
    return tokenizers, [*mistakes, *shared_vocabulary(tokenizers)]


def _too_long(recipe: Recipe, sets: Mapping[str, PromptSet], readable: Collection[str]) -> Iterator[str]:
    """Policies without positions enough for the longest prompt and completion together."""
    prompt = max((len(ids) for prompts in sets.values() for ids in prompts.ids), default=0)
    longest = getattr(recipe.sampler, "max_new_tokens", 0)
    if recipe.evaluation is not None:
        longest = max(longest, recipe.evaluation.max_new_tokens or 0)
    for name, spec in recipe.policies.items():
        try:
            limit = position_limit(spec) if name in readable else None
        except ValueError as error:
            yield f"policies.{name}.model: {error}."
            continue
        if limit is not None and prompt + longest > limit:
            yield (
                f"policies.{name}: the longest prompt ({prompt} tokens) and max_new_tokens = {longest} need "
                f"{prompt + longest} positions; '{spec.model}' has {limit}. Lower max_new_tokens or max_prompt_tokens."
            )


def _too_many(recipe: Recipe, readable: Collection[str]) -> Iterator[str]:
    """Parts that read more of the likeliest tokens than all policies have in common."""
    asked = {name: detail.top_k for name, detail in recipe.details().items() if detail.top_k}
    try:
        sizes = [vocabulary_size(recipe.policies[name]) for name in readable] if asked else []
    except ValueError:  # said already: the configuration cannot be read
        return
    for name, top_k in asked.items():
        if sizes and top_k > min(sizes):
            yield f"top_k of '{name}': {top_k} of a vocabulary of {min(sizes)}. Lower it."


def load_policies(recipe: Recipe, *, idle: Collection[str] = (), longest: int = 0) -> dict[str, Policy]:
    """Load every policy that is not idle, followers as copies of those they follow, all on their common vocabulary.

    Weights that no policy learns are in memory once: followers share those beside the adapters of the policy they
    follow, and a frozen policy those of a live one with adapters that was loaded alike. Engines that score are started
    (or reached), and tried on a row of `longest` tokens.
    """
    mistakes: list[str] = []
    policies: dict[str, Policy] = {}
    with ExitStack() as undo:
        undo.callback(close_all, policies)  # whatever goes wrong: a mistake, Ctrl-C, too little memory
        for name, spec in recipe.policies.items():
            if spec.follows is None and name not in idle and twin_of(recipe, name) is None:
                try:
                    if spec.engine is None:
                        policies[name] = load_policy(name, spec, live=name in recipe.learners, seed=recipe.seed)
                    else:
                        top_k = recipe.details().get(name, Detail()).top_k
                        policies[name] = load_served(name, spec, longest=longest, top_k=top_k)
                except ValueError as error:
                    mistakes.append(f"policies.{name}: {error}.")
        if mistakes:
            raise RecipeError(mistakes, recipe.name)
        for name, spec in recipe.policies.items():
            if spec.follows is not None:
                copy = policies[spec.follows].frozen_copy(name)
            elif name not in policies and name not in idle:
                copy = policies[str(twin_of(recipe, name))].frozen_copy(name, adapters=False)
            else:
                continue
            policies[name] = replace(copy, micro_batch_tokens=spec.micro_batch_tokens)
        sizes = [vocabulary_size(recipe.policies[name]) for name in idle]  # their scores are over it as well
        common = min([*sizes, *(policy.vocabulary for policy in policies.values())])
        for policy in policies.values():
            policy.vocabulary = common
        undo.pop_all()
    return {name: policies[name] for name in recipe.policies if name in policies}


def close_all(policies: Mapping[str, Policy]) -> None:
    """Stop the engines of all policies, even where one fails at that; its error is raised then."""
    with ExitStack() as stack:
        for policy in policies.values():
            stack.callback(policy.close)


def longest_row(recipe: Recipe, inputs: Inputs) -> int:
    """Tokens of the longest prompt to train on and the longest completion together."""
    return max(map(len, inputs.prompts.ids), default=0) + getattr(recipe.sampler, "max_new_tokens", 0)


def twin_of(recipe: Recipe, name: str) -> str | None:
    """The live policy with adapters whose model, without them, is that of a frozen policy; None where there is none."""
    spec = recipe.policies[name]
    if name in recipe.learners or spec.follows is not None:
        return None
    for live in recipe.learners:
        other = recipe.policies.get(live)
        if other and other.lora and replace(other, lora=None, micro_batch_tokens=spec.micro_batch_tokens) == spec:
            return live
    return None


def prompt_stream(recipe: Recipe, inputs: Inputs) -> PromptStream:
    """The endless prompts of a run, shuffled or by its curriculum."""
    return PromptStream(inputs.prompts, seed=recipe.seed, curriculum=recipe.curriculum)
