"""Everything a recipe needs from the world, loaded and checked before the first step."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from grpo_kit.checks import shared_vocabulary
from grpo_kit.config import RecipeError
from grpo_kit.data import Data, PromptSet, PromptStream, encode_prompts
from grpo_kit.policies import Policy, load_policy, load_tokenizer
from grpo_kit.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What can be checked without loading weights: the tokenizer of the sampling policy, and the prompts.

    Attributes:
        tokenizers: of every policy with a model of its own.
        prompts: to train on.
        questions: to evaluate on, or None without evaluation.
    """

    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    prompts: PromptSet
    questions: PromptSet | None


def load_inputs(recipe: Recipe) -> Inputs:
    """Load tokenizers and data; RecipeError with all that is wrong with them."""
    mistakes: list[str] = []
    tokenizers: dict[str, PreTrainedTokenizerBase] = {}
    for name, spec in recipe.policies.items():
        if spec.model is not None:
            try:
                tokenizers[name] = load_tokenizer(spec)
            except ValueError as error:
                mistakes.append(f"policies.{name}.model: {error}.")
    mistakes += shared_vocabulary(tokenizers)
    tokenizer = tokenizers.get(getattr(recipe.sampler, "policy", "")) or next(iter(tokenizers.values()), None)
    needed = sorted({column for reward in recipe.rewards.values() for column in getattr(reward, "columns", ())})
    sets: list[PromptSet | None] = []
    sources: list[tuple[str, Data, int | None]] = [("data", recipe.data, None)]
    if recipe.evaluation is not None:
        sources.append(("evaluation.data", recipe.evaluation.data, recipe.evaluation.questions))
    for place, data, limit in sources:
        try:
            rows = data()
            limits = {"max_tokens": recipe.max_prompt_tokens, "needed": needed, "limit": limit}
            sets.append(encode_prompts(rows, tokenizer, **limits) if tokenizer else None)
        except ValueError as error:
            sets.append(None)
            mistakes.append(f"{place}: {error}")
    prompts = sets[0]
    if mistakes or prompts is None:
        raise RecipeError(mistakes, recipe.name)
    return Inputs(tokenizers=tokenizers, prompts=prompts, questions=sets[1] if len(sets) > 1 else None)


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
