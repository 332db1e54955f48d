"""Policies that do not fit their use, or one another."""

from collections.abc import Iterator, Mapping

from transformers import PreTrainedTokenizerBase

from grpo_kit.checks.findings import Finding, names
from grpo_kit.policies.served import refusals
from grpo_kit.recipe import Recipe
from grpo_kit.samplers.mixed import places_of, writers


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
        if spec.lora is not None and name not in recipe.learners:
            yield (
                f"policies.{name}.lora: '{name}' is frozen, and only a live policy has adapters. Remove it, or add "
                f"[learners.{name}].",
                f"learners.{name}",
            )
    yield from _served(recipe)
    yield from _addresses(recipe)
    read = {policy for policies in recipe.readers().values() for policy in policies}
    for name in recipe.policies:
        if name not in read | set(recipe.learners):
            unused = f"policies.{name}: no sampler, reward or learner uses it. Remove it, or use it."
            yield unused, f"policies.{name}.model", f"learners.{name}", "sampler.policy", "rewards", "learners.*.terms"


def _served(recipe: Recipe) -> Iterator[Finding]:
    """Policies that an engine scores, where they learn, write, or are asked for what no engine says."""
    details = recipe.details()
    temperatures = {getattr(own, "temperature", 1.0) for own in places_of(recipe.sampler).values()}
    for name, spec in recipe.policies.items():
        if spec.engine is None:
            continue
        here = f"policies.{name}.engine"
        if name in recipe.learners:
            learns = f"'{name}' learns, and this engine scores frozen policies alone"
            yield f"{here}: {learns}. Remove it; a sampler of kind 'vllm' has an engine of its own.", f"learners.{name}"
        elif name in writers(recipe.sampler):
            writes = f"'{name}' writes rows, and this engine scores alone, without weights here"
            yield f"{here}: {writes}. Remove it, or let another policy write.", "sampler"
        elif name in details:
            for temperature in sorted(temperatures):
                for refusal in refusals(details[name], temperature):
                    yield f"{here}: {refusal}, or remove it.", "sampler", "learners.*.terms"
            refresh = getattr(recipe.sampler, "refresh", None)
            if getattr(refresh, "overlap_below", None) is not None:
                hidden = "the overlap with it is measured on whole distributions, which it does not give"
                yield f"{here}: {hidden}. Use refresh.every, or remove it.", "sampler.refresh"


def _addresses(recipe: Recipe) -> Iterator[Finding]:
    """Servers that are to have the weights of two policies."""
    engines = [
        (f"{place}.engine", getattr(own, "policy", ""), getattr(own, "engine", None))
        for place, own in places_of(recipe.sampler).items()
    ]
    engines += [(f"policies.{name}.engine", name, spec.engine) for name, spec in recipe.policies.items()]
    owners: dict[str, str] = {}
    for place, name, engine in engines:
        url = getattr(engine, "url", None)
        if url is not None and (first := owners.setdefault(url, name)) != name:
            both = f"{url} is to have the weights of '{first}' and of '{name}', and a server has those of one model"
            yield f"{place}.url: {both}. Start another server for '{name}'.", "sampler", "policies.*.engine"


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
