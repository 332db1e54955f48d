"""Everything a recipe needs from the world, loaded and checked before the first step."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from grpo_kit.checks import shared_vocabulary
from grpo_kit.config import RecipeError, examine
from grpo_kit.data import Data, PromptSet, PromptStream, encode_prompts
from grpo_kit.policies import Policy, load_policy, load_tokenizer
from grpo_kit.policies.load import device_of, position_limit
from grpo_kit.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What can be checked without loading weights: tokenizers and prompts.

    Attributes:
        tokenizers: of every policy with a model of its own.
        prompts: to train on.
        questions: to evaluate on, or None without evaluation.
    """

    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    prompts: PromptSet
    questions: PromptSet | None


def open_recipe(name: str, *, settings: Sequence[str] = (), allow_code: bool = False) -> tuple[Recipe, Inputs]:
    """Read a recipe file, its tokenizers and its data; RecipeError lists the mistakes of all three at once."""
    examined = examine(name, settings=settings, allow_code=allow_code)
    inputs, found = _find_inputs(examined.recipe, examined.removed) if examined.recipe else (None, [])
    mistakes = [*examined.mistakes, *found]
    if mistakes or examined.recipe is None or inputs is None:
        raise RecipeError(mistakes, name)
    return examined.recipe, inputs


def load_inputs(recipe: Recipe) -> Inputs:
    """Load tokenizers and data of a recipe; RecipeError with all that is wrong with them."""
    inputs, mistakes = _find_inputs(recipe, {})
    if mistakes or inputs is None:
        raise RecipeError(mistakes, recipe.name)
    return inputs


def _find_inputs(recipe: Recipe, removed: Mapping[str, object]) -> tuple[Inputs | None, list[str]]:
    """What a recipe names in the world, and what is wrong with it; places taken out for a mistake are left alone."""
    tokenizers, mistakes = _tokenizers(recipe)
    tokenizer = tokenizers.get(getattr(recipe.sampler, "policy", "")) or next(iter(tokenizers.values()), None)
    needed = {column for reward in recipe.rewards.values() for column in getattr(reward, "columns", ())}
    limits = {
        "max_tokens": recipe.max_prompt_tokens,
        "needed": () if any(place.startswith("rewards.") for place in removed) else sorted(needed),
    }
    sources: list[tuple[str, Data, int | None]] = [("data", recipe.data, None)]
    if recipe.evaluation is not None:
        sources.append(("evaluation.data", recipe.evaluation.data, recipe.evaluation.questions))
    sets: dict[str, PromptSet] = {}
    failed: set[str] = set()
    for place, data, limit in sources:
        if any(gone == place or gone.startswith(f"{place}.") for gone in removed):
            continue
        if place != "data" and "data" in failed and getattr(data, "path", data) == getattr(recipe.data, "path", None):
            continue  # the same file or hub name: one mistake, one try
        try:
            rows = data()
            if tokenizer is not None:
                sets[place] = encode_prompts(rows, tokenizer, limit=limit, **limits)
        except ValueError as error:
            failed.add(place)
            mistakes.append(f"{place}: {error}")
    mistakes += _too_long(recipe, sets, tokenizers)
    if mistakes or "data" not in sets:
        return None, mistakes
    return Inputs(tokenizers=tokenizers, prompts=sets["data"], questions=sets.get("evaluation.data")), mistakes


def _tokenizers(recipe: Recipe) -> tuple[dict[str, PreTrainedTokenizerBase], list[str]]:
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
    return tokenizers, [*mistakes, *shared_vocabulary(tokenizers)]


def _too_long(recipe: Recipe, sets: Mapping[str, PromptSet], readable: Collection[str]) -> Iterator[str]:
    """Policies without positions enough for the longest prompt and completion together."""
    prompt = max((len(ids) for prompts in sets.values() for ids in prompts.ids), default=0)
    longest = getattr(recipe.sampler, "max_new_tokens", 0)
    if recipe.evaluation is not None:
        longest = max(longest, recipe.evaluation.max_new_tokens or 0)
    for name, spec in recipe.policies.items():
        limit = position_limit(spec) if name in readable else None
        if limit is not None and prompt + longest > limit:
            yield (
                f"policies.{name}: the longest prompt ({prompt} tokens) and max_new_tokens = {longest} need "
                f"{prompt + longest} positions; '{spec.model}' has {limit}. Lower max_new_tokens or max_prompt_tokens."
            )


def load_policies(recipe: Recipe) -> dict[str, Policy]:
    """Load every policy, followers as copies of those they follow, all on their common vocabulary."""
    mistakes: list[str] = []
    policies: dict[str, Policy] = {}
    for name, spec in recipe.policies.items():
        if spec.follows is None:
            try:
                policies[name] = load_policy(name, spec, live=name in recipe.learners)
            except ValueError as error:
                mistakes.append(f"policies.{name}: {error}.")
    if mistakes:
        raise RecipeError(mistakes, recipe.name)
    for name, spec in recipe.policies.items():
        if spec.follows is not None:
            original = policies[spec.follows]
            model = deepcopy(original.model).requires_grad_(False)
            policies[name] = replace(original, name=name, model=model, micro_batch_tokens=spec.micro_batch_tokens)
    common = min(policy.vocabulary for policy in policies.values())
    for policy in policies.values():
        policy.vocabulary = common
    return {name: policies[name] for name in recipe.policies}


def prompt_stream(recipe: Recipe, inputs: Inputs) -> PromptStream:
    """The endless shuffled prompts of a run."""
    return PromptStream(inputs.prompts, seed=recipe.seed)
