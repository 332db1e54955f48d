"""Advantages of components and of advantages against loops, with what they hand on and what they refuse."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

import tiny
from advantages.loops import deviation, flat, mean
from grpo_kit import (
    OPO,
    AdamW,
    Component,
    EMABaseline,
    EqualRows,
    GroupMean,
    Learner,
    LeaveOneOut,
    PerComponent,
    PolicyGradient,
    Reinforce,
    ReinforcePP,
    ReMax,
    Rewards,
    Summand,
    WeightedSum,
    learner_batch,
)
from grpo_kit.advantages import ADVANTAGES
from grpo_kit.memory import Memory
from laws.data import normal
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
NAN = float("nan")
GROUPS = torch.tensor([0, 0, 0, 1, 1])
RIGHT, SHORT = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0], [3.0, 9.0, 3.0, 5.0, 5.0]], dtype=torch.float64)
COMPONENTS = {"right": RIGHT, "short": SHORT}
WEIGHTS = {"right": 1.0, "short": 0.1}
MASK = torch.arange(3) < torch.tensor([1, 3, 3, 2, 2])[:, None]


def total(components, weights):
    return sum(weight * components[name] for name, weight in weights.items())


def call(part, components=COMPONENTS, weights=WEIGHTS, groups=GROUPS, mask=MASK, rewards=None, memory=None, **more):
    rewards = total(components, weights) if rewards is None else rewards
    given_to = {"components": components, "weights": weights, "mask": mask} | more
    return (memory or Memory()).call("here", part, rewards, groups, **given_to)


def gdpo(components, weights, groups, eps):
    """GDPO's equations row by row: each component over its group's deviation, summed, normalized over the batch."""
    rows = range(len(groups))
    sums = [0.0] * len(groups)
    for name, weight in weights.items():
        values = components[name].tolist()
        for row in rows:
            own = [values[other] for other in rows if groups[other] == groups[row] and values[other] == values[other]]
            if values[row] == values[row] and not flat(own):
                sums[row] += weight * (values[row] - mean(own)) / (deviation(own) + 1e-6)
    if flat(sums):
        return torch.zeros(len(groups))
    return torch.tensor([(value - mean(sums)) / (deviation(sums) + eps) for value in sums])


@given(st.data())
def test_per_component_is_gdpo(data):
    count = data.draw(st.integers(2, 8))
    groups = data.draw(st.lists(st.sampled_from([4, 2]), min_size=count, max_size=count))
    components = {name: normal(data.draw, count).round(decimals=0) for name in ("a", "b", "c")}
    components["b"] = torch.where(components["c"] > 0.5, NAN, components["b"])  # abstains there
    weights = {"a": 1.0, "b": -0.5, "c": 2.0}
    found = call(
        PerComponent(eps=0.01),
        components,
        weights,
        torch.tensor(groups),
        rewards=torch.zeros(count),
        mask=torch.ones(count, 2).bool(),
    )
    torch.testing.assert_close(found, gdpo(components, weights, groups, 0.01), rtol=1e-8, atol=1e-8)


def test_per_component_without_scale_is_the_sum_of_advantages():
    found = call(PerComponent(advantage=OPO(), scale="none"))
    right, short = (OPO()(values, GROUPS, mask=MASK) for values in COMPONENTS.values())
    torch.testing.assert_close(found, right + 0.1 * short, **EXACT)
    assert (right != GroupMean()(COMPONENTS["right"], GROUPS)).any()  # the mask was handed on


def test_a_component_does_not_drown_in_the_spread_of_another():
    """Normalize, then sum: multiplying a component by 1000 changes nothing; sum, then normalize: everything."""
    louder = COMPONENTS | {"short": 1000 * COMPONENTS["short"]}
    quiet, loud = (call(PerComponent(advantage=GroupMean(scale="group", eps=0.0)), c) for c in (COMPONENTS, louder))
    torch.testing.assert_close(quiet, loud, **EXACT)
    summed, drowned = (GroupMean(scale="group")(total(c, WEIGHTS), GROUPS) for c in (COMPONENTS, louder))
    assert (summed - drowned).abs().max() > 1


def test_per_component_asks_for_nothing_that_its_advantage_does_not():
    given = {"components": COMPONENTS, "weights": WEIGHTS, "state": {}}
    rewards = total(COMPONENTS, WEIGHTS)
    alone, _ = PerComponent()(rewards, GROUPS, **given)
    torch.testing.assert_close(alone, call(PerComponent()), **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_components_that_cancel_leave_no_noise(dtype):
    a = torch.tensor([0.1, 0.7, 0.35, 0.9, 0.2], dtype=dtype)
    components, ones = {"a": a, "b": 1 - a}, {"a": 1.0, "b": 1.0}
    assert (call(PerComponent(eps=0.0), components, ones) == 0).all()
    nearly = {"a": 1.0, "b": 0.999}  # less than NOISE would be noise; this is a thousand times that
    found = call(PerComponent(eps=0.0), components, nearly)
    assert found.std() == pytest.approx(1.0, abs=1e-3)
    assert found.dtype == dtype


def by_token(rewards, groups, mask):
    """A reward that shrinks from token to token, less the group's mean, with numbers outside the mask to overlook."""
    row = GroupMean()(rewards, groups)[:, None]
    return torch.where(mask, row / torch.arange(1, 4), 1e3)


