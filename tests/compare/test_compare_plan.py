"""Plans: what each run is given, and every mistake at once."""

import pytest

from grpo_kit import RecipeError
from grpo_kit.compare.jobs import Job, Jobs
from grpo_kit.compare.plan import HeldOut, held_out_of, settings_of
from grpo_kit.compare.reading import make_ready, plan_of, read_plan

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
    assert held_out_of(plan, arm.points[1]).temperature == 0.5
    assert held_out_of(plan, {}).temperature == 1.0


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
                "arms.grpo: seed is set by the comparison itself. Remove it.",
                "arms.codistill: seed is set by the comparison itself. Remove it.",
                "arms.base: seed is set by the comparison itself. Remove it.",
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
        "arms.grpo: smal/accuracy, and no learner there is called smal.",
        "arms.base: smal/accuracy, and no learner there is called smal.",
        "equivalence.huge/accuracy: huge/accuracy, and no learner there is called huge.",
    ]


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
        "codistill has sampler.samples = 14, and grpo 8",
        "codistill has selection.rule.keep = 8, and grpo nothing",
    )
    loose = make_ready(
        plan_of(["grpo", "codistill"], seeds=1, settings=settings, match=False, held_out=held_out),
        allow_code=False,
    )
    assert loose.recipes["codistill"].steps == 100
    assert "codistill has steps = 100, and grpo 200" in loose.notes


def arms_held_against(tmp_path, **against):
    named = "\n".join(
        f'[arms.{name}]\nrecipe = "grpo"' + (f'\nagainst = "{other}"' if other else "")
        for name, other in against.items()
    )
    return read_plan(written(tmp_path, f'name = "mine"\nseeds = [0]\n{named}'))


@pytest.mark.parametrize(
    ("against", "among", "pairs"),
    [
        ({"a": None, "b": None, "c": None}, "abc", {"b": "a", "c": "a"}),
        ({"a": None, "b": None, "c": None}, "bc", {"c": "b"}),  # the first that has the policy
        (
            {"a": None, "b": "a", "c": None, "d": "c"},
            "abcd",
            {"b": "a", "d": "c"},
        ),  # c, a base itself, is held against none
        ({"a": None, "b": "a", "c": "b"}, "abc", {"b": "a", "c": "b"}),
        ({"a": None, "b": "c", "c": None}, "ab", {}),  # what it is held against does not have the metric
        ({"a": None, "b": "c", "c": None, "d": None}, "abcd", {"b": "c", "d": "a"}),
    ],
)
def test_what_each_arm_is_held_against(tmp_path, against, among, pairs):
    assert arms_held_against(tmp_path, **against).pairs(list(among)) == pairs


def test_an_arm_is_held_against_another_one_that_exists(tmp_path):
    with pytest.raises(RecipeError) as caught:
        arms_held_against(tmp_path, a="a", b="z")
    assert list(caught.value.mistakes) == [
        "arms.a.against: a, which is no other arm. Known: b.",
        "arms.b.against: z, which is no other arm. Known: a.",
    ]
