# ruff: noqa: RUF001
"""The objective as a page of formulas: what is in it, and that it is the term's own loss."""

from dataclasses import dataclass

import pytest
import torch

import tiny
from explain.formulas import work_out
from explain.off_policy import weights_of
from grpo_kit import Clip, PolicyGradient, Reinforce, read_recipe
from grpo_kit.explain.objective import objective
from grpo_kit.explain.page import Formula
from grpo_kit.formula import plain, plain_text
from grpo_kit.memory import Memory
from grpo_kit.signals import Scores

KL = 'learners.small.terms.kl={kind="divergence",to="large",divergence={kind="sampled_kl",estimator="k3"},weight=0.1}'
ENTROPY = 'learners.small.terms.ent={kind="entropy",weight=-0.5}'


def lines(recipe, learner):
    """Symbol to right side and words, as the terminal shows them; of equal symbols the last."""
    found = [line for line in objective(recipe, learner) if isinstance(line, Formula)]
    return {plain(f.symbol): (f.latex and plain(f.latex), plain_text(f.words)) for f in found}


def formula(recipe, learner, symbol):
    return lines(recipe, learner)[symbol][0]


def test_all_of_a_learner_with_a_correction():
    recipe = read_recipe("codistill")
    found = [line if isinstance(line, str) else plain(line.whole) for line in objective(recipe, "large")]
    assert found == [
        "L = Σ_(i, t) w_it · ℓ^policy_it",
        "w_it = 1 / (48 · R)",
        "r_i = correctness_i",
        "correctness_i",
        "Term `policy`, policy_gradient:",
        "ℓ^policy_it = c_it · [-min(ρ_it · A_i, clip(ρ_it, 0.8, 1.2) · A_i)]",
        "A_i = r_i - mean(r_g)",
        "ρ_it = e^(d_it)",
        "d_it = log π_θ(o_it) - log π_large(o_it)",
        "c_it = clip(e^(Σ_u b_iu), 0, 5)",
        "b_it = log π_large(o_it) - log μ(o_it)",
        "Optimizer:",
        "θ ← AdamW(θ, ∇L, η_k)",
        "η_k = 0.0001 · (k + 1) / 11",
        "η_k = 0.0001 · (100 - k) / 90",
    ]


def test_weights_signs_and_terms_are_in_the_sum():
    recipe = read_recipe("codistill", settings=[KL, ENTROPY, "learners.small.rewards={correctness=2.0,kd=-0.5}"])
    assert formula(recipe, "small", "L") == "Σ_(i, t) w_it · (ℓ^policy_it + 0.1 · ℓ^kl_it - 0.5 · ℓ^ent_it)"
    assert formula(recipe, "small", "r_i") == "2 · correctness_i - 0.5 · kd_i"
    assert formula(recipe, "small", "ℓ^kl_it") == "e^(-d_it) - 1 + d_it"
    assert formula(recipe, "small", "d_it") == "log π_θ(o_it) - log π_large(o_it)"
    assert formula(recipe, "small", "ℓ^ent_it") == "-H(π_θ(· | o_(i, <t)))"


def test_a_single_term_with_a_negative_weight_keeps_its_sign():
    recipe = read_recipe("grpo", settings=["learners.small.terms.policy.weight=-1.0"])
    assert formula(recipe, "small", "L") == "Σ_(i, t) w_it · (-ℓ^policy_it)"


def test_the_paper_s_anchor_is_the_writer():
    recipe = read_recipe("codistill_paper")
    assert formula(recipe, "large", "d_it") == "log π_θ(o_it) - log μ(o_it)"
    assert "b_it" not in lines(recipe, "large")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "r_g are the rows that the selection kept of a group g"),
        (["learners.large.terms.policy.baseline=sampled"], "r_g are all sampled rows of a group g"),
    ],
)
def test_which_rows_are_the_baseline(settings, words):
    assert words in lines(read_recipe("codistill", settings=settings), "large")["A_i"][1]