def test_an_advantage_a_token_is_scaled_by_its_deviation_over_the_tokens_written():
    rewards = torch.tensor([1.3, NAN, 0.4, 0.5, 1.5])
    found = call(PerComponent(advantage=by_token, eps=0.1), rewards=rewards)
    sums = sum(w * by_token(torch.where(rewards.isnan(), NAN, COMPONENTS[n]), GROUPS, MASK) for n, w in WEIGHTS.items())
    counted = [float(sums[row, t]) for row in (0, 2, 3, 4) for t in range(3) if MASK[row, t]]
    torch.testing.assert_close(found, sums / (deviation(counted) + 0.1), **EXACT)
    part = PerComponent(advantage=lambda rewards, groups: rewards[:, None].expand(-1, 3))
    with pytest.raises(ValueError, match="mask, the tokens written"):
        part(rewards, GROUPS, components=COMPONENTS, weights=WEIGHTS, state={})


def test_components_a_row_and_a_token_add_up():
    def only_short_by_token(rewards, groups, mask, weights):
        found = by_token(rewards, groups, mask)
        return found if "short" in weights else GroupMean()(rewards, groups)

    found = call(PerComponent(advantage=only_short_by_token, scale="none"))
    expected = GroupMean()(RIGHT, GROUPS)[:, None] + 0.1 * by_token(SHORT, GROUPS, MASK)
    torch.testing.assert_close(found, expected, **EXACT)


def test_a_row_without_reward_is_in_no_component():
    rewards = torch.tensor([NAN, 1.0, 1.0, 0.5, 1.5])
    found = call(PerComponent(), rewards=rewards)
    assert found[0] == 0
    alone = call(PerComponent(), {k: v[1:] for k, v in COMPONENTS.items()}, groups=GROUPS[1:], mask=MASK[1:])
    torch.testing.assert_close(found[1:], alone, **EXACT)


OF_COMPONENTS = WeightedSum(of=(Summand(advantage=PerComponent(), rewards=WEIGHTS),))


@pytest.mark.parametrize("part", [PerComponent(), OF_COMPONENTS], ids=["per_component", "weighted_sum"])
@pytest.mark.parametrize(("status", "trained_on"), [("none", (0, 1, 2, 3)), ("timeout", (1, 2, 3))])
def test_a_reward_that_abstains_leaves_its_own_baseline_and_a_missing_one_takes_the_row_out(part, status, trained_on):
    right, short = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([NAN, 2.0, 5.0, 3.0])
    silent = Component(values=short, statuses=(status, "ok", "ok", "ok"))
    rows = tiny.rollouts([2, 1, 3, 2], [0, 0, 0, 0])
    experience = replace(
        tiny.experience(rows, {}, [tiny.policy()]), rewards=Rewards({"right": tiny.component(right), "short": silent})
    )
    terms = {"policy": PolicyGradient(advantage=part, surrogate=Reinforce())}
    learner = Learner(rewards=WEIGHTS, terms=terms, weighting=EqualRows(), optimizer=AdamW(lr=1e-3))
    batch = learner_batch.freeze("small", learner, experience, torch.ones(4, dtype=torch.bool), Memory())
    assert batch.numbers == trained_on

    of_group = GroupMean(scale="group")
    of_right = of_group(right[list(trained_on)], torch.zeros(len(trained_on), dtype=torch.long))
    of_short = of_group(short[1:], torch.zeros(3, dtype=torch.long))  # never with row 0
    total = of_right + 0.1 * torch.cat([torch.zeros(len(trained_on) - 3), of_short])
    found = batch.frozen["policy"]["advantages"][:, 0]
    torch.testing.assert_close(found, total / (total.std() + 1e-6), **EXACT)


def test_each_component_has_a_memory_of_its_own():
    part, memory = PerComponent(advantage=EMABaseline(decay=0.5), scale="none"), Memory()
    call(part, memory=memory)
    assert memory.states == {"here": {"right": pytest.approx(0.6), "short": pytest.approx(5.0)}}
    found = call(part, {name: values + 1 for name, values in COMPONENTS.items()}, memory=memory)
    torch.testing.assert_close(found, RIGHT + 1 - 0.6 + 0.1 * (SHORT + 1 - 5.0), **EXACT)
    # 0.5 x 0.6 + 0.5 x 1.6, and 0.5 x 5 + 0.5 x 6
    assert memory.states == {"here": {"right": pytest.approx(1.1), "short": pytest.approx(5.5)}}


def test_a_weighted_sum_is_the_sum_of_its_parts():
    part = WeightedSum(
        of=(
            Summand(weight=0.7, advantage=OPO()),
            Summand(weight=-2.0, advantage=LeaveOneOut(), rewards={"right": 0.5}),
            Summand(advantage=PerComponent(scale="none"), rewards={"short": 3.0}),
        )
    )
    expected = 0.7 * OPO()(total(COMPONENTS, WEIGHTS), GROUPS, mask=MASK)
    expected = expected - 2.0 * LeaveOneOut()(0.5 * COMPONENTS["right"], GROUPS)
    expected = expected + 3.0 * GroupMean(scale="group")(COMPONENTS["short"], GROUPS)
    torch.testing.assert_close(call(part), expected, **EXACT)


