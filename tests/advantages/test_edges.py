"""Small things that a fault could hide in: one token in a group, nested parts, words of formulas and errors."""

import pytest
import torch

from grpo_kit import OPO, GroupMean, PerComponent, ReinforcePP, ReinforcePPBaseline, WeightedSum
from grpo_kit.advantages import ADVANTAGES, Summand
from grpo_kit.advantages.live import is_live
from grpo_kit.commands.snippet import example
from grpo_kit.memory import Memory
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
GROUP = torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize("kind", [kind for kind, part in ADVANTAGES.built_in.items() if not is_live(part)])
def test_a_batch_without_rows_gives_none(kind):
    none, mask = torch.zeros(0), torch.zeros(0, 3, dtype=torch.bool)
    offers = {"mask": mask, "token_rewards": torch.zeros(0, 3), "components": {"a": none}, "weights": {"a": 1.0}}
    found = Memory().call("", example(ADVANTAGES, kind), none, none.long(), **offers, greedy_rewards=none)
    assert len(found) == 0


def test_opo_with_a_single_token_in_the_group():
    """The baseline is the reward of the one row with a token: 1 x 1 / 1."""
    mask = torch.tensor([[True], [False]])
    assert OPO()(torch.tensor([1.0, 0.0]), GROUP, mask=mask).tolist() == [0.0, -1.0]


def test_a_component_alone_has_weight_one_for_the_parts_inside():
    components = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0, 3.0])}
    given = {"components": components, "weights": {"a": 0.5, "b": 2.0}}
    total = 0.5 * components["a"] + 2 * components["b"]
    flat = PerComponent(advantage=GroupMean(), scale="none")
    nested = PerComponent(advantage=flat, scale="none")
    found = [Memory().call("", part, total, GROUP, **given) for part in (flat, nested)]
    torch.testing.assert_close(found[1], found[0], **EXACT)
    assert found[0].abs().sum() > 1


def test_the_first_unknown_component_is_named():
    part = WeightedSum(of=(Summand(advantage=GroupMean(), rewards={"first": 1.0, "second": 1.0}),))
    with pytest.raises(ValueError, match=r"no reward component 'first' here\. Known: task"):
        Memory().call("", part, torch.ones(2), GROUP, components={"task": torch.ones(2)}, weights={"task": 1.0})


def test_formulas_leave_out_what_is_not_there():
    assert "{u - t}" not in ReinforcePP().formula
    assert "0.5^{u - t}" in ReinforcePP(gamma=0.5).formula
    assert r"a_i - \operatorname{mean}" in ReinforcePPBaseline(shift=True).formula
    assert r"a_i - \operatorname{mean}" not in ReinforcePPBaseline().formula
    one, two = (WeightedSum(of=(Summand(weight=weight, advantage=GroupMean()),)).formula for weight in (1.0, 2.0))
    assert not one.startswith("1")
    assert two == rf"2 \cdot {one}"