def test_options_that_change_who_counts_are_in_the_words():
    plainly = lines(read_recipe("grpo"), "small")["L"][1]
    masked = lines(read_recipe("grpo", settings=["learners.small.mask_truncated=true"]), "small")["L"][1]
    assert masked == f"{plainly}, which those of rows cut at the length limit do not"
    words = lines(read_recipe("dr_grpo"), "small")["w_it"][1]
    assert words.startswith("the denominator is 48 (length) times the number of rows with a counted token")


@dataclass(frozen=True)
class Foreign:
    """A part of somebody else, without a formula."""

    threshold: float = 0.5
    kind = "foreign"

    def __call__(self, rewards, groups):
        return rewards


def test_a_part_without_a_formula_is_shown_by_kind_and_settings():
    from dataclasses import replace

    recipe = read_recipe("grpo")
    term = PolicyGradient(advantage=Foreign(threshold=0.25), surrogate=Reinforce())
    learner = replace(recipe.learners["small"], terms={"policy": term})
    recipe = replace(recipe, learners={"small": learner})
    assert lines(recipe, "small")["A_i"] == (
        None,
        "advantage; r_g are the rows of a group g; foreign (threshold = 0.25)",
    )
    assert lines(recipe, "small")["ℓ^policy_it"][0] == "-A_i · log ρ_it"


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("recipe", ["grpo", "codistill", "codistill_paper"])
@pytest.mark.parametrize("surrogate", [Clip(cap=1.5), Clip(high=0.28)])
def test_the_loss_worked_out_from_the_page_is_the_term_s(recipe, surrogate):
    """The lines of a term, from the last to the first, with the numbers of a batch."""
    from dataclasses import replace

    described = read_recipe(recipe)
    name, learner = list(described.learners.items())[-1]
    term = replace(learner.terms["policy"], surrogate=surrogate)
    described = replace(described, learners={name: replace(learner, terms={"policy": term})})
    rows = tiny.rollouts([4, 4, 4, 4], [0, 0, 1, 1])
    experience = tiny.experience(rows, {}, [tiny.policy(name, seed=3)])
    rewards = torch.tensor([1.0, 0.0, -1.0, 0.5])
    frozen = term.freeze(experience, tiny.learner_rewards(rows, rewards), name, Memory())
    now = tiny.policy(name, seed=4).score_all(rows).logprobs
    computed = term(Scores(logprobs=now, entropy=None), frozen, rows.mask, rows.mask)
    values = {
        "now": now,
        "writer": rows.behavior.logprobs,
        f"then_{name}": experience.signals[name].logprobs,
        "A_i": term.advantage(rewards, rows.groups)[:, None].expand_as(now),
    }
    found = lines(described, name)
    for symbol in ("b_it", "d_it", "ρ_it"):
        if symbol in found:
            values[symbol] = work_out(found[symbol][0], **values)
    if "c_it" in found:
        row = (rows.mask, rows.groups, values["A_i"], values["d_it"] + values["b_it"])
        values["c_it"] = weights_of(found["c_it"][0], values["b_it"], *row)
    torch.testing.assert_close(work_out(found["ℓ^policy_it"][0], **values), computed)


def test_an_adaptive_coefficient_is_explained_where_it_stands():
    adaptive = "adaptive={ start = 0.1, target = 0.02 }"
    given = read_recipe("rloo", settings=[f"rewards.kl.{adaptive}", "learners.small.rewards.kl=1.0"])
    assert (
        "β starts at 0.1 and moves from batch to batch so that the KL a token comes to 0.02"
        in lines(given, "small")["kl_i"][1]
    )
    term = "{kind='divergence', to='reference', divergence={kind='sampled_kl'}, adaptive={start=0.1, target=0.02}}"
    given = read_recipe("rloo", settings=[f"learners.small.terms.own={term}"])
    assert (
        "β starts at 0.1 and moves from batch to batch so that the mean loss comes to 0.02"
        in lines(given, "small")["ℓ^own_it"][1]
    )


SMALL = "learners.small."
REVERSE = "divergence={kind='reverse_kl'}"
TEACHER = "{ kind = 'teacher_log_ratio', teacher = 'large' }"