def test_rows_and_tokens_add_up():
    by_token = torch.where(MASK, normal(lambda _: 3, *MASK.shape), 0)
    part = WeightedSum(of=(Summand(weight=2.0, advantage=GroupMean()), Summand(advantage=ReinforcePP())))
    rewards = by_token.sum(1)
    found = call(part, rewards=rewards, token_rewards=by_token)
    tokens = ReinforcePP()(rewards, GROUPS, token_rewards=by_token, mask=MASK)
    torch.testing.assert_close(found, 2 * GroupMean()(rewards, GROUPS)[:, None] + tokens, **EXACT)


def test_each_summand_keeps_its_state_also_inside_another_sum():
    inner = WeightedSum(of=(Summand(advantage=EMABaseline(decay=0.5), rewards={"right": 1.0}),))
    part = WeightedSum(of=(Summand(advantage=GroupMean()), Summand(advantage=inner), Summand(advantage=EMABaseline())))
    memory = Memory()
    call(part, memory=memory)
    first = memory.states["here"]
    assert first == {"1": {"0": pytest.approx(0.6)}, "2": pytest.approx(1.1)}
    call(part, {name: values + 1 for name, values in COMPONENTS.items()}, memory=memory)
    # 0.5 x 0.6 + 0.5 x 1.6, and 0.9 x 1.1 + 0.1 x 2.2
    assert memory.states["here"] == {"1": {"0": pytest.approx(1.1)}, "2": pytest.approx(1.21)}
    assert first == {"1": {"0": pytest.approx(0.6)}, "2": pytest.approx(1.1)}  # an earlier state is not changed


def test_a_missing_component_is_left_out_of_a_summands_reward():
    components = {"right": torch.tensor([1.0, NAN, 0.0, NAN, NAN]), "short": torch.tensor([0.0, 2.0, NAN, 4.0, NAN])}
    own = {"right": 1.0, "short": 0.5}
    found = call(
        WeightedSum(of=(Summand(advantage=GroupMean(), rewards=own),)), components, own, rewards=torch.zeros(5)
    )
    # rewards 1, 1, 0 in the first group; 2 alone in the second
    torch.testing.assert_close(found, torch.tensor([1 / 3, 1 / 3, -2 / 3, 0.0, 0.0]), **EXACT)
    absent = torch.tensor([NAN, 0.0, 0.0, 0.0, 0.0])
    found = call(WeightedSum(of=(Summand(advantage=GroupMean(), rewards=own),)), components, own, rewards=absent)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5, -0.5, 0.0, 0.0]), **EXACT)


def test_a_reward_that_the_learner_lacks_is_named():
    part = WeightedSum(of=(Summand(advantage=GroupMean(), rewards={"rigth": 1.0}),))
    with pytest.raises(ValueError, match=r"'rigth'.*Known: right, short"):
        call(part)


@pytest.mark.parametrize("inner", [ReMax(), ReinforcePP(), WeightedSum(of=(Summand(advantage=ReMax()),))], ids=repr)
def test_what_only_the_whole_reward_has_is_refused_of_components(inner):
    with pytest.raises(ValidationError, match=r"needs (greedy|token)_rewards"):
        PerComponent(advantage=inner)
    with pytest.raises(ValidationError, match=r"needs (greedy|token)_rewards"):
        Summand(advantage=inner, rewards={"right": 1.0})
    assert Summand(advantage=inner).rewards is None


def test_idle_settings_are_refused():
    with pytest.raises(ValidationError, match="weight 0"):
        Summand(weight=0.0, advantage=GroupMean())
    with pytest.raises(ValidationError, match="eps"):
        PerComponent(scale="none", eps=0.1)
    with pytest.raises(ValidationError, match="of"):
        WeightedSum(of=())
    with pytest.raises(ValidationError, match="rewards"):
        Summand(advantage=GroupMean(), rewards={})


def test_a_sum_compares_rows_only_if_all_its_summands_do():
    with_greedy = WeightedSum(of=(Summand(advantage=GroupMean()), Summand(advantage=ReMax())))
    assert not with_greedy.compares_rows
    assert WeightedSum(of=with_greedy.of[:1]).compares_rows
    assert PerComponent().compares_rows
    assert not PerComponent(advantage=EMABaseline()).compares_rows


def test_a_sum_is_read_from_a_recipes_table():
    summands = [{"weight": 0.5, "advantage": {"kind": "opo"}, "rewards": {"right": 1}}]
    read = ADVANTAGES.read({"kind": "weighted_sum", "of": summands})
    assert read == WeightedSum(of=(Summand(weight=0.5, advantage=OPO(), rewards={"right": 1.0}),))
    assert hash(read) != hash(WeightedSum(of=(Summand(weight=0.5, advantage=OPO(), rewards={"right": 2.0}),)))
