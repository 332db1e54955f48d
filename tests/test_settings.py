"""Every number among the settings of loss parts: its default, the last allowed values, the first that are not."""

import math
from dataclasses import fields

import pytest
from pydantic import ValidationError

from grpo_kit.advantages import ADVANTAGES
from grpo_kit.commands.snippet import example
from grpo_kit.roles import ROLES

ABOVE = 1e-9
"""A little beyond an edge that itself is allowed, or inside one that is not."""
SETTINGS = {
    "advantages.group_mean.eps": (1e-6, [0.0, 0.5], [-ABOVE], {"scale": "group"}),
    "advantages.max_rl.eps": (1e-6, [ABOVE, 2.0], [0.0], {}),
    "advantages.pass_at_k.k": (None, [2, 9], [1], {}),
    "advantages.reinforce_pp.gamma": (1.0, [ABOVE, 1.0], [0.0, 1 + ABOVE], {}),
    "advantages.reinforce_pp.eps": (1e-8, [0.0], [-ABOVE], {}),
    "advantages.reinforce_pp_baseline.eps": (1e-8, [0.0], [-ABOVE], {}),
    "advantages.reinforce_pp_baseline.shift": (False, [True], [1], {}),
    "advantages.ema_baseline.decay": (0.9, [0.0, 1 - ABOVE], [-ABOVE, 1.0], {}),
    "advantages.per_component.eps": (1e-6, [0.0, 0.5], [-ABOVE], {}),
    "surrogates.clip.low": (0.2, [0.0, 1 - ABOVE], [-ABOVE, 1.0], {}),
    "surrogates.clip.high": (0.2, [0.0, 5.0], [-ABOVE], {}),
    "surrogates.clip.cap": (None, [1.2 + ABOVE], [1.2], {"high": 0.2}),
    "surrogates.cispo.high": (5.0, [1.0, 9.0], [0.0, 1 - ABOVE], {}),
    "surrogates.cispo.low": (None, [0.0, 1.0], [-ABOVE, 1 + ABOVE], {}),
    "surrogates.sapo.tau_positive": (1.0, [ABOVE], [0.0], {}),
    "surrogates.sapo.tau_negative": (1.05, [ABOVE], [0.0], {}),
    "surrogates.gmpo.low": (0.4, [0.0], [-ABOVE], {}),
    "surrogates.gmpo.high": (0.4, [0.0], [-ABOVE], {}),
    "surrogates.dppo.low": (0.15, [0.0], [-ABOVE], {}),
    "surrogates.dppo.high": (0.15, [0.0], [-ABOVE], {}),
    "surrogates.dppo.cap": (20.0, [1 + ABOVE], [1.0], {}),
    "corrections.importance_weight.window": (None, [1, 7], [0], {"level": "window"}),
    "corrections.importance_weight.low": (0.0, [0.0, 1.0], [-ABOVE, 1 + ABOVE], {}),
    "corrections.importance_weight.high": (2.0, [1.0, math.inf], [1 - ABOVE], {}),
    "corrections.importance_weight.temper": (1.0, [0.0, 1.0], [-ABOVE, 1 + ABOVE], {"action": "mask"}),
    "corrections.divergence_mask.window": (None, [1, 7], [0], {"level": "window", "high": 0.1}),
    "corrections.divergence_mask.low": (None, [0.0, -3.0], [ABOVE], {"metric": "k1", "high": 0.1}),
    "corrections.divergence_mask.high": (None, [0.0, math.inf], [-ABOVE], {"metric": "k1", "low": -0.5}),
    "corrections.divergence_mask.only_negative": (False, [True], [1], {"high": 0.1}),
    "divergences.forward_kl.temperature": (1.0, [ABOVE, 4.0], [0.0], {}),
    "divergences.reverse_kl.temperature": (1.0, [ABOVE, 4.0], [0.0], {}),
    "divergences.jsd.beta": (0.5, [0.0, 1.0], [-ABOVE, 1 + ABOVE], {}),
    "divergences.jsd.temperature": (1.0, [ABOVE, 4.0], [0.0], {}),
    "divergences.top_k_cross_entropy.k": (None, [1, 64], [0], {}),
    "weightings.fixed_length.length": (None, [1, 48], [0], {}),
}
"""`role.kind.key`: the default (None: there is none), values at the edge, values beyond it, what must stand beside."""
TABLES = ("advantages", "surrogates", "corrections", "divergences", "weightings")


def test_every_number_is_here():
    found = {
        f"{role}.{kind}.{field.name}"
        for role in TABLES
        for kind, part in ROLES[role].built_in.items()
        for field in fields(part)
        if any(word in str(field.type) for word in ("int", "float", "bool"))
    }
    assert found == set(SETTINGS)


@pytest.mark.parametrize("place", SETTINGS)
def test_the_default_and_the_edges(place):
    role, kind, key = place.split(".")
    part, (default, allowed, refused, beside) = ROLES[role].built_in[kind], SETTINGS[place]
    if default is not None:
        assert getattr(part(**beside), key) == default
    for value in allowed:
        assert getattr(part(**beside, **{key: value}), key) == value
    for value in refused:
        with pytest.raises(ValidationError, match=key):
            part(**beside, **{key: value})


def test_which_advantages_are_zero_in_a_group_of_one():
    comparing = {kind for kind in ADVANTAGES.built_in if getattr(example(ADVANTAGES, kind), "compares_rows", False)}
    assert comparing == set(ADVANTAGES.built_in) - {"reinforce_pp", "remax", "ema_baseline", "teacher_log_ratio"}