def test_all_of_on_policy_distillation():
    recipe = read_recipe("opd")
    found = [line if isinstance(line, str) else plain(line.whole) for line in objective(recipe, "small")]
    assert found[:7] == [
        "L = Σ_(i, t) w_it · ℓ^distillation_it",
        "w_it = 1 / (Σ_j |o_j|)",
        "Term `distillation`, policy_gradient:",
        "ℓ^distillation_it = -A_it · log ρ_it",
        "A_it = sg[log π_large(o_it) - log π_θ(o_it)]",
        "ρ_it = e^(d_it)",
        "d_it = log π_θ(o_it) - sg[log π_θ(o_it)]",
    ]
    words = lines(recipe, "small")["A_it"][1]
    assert words.startswith("advantage, taken anew at every update; π_θ is 'small' being updated; π_large is 'large'")


def test_a_live_advantage_beside_one_of_rewards():
    both = f"[{{ advantage = {{ kind = 'group_mean' }} }}, {{ weight = 0.1, advantage = {TEACHER} }}]"
    correction = "{ kind = 'divergence_mask', metric = 'k1', only_negative = true, at = 'update', high = 0.5 }"
    recipe = read_recipe(
        "grpo",
        settings=[
            'policies.large={model="tiny:large"}',
            f"{SMALL}terms.policy.advantage={{ kind = 'weighted_sum', of = {both} }}",
            f"{SMALL}terms.policy.correction={correction}",
        ],
    )
    found = lines(recipe, "small")
    assert found["A_it"][0] == "[r_i - mean(r_g)] + 0.1 · [sg[log π_large(o_it) - log π_θ(o_it)]]"
    assert "r_g are the rows of a group g; " not in found["A_it"][1]
    assert "r_g are the rows of a group g, taken anew at every update" in found["A_it"][1]
    assert found["ℓ^policy_it"][0] == "c_it · [-min(ρ_it · A_it, clip(ρ_it, 0.8, 1.2) · A_it)]"
    assert "A_it ≥ 0" in found["c_it"][0]
    assert "A_i" not in found


def test_a_divergence_over_the_vocabulary_compares_probabilities():
    found = lines(
        read_recipe("opd", settings=[f"{SMALL}terms.kl={{kind='divergence', to='large', {REVERSE}}}"]), "small"
    )
    assert found["ℓ^kl_it"][0] == "Σ_v π_v · [log π_v - log q_v]"
    assert found["π_v"] == (
        "π_θ(v | o_(i, <t))",
        "probability of a token v of the vocabulary by 'small' being updated",
    )
    assert found["q_v"] == ("π_large(v | o_(i, <t))", "the same by 'large' with its weights at sampling time")


def test_the_rows_of_a_term_and_its_weights_are_said():
    plainly = read_recipe("sft")
    assert lines(plainly, "small")["ℓ^sft_it"] == (
        "-log π_θ(o_it)",
        "loss of a token of the data's rows, 0 for other rows; cross_entropy",
    )
    assert formula(plainly, "small", "L") == "Σ_(i, t) w_it · ℓ^sft_it"
    where = "{reward='correctness', at_least=0.5, at_most=1.0, denominator='own'}"
    sft = f"{SMALL}terms.sft={{kind='cross_entropy', weight=0.2, where={where}}}"
    recipe = read_recipe("grpo", settings=[sft])
    assert formula(recipe, "small", "L") == "Σ_(i, t) (w_it · ℓ^policy_it + 0.2 · w^sft_it · ℓ^sft_it)"
    assert lines(recipe, "small")["ℓ^sft_it"][1].startswith(
        "loss of a token of rows with correctness at least 0.5 and at most 1, 0 for other rows; "
        "w^sft_it is w_it with these rows alone"
    )
    assert lines(recipe, "small")["ℓ^policy_it"][1] == "loss of a token; clip"


def test_a_policy_gradient_beside_rows_of_the_data_is_of_the_sampled_ones():
    term = f"{{kind='policy_gradient', advantage={TEACHER}, surrogate={{kind='reinforce'}}}}"
    found = lines(read_recipe("gkd", settings=[f"{SMALL}terms.policy={term}"]), "small")
    assert found["ℓ^policy_it"][1] == "loss of a token of sampled rows, 0 for other rows; reinforce"
    assert found["ℓ^teacher_it"][1].startswith("loss of a token; jsd")
