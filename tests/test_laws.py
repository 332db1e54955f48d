"""The laws that are about compositions: splits of a step, whole recipes, the telescoping law, CoDistill's theorem."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tiny
from grpo_kit import (
    AdaptiveCoefficient,
    Behavior,
    DivergenceTerm,
    EntropyBonus,
    EqualRows,
    Experience,
    GroupMean,
    Learner,
    LeaveOneOut,
    LogProbs,
    PolicyGradient,
    RecipeError,
    Reinforce,
    ReverseKL,
    Rewards,
    SampledKL,
    Sampling,
    SignalKey,
    Signals,
    TeacherLogRatio,
    TopK,
    Writer,
    learner_batch,
    objective,
    read_recipe,
)
from grpo_kit.advantages.live import live
from grpo_kit.batch import NOBODY
from grpo_kit.corrections import factors
from grpo_kit.detail import Detail
from grpo_kit.divergences.distance import over_vocabulary
from grpo_kit.joining import widen
from grpo_kit.learner import LiveLearner
from grpo_kit.memory import Memory
from grpo_kit.ratios import TokenRatio
from grpo_kit.samplers.mixed import has_data_rows, has_sampled_rows
from laws import corrections, distillation, divergences, splits
from laws.check import holds
from laws.table import PARTS
from laws.theorem import Setting, codistill_theorem, completions, expected_gradient, stated_gradient
from tolerances import CLEARLY_DIFFERENT, EXACT, MODEL

pytestmark = pytest.mark.usefixtures("float64")
ANY_CORRECTION = list(PARTS["corrections"].values())
AT_UPDATE = [correction for correction in ANY_CORRECTION if all(is_live for _, is_live in factors(correction))]
"""Those that go with either anchor."""
RECIPES = sorted(Path(str(files("grpo_kit"))).glob("recipes/*.toml"))


def compositions(draw) -> Learner:
    """Any learner of two rewards: one or two policy gradients of random parts, sometimes a divergence or an entropy."""

    def any_part(role):
        return draw(st.sampled_from(list(PARTS[role].values())))

    def gradient() -> PolicyGradient:
        surrogate, advantage = any_part("surrogates"), any_part("advantages")
        plain = isinstance(surrogate, Reinforce)
        anchor = "proximal" if plain else draw(st.sampled_from(["proximal", "behavior"]))
        allowed = ANY_CORRECTION if anchor == "proximal" else AT_UPDATE
        found = PolicyGradient(
            advantage=GroupMean(),
            surrogate=surrogate,
            ratio=TokenRatio() if plain else any_part("ratios"),
            anchor=anchor,
            correction=draw(st.sampled_from(allowed)) if draw(st.booleans()) else None,
            baseline=draw(st.sampled_from(["selected", "sampled"])),
            weight=draw(st.sampled_from([1.0, 0.3])),
        )
        reads_more = any(own.detail != Detail() for _, own in live(advantage))
        return found if reads_more and not found.token_local else replace(found, advantage=advantage)

    terms = {"policy": gradient()}
    if draw(st.booleans()):
        reference = divergences.term_of(any_part("divergences"))
        factors_of = [{"weight": 0.1}, {"adaptive": AdaptiveCoefficient(start=0.1, target=0.2)}]
        factor = draw(st.sampled_from(factors_of[: 1 if over_vocabulary(reference.divergence) else 2]))
        terms["reference"] = replace(reference, **factor)
    if draw(st.booleans()):
        terms["entropy"] = EntropyBonus(weight=0.05)
    if draw(st.booleans()):
        terms["second"] = gradient()
    return Learner(
        rewards={"task": 1.0, "price": 0.5},
        terms=terms,
        weighting=any_part("weightings"),
        optimizer=splits.OPTIMIZER,
        mask_truncated=draw(st.booleans()),
    )


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_micro_batches_change_nothing_for_any_composition(data):
    splits.micro_batches_change_nothing(compositions(data.draw), data.draw)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_ranks_change_nothing_for_any_composition(data):
    splits.ranks_change_nothing(compositions(data.draw), data.draw)


def synthetic(recipe, *, task_groups: int = 2, seed: int = 3) -> tuple[Experience, dict]:
    """Rows as a recipe's sampler might have written them, its policies replaced by random tiny models."""
    policies = {name: tiny.policy(name, seed=number) for number, name in enumerate(recipe.policies)}
    writer = getattr(recipe.sampler, "policy", next(iter(policies)))
    members = getattr(recipe.selection.rule, "keep", 2) + 2 if recipe.selection else 3
    generator = torch.Generator().manual_seed(seed)
    count = task_groups * members
    lengths = torch.randint(1, 6, (count,), generator=generator).tolist()
    rows = tiny.rollouts(lengths, [number // members for number in range(count)], seed=seed, writer=writer)
    details = {writer: Detail()} | recipe.details()
    signals = Signals(
        {SignalKey(name, 0): policies[name].score_all(rows, detail=detail) for name, detail in details.items()}
    )
    writers = (*rows.behavior.writers, Writer(policy=writer, version=0, sampling=Sampling(temperature=0.0)))
    last = torch.arange(count) % members == members - 1  # of each group, decoded greedily where the recipe does that
    by = (last & getattr(recipe.sampler, "greedy", False)).long()[:, None].expand(rows.mask.shape)
    if has_data_rows(recipe.sampler):  # of each group the first row, or all
        data = (torch.arange(count) % members == 0) | (not has_sampled_rows(recipe.sampler))
        by = torch.where(data[:, None], NOBODY, by)
    rows = replace(rows, behavior=Behavior(writers=writers, writer=by, logprobs=signals[writer].logprobs))
    components = {
        name: Memory().call("", reward, rows, signals)
        if getattr(reward, "reads", ())
        else tiny.component(torch.randint(0, 2, (count,), generator=generator))
        for name, reward in recipe.rewards.items()
    }
    return Experience(rollouts=rows, signals=signals, rewards=Rewards(components)), policies


def kept_rows(recipe, experience) -> torch.Tensor:
    groups = experience.rollouts.groups
    if recipe.selection is None:
        return ~experience.rollouts.greedy
    return recipe.selection.rule(experience.rewards.total(recipe.selection.rewards), groups)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_micro_batches_change_nothing_for_each_recipe(path):
    recipe = read_recipe(str(path), allow_code=True)
    experience, _ = synthetic(recipe)
    kept = kept_rows(recipe, experience)
    assert kept.any()
    for name, learner in recipe.learners.items():
        batch = learner_batch.freeze(name, learner, experience, kept, Memory())
        own = tiny.policy(name, seed=9)  # it has moved since the rows were scored
        rows = range(len(batch.rollouts))
        own.micro_batch_tokens = 10**6
        at_once = splits.gradient(learner, own, batch, rows)
        assert at_once.norm() > CLEARLY_DIFFERENT
        for budget in (1, 17, 40):
            own.micro_batch_tokens = budget
            torch.testing.assert_close(splits.gradient(learner, own, batch, rows), at_once, **MODEL)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_padding_and_order_change_nothing_for_each_recipe(path):
    recipe = read_recipe(str(path), allow_code=True)
    experience, _ = synthetic(recipe)
    order = torch.randperm(len(experience.rollouts), generator=torch.Generator().manual_seed(0)).tolist()
    moved = experience.take(order)
    width = moved.rollouts.mask.shape[1] + 3
    behavior = moved.rollouts.behavior
    wide = replace(
        moved.rollouts,
        tokens=widen(moved.rollouts.tokens, width),
        mask=widen(moved.rollouts.mask, width),
        behavior=replace(behavior, writer=widen(behavior.writer, width), logprobs=widen(behavior.logprobs, width)),
    )
    scores = {k: s.map(lambda values: widen(values, width)) for k, s in moved.signals.scores.items()}
    components = {
        name: part if part.values.ndim == 1 else replace(part, values=widen(part.values, width))
        for name, part in moved.rewards.components.items()
    }
    moved = Experience(rollouts=wide, signals=Signals(scores), rewards=Rewards(components))
    kept = kept_rows(recipe, experience)
    for name, learner in recipe.learners.items():
        own = tiny.policy(name, seed=9)
        found = []
        for given_rows, chosen in ((experience, kept), (moved, kept[order])):
            batch = learner_batch.freeze(name, learner, given_rows, chosen, Memory())
            found.append(splits.gradient(learner, own, batch, range(len(batch.rollouts))))
        torch.testing.assert_close(found[1], found[0], **MODEL)


def quotients(current, anchor, behavior):
    three = LogProbs(current=current, anchor=anchor, behavior=behavior)
    return three.log_ratio, three.log_correction


def test_the_quotients_telescope():
    holds(corrections.quotients_telescope, quotients)


@given(st.data())
def test_the_quotients_telescope_through_the_term(data):
    """With nothing bounded, proximal anchor x correction and behavior anchor are one gradient: pi / mu once."""
    from grpo_kit import Clip, ImportanceWeight
    from laws.terms import case, value_and_gradients

    given_case = case(data.draw)
    open_clip = Clip(low=0.999999, high=1e9)
    parts = {"advantage": GroupMean(), "surrogate": open_clip}
    corrected = PolicyGradient(**parts, correction=ImportanceWeight(high=1e9))
    direct = PolicyGradient(**parts, anchor="behavior")
    for one, other in zip(
        value_and_gradients(corrected, given_case), value_and_gradients(direct, given_case), strict=True
    ):
        torch.testing.assert_close(one, other, **EXACT)


IDLE = {
    "a baseline over all sampled rows without a selection": (
        "grpo",
        "learners.small.terms.policy.baseline=sampled",
        "terms.policy.baseline",
    ),
    "a reward that nobody weighs": ("grpo", 'rewards.form={kind="format"}', "rewards.form"),
    "a policy that nobody uses": ("grpo", 'policies.spare={model="tiny:large"}', "policies.spare"),
    "eps of a scale that is off": (
        "grpo",
        'learners.small.terms.policy.advantage={kind="group_mean", eps=0.1}',
        "terms.policy.advantage",
    ),
    "a correction where the anchor is the writer": (
        "codistill_paper",
        'learners.large.terms.policy.correction={kind="importance_weight"}',
        "terms.policy",
    ),
    "a selection that drops nothing": ("codistill", "selection.rule.keep=14", "selection.rule"),
    "a length of a norm by sequence": ("codistill", "rewards.kd.length_norm=sequence", "rewards.kd"),
    "rewards of a learner that reads none": (
        "grpo",
        'learners.small.terms.policy={kind="entropy"}',
        "learners.small.rewards",
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_an_option_that_no_part_consumes_is_an_error(case):
    """Law 12."""
    name, setting, place = IDLE[case]
    read_recipe(f"{name}.toml")
    with pytest.raises(RecipeError) as found:
        read_recipe(f"{name}.toml", settings=[setting])
    assert any(place in mistake for mistake in found.value.mistakes), found.value.mistakes


SIZES = [(2, 2, 2), (2, 3, 2), (3, 2, 2), (3, 3, 2), (2, 2, 3), (2, 3, 3), (3, 2, 3)]


def test_a_tree_has_every_completion_once():
    # V=3, N=2: eos | a, b followed by each of three tokens: 1 + 2 x 3 = 7
    assert sorted(completions(3, 2)) == [(0,), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert len(completions(2, 3)) == 4  # e, ae, aae, aaa


@pytest.mark.parametrize(("vocabulary", "longest", "group"), SIZES)
def test_codistill_theorem(vocabulary, longest, group):
    codistill_theorem(Setting(vocabulary=vocabulary, longest=longest, group=group))


@pytest.mark.parametrize("kind", PARTS["surrogates"])
def test_codistill_theorem_for_any_surrogate_at_ratio_one(kind):
    surrogate = PARTS["surrogates"][kind]
    codistill_theorem(Setting(vocabulary=3, longest=2, group=2, surrogate=surrogate))


def test_leave_one_out_has_the_whole_gradient():
    """Its baseline leaves the row itself out, so the factor (G-1)/G is gone."""
    setting = Setting(vocabulary=3, longest=2, group=3, advantage=LeaveOneOut())
    torch.testing.assert_close(expected_gradient(setting) * 2 / 3, stated_gradient(setting), **EXACT)


BREAKING = {
    "length_norm = sequence": {"length_norm": "sequence"},
    "equal rows": {"weighting": EqualRows()},
    "group scale": {"advantage": GroupMean(scale="group")},
}


@pytest.mark.parametrize("broken", BREAKING)
@pytest.mark.parametrize("group", [2, 3])
def test_codistill_theorem_fails_without_its_premises(broken, group):
    setting = Setting(vocabulary=3, longest=3 if group == 2 else 2, group=group, **BREAKING[broken])
    with pytest.raises(AssertionError):
        codistill_theorem(setting)
    # Not by a factor either: the direction is another one.
    found, stated = expected_gradient(setting).flatten(), stated_gradient(setting).flatten()
    assert torch.cosine_similarity(found, stated, dim=0) < 1 - CLEARLY_DIFFERENT


def dr_grpo(own, rows, rewards, length: int) -> torch.Tensor:
    """Dr. GRPO's first gradient by loops, one unpadded row at a time: -(1/(R N)) sum A_i log p(o_it)."""
    own.model.zero_grad()
    groups = rows.groups.tolist()
    for row in range(len(rows)):
        members = [other for other in range(len(rows)) if groups[other] == groups[row]]
        advantage = float(rewards[row]) - sum(float(rewards[other]) for other in members) / len(members)
        completion = rows.tokens[row, : int(rows.lengths[row])].tolist()
        ids = torch.tensor([[*rows.prompts[row], *completion]])
        logprobs = own.model(input_ids=ids).logits[0].log_softmax(-1)
        start = len(rows.prompts[row])
        loss = sum(-advantage * logprobs[start + t - 1, token] for t, token in enumerate(completion))
        (loss / (len(rows) * length)).backward()
    return tiny.gradient_of(own)


@pytest.mark.parametrize("name", ["codistill", "codistill_paper"])
def test_without_kd_and_selection_both_learners_are_dr_grpo(name):
    """Law 9: alpha = 0, large a copy of small."""
    recipe = read_recipe(f"{name}.toml", settings=["rewards.kd.alpha=0.0"])
    recipe = replace(recipe, selection=None)
    experience, _ = synthetic(recipe)
    rows, both = experience.rollouts, {n: tiny.policy(n, seed=0) for n in ("small", "large")}
    signals = Signals({SignalKey(n, 0): own.score_all(rows) for n, own in both.items()})
    rows = replace(rows, behavior=replace(rows.behavior, logprobs=signals["small"].logprobs))
    task = experience.rewards.components["correctness"]
    kd = recipe.rewards["kd"](rows, signals)
    assert (kd.values == 0).all()
    experience = Experience(rollouts=rows, signals=signals, rewards=Rewards({"correctness": task, "kd": kd}))
    everything = torch.ones(len(rows), dtype=torch.bool)
    for learner_name, own in both.items():
        learner = recipe.learners[learner_name]
        batch = learner_batch.freeze(learner_name, learner, experience, everything, Memory())
        live = LiveLearner.start(learner_name, learner, own, loop_steps=1)
        objective.accumulate(live, batch, range(len(rows)), step=1)
        found = tiny.gradient_of(own)
        assert found.norm() > CLEARLY_DIFFERENT
        torch.testing.assert_close(found, dr_grpo(tiny.policy(seed=0), rows, task.values, 48), **MODEL)


OPD = {
    "plain": TeacherLogRatio(teacher="large"),
    "control variate": TeacherLogRatio(teacher="large", control_variate=ReverseKL()),
    "control variate of the top k": TeacherLogRatio(
        teacher="large", control_variate=ReverseKL(top_k=TopK(k=distillation.TOP))
    ),
}


@pytest.mark.parametrize("kind", OPD)
def test_law_10_the_expected_gradient_on_policy_is_that_of_the_reverse_kl(kind):
    distillation.expected_gradient_is_the_reverse_kl_s(OPD[kind])


def test_law_10_a_control_variate_lowers_the_variance():
    plain, whole, top = (distillation.variance(advantage) for advantage in OPD.values())
    assert whole < 0.9 * plain
    assert top < 0.9 * plain


def test_law_10_the_advantage_is_taken_anew_at_an_update():
    """Away from the initial student: log teacher - log current, and the gradient of half its square."""
    term = PolicyGradient(advantage=OPD["plain"], surrogate=Reinforce())
    square = DivergenceTerm(to="large", divergence=SampledKL(estimator="k2"))
    current = tiny.policy("small", seed=7)
    batch = distillation.frozen(distillation.learner_of(term))
    now, mask = current.score_all(batch.rollouts), batch.rollouts.mask
    teacher = tiny.policy("large", seed=1).score_all(batch.rollouts).logprobs
    advantages = term.advantages(now, batch.frozen["distillation"], mask)
    torch.testing.assert_close(advantages[mask], (teacher - now.logprobs)[mask], **EXACT)
    initial = batch.rollouts.behavior.logprobs
    assert ((teacher - initial) - advantages)[mask].abs().min() > CLEARLY_DIFFERENT
    found, expected = (
        distillation.gradient(learner, distillation.frozen(learner), current)
        for learner in map(distillation.learner_of, (term, square))
    )
    torch.testing.assert_close(found, expected, **MODEL)


def test_law_10_the_fixed_point_of_semi_opd_is_the_teacher():
    distillation.its_fixed_point_is_the_teacher(distillation.Live(OPD["plain"]))
    with pytest.raises(AssertionError):
        distillation.its_fixed_point_is_the_teacher(distillation.Cached())


def test_law_10_a_cached_advantage_runs_away():
    first, *_, later, last = distillation.distances(distillation.Cached(), 100)
    assert last > later > 2 * first
