"""Plans: what each run is given, and every mistake at once."""

import json
import shutil

import pytest

from grpo_kit import EqualTokens, RecipeError, read_recipe
from grpo_kit.compare.jobs import Job, Jobs
from grpo_kit.compare.plan import HeldOut, held_out_of, settings_of
from grpo_kit.compare.reading import plan_of, read_plan
from grpo_kit.compare.ready import make_ready
from grpo_kit.policies.tiny import tiny_path

SMALL = """
name = "mine"
seeds = [5, 6]
set = ["data.rows=64", "evaluation.questions=16", "policies.small.model=tiny:small"]

[tuning]
seeds = [1]
metric = "small/accuracy"
set = ["log_samples=0"]

[held_out]
questions = 20
samples = 2

[arms.grpo]
recipe = "grpo"
grid = { "learners.small.optimizer.lr" = [1e-4, 2e-4], "sampler.temperature" = [1.0, 0.9] }

[arms.codistill]
recipe = "codistill"
set = ["steps=7", "policies.large.model=tiny:large"]

[arms.base]
recipe = "grpo"
train = false
grid = { "held_out.temperature" = [1.0, 0.5] }
"""

IN_RUN = ["small/accuracy", "small/greedy", *(f"small/pass@{k}" for k in (1, 2, 4, 8))]
HELD_OUT = [
    f"{policy}/{key}"
    for policy in ("small", "large")
    for key in ("accuracy", "greedy", "pass@2", "entropy", "length", "area")
]


def written(tmp_path, text=SMALL):
    (tmp_path / "plan.toml").write_text(text)
    return str(tmp_path / "plan.toml")


def test_the_settings_of_a_run(tmp_path):
    plan = read_plan(written(tmp_path, SMALL.replace("tiny:small", "pairs/{seed}/small")))
    arm = plan.arms["grpo"]
    assert len(arm.points) == 4
    assert arm.points[1] == {"learners.small.optimizer.lr": 1e-4, "sampler.temperature": 0.9}
    assert settings_of(plan, arm, {"steps": 200}, arm.points[1], 5) == [
        "steps=200",
        "data.rows=64",
        "evaluation.questions=16",
        "policies.small.model=pairs/5/small",
        "learners.small.optimizer.lr=0.0001",
        "sampler.temperature=0.9",
        "seed=5",
    ]


def test_an_arm_that_sets_a_matched_key_keeps_its_own(tmp_path):
    plan = read_plan(written(tmp_path))
    found = settings_of(plan, plan.arms["codistill"], {"steps": 200, "prompts_per_step": 32}, {}, 5)
    assert "steps=200" not in found
    assert "prompts_per_step=32" in found


def test_jobs_are_interleaved_and_know_their_folder(tmp_path):
    plan = read_plan(written(tmp_path))
    jobs = Jobs(plan=plan, root=tmp_path / "out", matched={"steps": 200}, steps={"grpo": 200, "codistill": 7})
    tuning = list(jobs.tuning())
    assert [(arm, number) for arm, number, _ in tuning] == [*(("grpo", n) for n in range(4)), ("base", 0), ("base", 1)]
    assert all("log_samples=0" in job.settings and "seed=1" in job.settings for _, _, job in tuning)
    assert tuning[0][2].held_out is None, "a choice may not see the held-out questions"
    assert tuning[5][2].held_out == HeldOut(questions=20, samples=2, temperature=0.5)
    reported = list(jobs.reported({"grpo": 3, "base": 1}))
    assert [(arm, seed) for arm, seed, _ in reported] == [
        ("grpo", 5), ("codistill", 5), ("base", 5), ("grpo", 6), ("codistill", 6), ("base", 6),
    ]  # fmt: skip
    grpo, _, base = (job for _, _, job in reported[:3])
    assert "learners.small.optimizer.lr=0.0002" in grpo.settings
    assert grpo.folder == tmp_path / "out" / "runs" / "grpo" / "seed-5"
    assert base.held_out is not None
    assert (base.train, base.steps, base.held_out.temperature) == (False, 0, 0.5)
    grpo.write()
    assert Job.read(grpo.folder) == grpo


