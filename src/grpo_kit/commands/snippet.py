"""A piece of a recipe file that uses a kind, ready to paste."""

import tomllib
from typing import Any

import tomli_w
from pydantic_core import PydanticCustomError

from grpo_kit.commands.keys import Key, keys_of
from grpo_kit.explain.options import toml
from grpo_kit.parts import Role

PLACES = {
    "data": "data",
    "samplers": "sampler",
    "engines": "sampler.engine",
    "rewards": "rewards.{kind}",
    "selections": "selection.rule",
    "advantages": "learners.small.terms.policy.advantage",
    "ratios": "learners.small.terms.policy.ratio",
    "surrogates": "learners.small.terms.policy.surrogate",
    "corrections": "learners.small.terms.policy.correction",
    "divergences": "learners.small.terms.kl.divergence",
    "terms": "learners.small.terms.{kind}",
    "weightings": "learners.small.weighting",
}
"""Where a kind of each role stands in a recipe whose learner is called `small`."""

EXAMPLES: dict[str, Any] = {
    "policy": "small",
    "student": "small",
    "teacher": "large",
    "reference": "large",
    "to": "large",
    "length": 48,
    "max_new_tokens": 48,
    "samples": 8,
    "divergence_mask.high": 0.01,
    "top_k_cross_entropy.k": 20,
    "keep": 4,
    "top": 2,
    "bottom": 2,
    "path": "rows.jsonl",
    "url": "http://localhost:8000",
    "grading": {"kind": "correctness"},
    "product.of": [{"kind": "importance_weight"}, {"kind": "divergence_mask", "high": 0.01}],
    "weighted_sum.of": [
        {"weight": 0.5, "advantage": {"kind": "group_mean"}},
        {"weight": 0.5, "advantage": {"kind": "opo"}},
    ],
    "mixed.of": [
        {"share": 0.5, "sampler": {"kind": "transformers", "policy": "small", "samples": 1, "max_new_tokens": 48}},
        {"share": 0.5, "sampler": {"kind": "data_rows", "policy": "small", "max_new_tokens": 48}},
    ],
    "grouped.of": [
        {"kind": "transformers", "policy": "small", "samples": 12, "max_new_tokens": 48},
        {"kind": "transformers", "policy": "large", "samples": 2, "max_new_tokens": 48},
    ],
    "hinted.hints": {"kind": "transformers", "policy": "large", "samples": 14, "max_new_tokens": 4},
    "hinted.of": {"kind": "transformers", "policy": "small", "samples": 14, "max_new_tokens": 48},
    "buffer": "buffers/mine",
    "tasks": {"basic_arithmetic": {}},
    "function": "my_rewards:brevity",
}
"""Values of keys without a default that say more than any value of their type, by key or `kind.key`."""

BY_TYPE: dict[str, Any] = {"integer": 1, "number": 1.0, "text": "text", "true or false": True, "list": [], "table": {}}


def snippet(role: Role, kind: str) -> str:
    """A table with the required keys of a kind, and its other keys with their defaults as comments."""
    part = role.load(kind)
    keys = keys_of(part) if isinstance(part, type) else ()
    given = _settings(role, kind, keys)
    place = PLACES.get(role.name, role.name).format(kind=kind)
    lines = [f"[{place}]", f'kind = "{kind}"']
    tables: list[str] = []
    for key in keys:
        if isinstance(given.get(key.name), dict) and "kind" not in given[key.name]:
            lines.append(f"{key.name} = {toml(given[key.name])}")
        elif key.name in given and isinstance(given[key.name], dict):
            tables += ["", f"[{place}.{key.name}]", tomli_w.dumps(given[key.name]).rstrip()]
        elif isinstance(given.get(key.name), list) and given[key.name] and isinstance(given[key.name][0], dict):
            lines += [f"{key.name} = [", *(f"    {toml(item)}," for item in given[key.name]), "]"]
        elif key.name in given:
            lines.append(tomli_w.dumps({key.name: given[key.name]}).rstrip())
        elif key.default:
            lines.append(f"# {key.name} = {key.default}")
    return "\n".join([*lines, *tables])


def example(role: Role, kind: str) -> Any:
    """A part of a kind with example settings; ValueError where none can be made."""
    part = role.load(kind)
    settings = _settings(role, kind, keys_of(part)) if isinstance(part, type) else {}
    return role.read({"kind": kind, **settings})


def _settings(role: Role, kind: str, keys: tuple[Key, ...]) -> dict[str, Any]:
    """Values for the keys that must be given; a key that is only needed with these, too."""
    given = {key.name: _value(kind, key) for key in keys if key.default is None}
    optional = [key.name for key in keys if key.default == "" and key.name in EXAMPLES]
    for more in ([], *([name] for name in optional), optional):
        settings = given | {name: EXAMPLES[name] for name in more}
        try:
            role.read({"kind": kind, **settings})
        except PydanticCustomError:
            continue
        return settings
    return given


def _value(kind: str, key: Key) -> Any:
    if f"{kind}.{key.name}" in EXAMPLES:
        return EXAMPLES[f"{kind}.{key.name}"]
    if key.role is not None:
        kind = next(iter(key.role.built_in))
        return {"kind": kind, **_settings(key.role, kind, keys_of(key.role.built_in[kind]))}
    if key.name in EXAMPLES:
        return EXAMPLES[key.name]
    first = key.type.split(" or ")[0].split(",")[0]
    if first.startswith('"'):
        return tomllib.loads(f"value = {first}")["value"]
    least = [piece for piece in key.type.split(", ") if piece.startswith(("at least ", "above "))]
    value = BY_TYPE.get(first.split(" of ")[0], "text")
    if least and isinstance(value, int | float):
        value = type(value)(float(least[0].rsplit(" ", 1)[1]) + (1 if least[0].startswith("above") else 0))
    return value
