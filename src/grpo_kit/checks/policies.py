"""Policies that do not fit their use, or one another."""

from collections.abc import Iterator, Mapping

from transformers import PreTrainedTokenizerBase

from grpo_kit.checks.findings import Finding, names
from grpo_kit.recipe import Recipe


def of_policies(recipe: Recipe) -> Iterator[Finding]:
    """Mistakes about which policy learns, follows, or is of no use."""
    if not recipe.learners:
        yield (
            "learners: there is none, so nothing would be trained. Add a table [learners.NAME], NAME a policy.",
            "learners",
        )
    for name in recipe.learners:
        if name in recipe.policies and recipe.policies[name].dtype == "float16":
            yield (f"policies.{name}.dtype: float16 loses small gradients of a live policy. Use bfloat16 or float32.",)
        if name in recipe.policies and recipe.policies[name].follows is not None:
            yield (f"learners.{name}: policy '{name}' is a follower and cannot learn. Give it a model of its own.",)
    for name, spec in recipe.policies.items():
        if spec.follows is not None and spec.follows not in recipe.learners:
            live = names(recipe.learners)
            yield (
                f"policies.{name}.follows: '{spec.follows}' is not a live policy. Live: {live}.",
                f"learners.{spec.follows}",
            )
    read = {policy for policies in recipe.readers().values() for policy in policies}
    for name in recipe.policies:
        if name not in read | set(recipe.learners):
            unused = f"policies.{name}: no sampler, reward or learner uses it. Remove it, or use it."
            yield unused, f"policies.{name}.model", f"learners.{name}", "sampler.policy", "rewards", "learners.*.terms"


def shared_vocabulary(tokenizers: Mapping[str, PreTrainedTokenizerBase]) -> list[str]:
    """Policies that share rollouts must mean the same by each id; a mistake for each that differs from the first."""
    found: list[str] = []
    first_name, *others = tokenizers or [""]
    for name in others:
        first, own = tokenizers[first_name].get_vocab(), tokenizers[name].get_vocab()
        differing = sorted(token for token in first.keys() | own.keys() if first.get(token) != own.get(token))
        if differing:
            example = differing[0]
            found.append(
                f"policies.{name}: its tokenizer differs from that of '{first_name}' in {len(differing)} of "
                f"{len(first.keys() | own.keys())} tokens (for example {example!r}: id {first.get(example)} against "
                f"{own.get(example)}). Policies that share rollouts need the same tokenizer."
            )
    return found