def test_a_grid_of_the_temperature_is_no_key_of_the_recipe(tmp_path):
    plan = read_plan(written(tmp_path))
    arm = plan.arms["base"]
    assert not any("held_out" in text for text in settings_of(plan, arm, {}, arm.points[1], 5))
    assert held_out_of(plan, arm.points[1], 5).temperature == 0.5
    assert held_out_of(plan, {}, 5).temperature == 1.0


def test_the_seed_stands_in_every_setting_and_a_grid_may_have_values_of_any_type(tmp_path):
    text = SMALL.replace('set = ["log_samples=0"]', 'set = ["data.seed={seed}"]')
    text = text.replace("samples = 2", 'samples = 2\nset = ["evaluation.data.seed={seed}"]')
    weightings = '"learners.small.weighting" = ["equal_rows", { kind = "equal_tokens" }]'
    plan = read_plan(written(tmp_path, text.replace('"sampler.temperature" = [1.0, 0.9]', weightings)))
    jobs = Jobs(plan=plan, root=tmp_path, matched={})
    _, _, first = next(jobs.tuning())
    assert "data.seed=1" in first.settings
    assert first.label == "grpo (lr = 0.0001, weighting = equal_rows) seed 1"
    _, _, reported = next(jobs.reported({"grpo": 1}))
    assert 'learners.small.weighting={ kind = "equal_tokens" }' in reported.settings
    assert "data.seed=5" not in reported.settings, "it is the tuning's alone"
    assert reported.held_out.set == ("evaluation.data.seed=5",)
    point = read_recipe("grpo", settings=list(reported.settings))
    assert point.learners["small"].weighting == EqualTokens()


def test_a_folder_with_a_run_of_another_plan_is_refused(tmp_path):
    plan = read_plan(written(tmp_path))
    jobs = Jobs(plan=plan, root=tmp_path, matched={})
    one, other = (next(jobs.reported({"grpo": number}))[2] for number in (0, 3))
    one.refuse_another()
    one.write()
    one.refuse_another()
    with pytest.raises(ValueError, match=r"seed-5 has a run of another plan .*lr=0.0001.*lr=0.0002.* differ"):
        other.refuse_another()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("seeds = [5, 6]", "seeds = [5, 5]")], ["seeds: one is named twice. Each seed is one run an arm."]),
        (
            [("seeds = [1]", "seeds = [5, 9]")],
            ["tuning.seeds: 5 is among seeds, which are then no fresh ones. Take others."],
        ),
        (
            [('"data.rows=64"', '"seed=3"'), ("train = false", 'train = false\nset = ["name=x"]')],
            [
                "set: seed is set by the comparison itself. Remove it.",
                "arms.base: name is set by the comparison itself. Remove it.",
            ],
        ),
        (
            [('"held_out.temperature" = [1.0, 0.5]', '"held_out.temperature" = [1.0, 0]')],
            ["arms.base.grid.held_out.temperature: 0. Give numbers above 0."],
        ),
        (
            [('"held_out.temperature" = [1.0, 0.5]', '"steps" = [1, 2]')],
            ["arms.base.grid: an arm that is not trained has only held_out.temperature to vary."],
        ),
        ([("log_samples=0", "seed=3")], ["tuning.set: seed is set by the comparison itself. Remove it."]),
        ([("questions = 20", "question = 20")], ["held_out.question: unknown key 'question'."]),
        ([('recipe = "codistill"', "")], ["arms.codistill.recipe: missing; it has no default."]),
        ([("samples = 2", "samples = 0")], ["held_out.samples: should be greater than or equal to 1, got 0 (int)."]),
    ],
)
def test_mistakes_of_a_plan(tmp_path, changes, expected):
    text = SMALL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(RecipeError) as caught:
        read_plan(written(tmp_path, text))
    assert len(caught.value.mistakes) == len(expected)
    for found, wanted in zip(caught.value.mistakes, expected, strict=True):
        assert found.startswith(wanted)


def test_tuning_without_a_grid_and_a_grid_without_tuning(tmp_path):
    head, _, rest = SMALL.partition("[tuning]")
    with pytest.raises(RecipeError, match="tuning: missing, and there is a grid in grpo, base"):
        read_plan(written(tmp_path, head + "[held_out]" + rest.partition("[held_out]")[2]))
    bare = "\n".join(line for line in SMALL.splitlines() if not line.startswith("grid"))
    with pytest.raises(RecipeError, match="tuning: no arm has a grid with more than one point"):
        read_plan(written(tmp_path, bare))


def test_every_mistake_of_every_recipe_at_once(tmp_path):
    text = SMALL.replace('"sampler.temperature" = [1.0, 0.9]', '"sampler.temperatur" = [1.0, 0.9]')
    text = text.replace("steps=7", "steps=0").replace("questions = 20", "questions = 5000")
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    found = "\n".join(caught.value.mistakes)
    assert "arms.grpo: sampler.temperatur: unknown key" in found
    assert "arms.codistill: steps: should be greater than or equal to 1, got 0" in found
    assert "arms.base: held_out.questions: 5000, and the evaluation data has " in found


def test_metrics_of_policies_that_nobody_trains(tmp_path):
    text = SMALL.replace("small/accuracy", "smal/accuracy") + '\n[equivalence]\n"huge/accuracy" = 0.1\n'
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    assert list(caught.value.mistakes) == [
        f"{place}: {metric}, which no run there has. Known: {', '.join(sorted(known))}."
        for place, metric, known in (
            ("arms.grpo, tuning metric", "smal/accuracy", IN_RUN),
            ("arms.base, tuning metric", "smal/accuracy", IN_RUN),
            ("equivalence", "huge/accuracy", HELD_OUT),
        )
    ]


def test_metrics_that_nobody_has(tmp_path):
    text = SMALL.replace("small/accuracy", "small/entropy")
    text += '\n[equivalence]\n"small/pass@8" = 0.1\n"large/pass@2" = 0.1\n'
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    assert [line.partition(", which")[0] for line in caught.value.mistakes] == [
        "arms.grpo, tuning metric: small/entropy",  # the highest is no better
        "arms.base, tuning metric: small/entropy",
        "equivalence: small/pass@8",  # of two samples
    ]


@pytest.mark.parametrize(
    ("setting", "differs"),
    [
        ("evaluation.data.seed=3", "held_out, in_run"),
        ("evaluation.questions=5", "held_out, in_run"),
        ("evaluation.max_new_tokens=40", "max_new_tokens"),
        ("rewards.correctness.strict=true", "reward"),
    ],
)
def test_arms_that_are_not_asked_the_same_are_refused(tmp_path, setting, differs):
    text = SMALL.replace('set = ["steps=7", ', f'set = ["{setting}", ')
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    (found,) = caught.value.mistakes
    assert found.startswith(f"arms.codistill: its evaluation differs from that of grpo in {differs}, so that")


def test_a_model_that_only_a_grid_names_is_looked_for(tmp_path):
    text = SMALL.replace('"sampler.temperature" = [1.0, 0.9]', '"policies.small.model" = ["tiny:small", "nowhere"]')
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    (found,) = caught.value.mistakes
    assert found.startswith("arms.grpo: policies.small.model")
    assert "nowhere" in found


def test_a_choice_may_not_see_the_held_out_questions(tmp_path):
    text = SMALL.replace("log_samples=0", "evaluation.questions=30")
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    asks = "tuning.set: its evaluation asks 14 of the held-out questions. A choice may not see them."
    assert list(caught.value.mistakes) == [f"arms.grpo: {asks}", f"arms.base: {asks}"]


def test_every_seeds_models_are_looked_for_before_anything_runs(tmp_path):
    shutil.copytree(tiny_path("small"), tmp_path / "pair-5")
    text = SMALL.replace("tiny:small", f"{tmp_path}/pair-{{seed}}")
    with pytest.raises(RecipeError) as caught:
        make_ready(read_plan(written(tmp_path, text)), allow_code=False)
    missing = [line for line in caught.value.mistakes if line.startswith("arms.grpo: policies.small.model")]
    assert len(missing) == 2
    assert "pair-6" in missing[0]
    assert "pair-1" in missing[1]


def test_recipes_on_the_command_line():
    plan = plan_of(["grpo", "again=grpo", "recipes/rloo.toml"], seeds=3, first_seed=4, settings=["data.rows=64"])
    assert list(plan.arms) == ["grpo", "again", "rloo"]
    assert plan.seeds == (4, 5, 6)
    assert plan.match == ("steps", "prompts_per_step")
    with pytest.raises(RecipeError, match=r"two recipes are called grpo\. Write NAME=grpo"):
        plan_of(["grpo", "recipes/grpo.toml"], seeds=1)


def test_matched_keys_and_what_cannot_be_matched():
    settings, held_out = ["data.rows=64", "evaluation.questions=16"], {"questions": 20}
    plan = plan_of(["grpo", "codistill"], seeds=1, settings=settings, held_out=held_out)
    ready = make_ready(plan, allow_code=False)
    assert ready.matched == {"steps": 200, "prompts_per_step": 32}
    assert ready.recipes["codistill"].steps == 200
    assert ready.notes == (
        "not matched: codistill has sampler.samples = 14, and grpo 8",
        "not matched: codistill has selection.rule.keep = 8, and grpo nothing",
    )
    loose = make_ready(
        plan_of(["grpo", "codistill"], seeds=1, settings=settings, match=False, held_out=held_out),
        allow_code=False,
    )
    assert loose.recipes["codistill"].steps == 100
    assert "not matched: codistill has steps = 100, and grpo 200" in loose.notes


def arms_held_against(tmp_path, **against):
    named = "\n".join(
        f'[arms.{name}]\nrecipe = "grpo"' + (f"\nagainst = {json.dumps(other)}" if other else "")
        for name, other in against.items()
    )
    return read_plan(written(tmp_path, f'name = "mine"\nseeds = [0]\n{named}'))


@pytest.mark.parametrize(
    ("against", "among", "pairs"),
    [
        ({"a": None, "b": None, "c": None}, "abc", ["ba", "ca"]),
        ({"a": None, "b": None, "c": None}, "bc", ["cb"]),  # the first that has the policy
        ({"a": None, "b": "a", "c": None, "d": "c"}, "abcd", ["ba", "dc"]),  # c, a base itself, against none
        ({"a": None, "b": "a", "c": "b"}, "abc", ["ba", "cb"]),
        ({"a": None, "b": "c", "c": None}, "ab", []),  # what it is held against does not have the metric
        ({"a": None, "b": "c", "c": None, "d": None}, "abcd", ["bc", "da"]),
        ({"a": None, "b": ["a", "c"], "c": None}, "abc", ["ba", "bc"]),
    ],
)
def test_what_each_arm_is_held_against(tmp_path, against, among, pairs):
    assert arms_held_against(tmp_path, **against).pairs(list(among)) == [tuple(pair) for pair in pairs]


def test_an_arm_is_held_against_another_one_that_exists(tmp_path):
    with pytest.raises(RecipeError) as caught:
        arms_held_against(tmp_path, a="a", b="z")
    assert list(caught.value.mistakes) == [
        "arms.a.against: a, which is no other arm. Known: b.",
        "arms.b.against: z, which is no other arm. Known: a.",
    ]
