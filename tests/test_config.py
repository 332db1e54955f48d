"""Reading recipes: every kind of mistake with its full message, all at once; settings; the way back to TOML."""

import tomllib
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import get_type_hints

import pytest
import tomli_w

from grpo_kit import GroupMean, Recipe, RecipeError, read_recipe
from grpo_kit.advantages import ADVANTAGES
from grpo_kit.config import find_recipe, parse_recipe
from grpo_kit.data import DATA
from grpo_kit.parts import as_table
from grpo_kit.samplers import SAMPLERS

SHIPPED = sorted(Path(str(files("grpo_kit"))).glob("recipes/*.toml"))
TOP_LEVEL, SOURCES = (", ".join(sorted(names)) for names in (get_type_hints(Recipe), DATA.kinds))
POLICY_TERM = "learners.small.terms.policy"

MISTAKES = {
    "stpes = 3": f"stpes: unknown key 'stpes'. Did you mean 'steps'? Known: {TOP_LEVEL}.",
    f"{POLICY_TERM}.clip = 0.1": (
        f"{POLICY_TERM}.clip: unknown key 'clip'. "
        "Known: advantage, anchor, baseline, correction, ratio, surrogate, weight, where."
    ),
    f"{POLICY_TERM}.surrogate.clip_low = 0.1": (
        f"{POLICY_TERM}.surrogate.clip_low: unknown key 'clip_low'. Did you mean 'low'? Known: cap, high, low."
    ),
    f"{POLICY_TERM}.advantage.kind = 'group_meen'": (
        f"{POLICY_TERM}.advantage: unknown kind 'group_meen'. Did you mean 'group_mean'? "
        f"Known: {', '.join(sorted(ADVANTAGES.built_in))}."
    ),
    "sampler.kind = 'trnsformers'": (
        "sampler: unknown kind 'trnsformers'. Did you mean 'transformers'? "
        f"Known: {', '.join(sorted(SAMPLERS.built_in))}."
    ),
    "learners.small.weighting.kind = 'fixed'": (
        "learners.small.weighting: unknown kind 'fixed'. Did you mean 'fixed_length'? "
        "Known: equal_rows, equal_tokens, fixed_length."
    ),
    "learners.small.weighting = 3": (
        "learners.small.weighting: expected a table with a 'kind', got 3. Known: equal_rows, equal_tokens, "
        "fixed_length."
    ),
    "learners.small.weighting = { length = 48 }": (
        "learners.small.weighting: has no 'kind'. Known: equal_rows, equal_tokens, fixed_length."
    ),
    f"{POLICY_TERM}.advantage = {{ kind = 'weighted_sum', of = [{{ advantage = {{ kind = 'group_meen' }} }}] }}": (
        f"{POLICY_TERM}.advantage.of.0.advantage: unknown kind 'group_meen'. Did you mean 'group_mean'? "
        f"Known: {', '.join(sorted(ADVANTAGES.built_in))}."
    ),
    f"{POLICY_TERM}.advantage = {{ kind = 'weighted_sum', of = [] }}": (
        f"{POLICY_TERM}.advantage.of: there is none; give at least one."
    ),
    "steps = '3'": "steps: should be a valid integer, got '3' (str).",
    "steps = true": "steps: should be a valid integer, got True (bool).",
    "steps = 2.5": "steps: should be a valid integer, got 2.5 (float).",
    "steps = 0": "steps: should be greater than or equal to 1, got 0 (int).",
    "name = 'a b'": "name: should match pattern '^[A-Za-z0-9._-]+$', got 'a b' (str).",
    "learners.small.optimizer.lr = 'fast'": (
        "learners.small.optimizer.lr: should be a valid number, got 'fast' (str)."
    ),
    "learners.small.optimizer.lr = 0": "learners.small.optimizer.lr: should be greater than 0, got 0 (int).",
    "learners.small.optimizer.betas = [0.9]": "learners.small.optimizer.betas.1: missing; it has no default.",
    "learners.small.mask_truncated = maybe": (
        "learners.small.mask_truncated: should be true or false, got 'maybe' (str)."
    ),
    "policies.small.dtype = 'float8'": (
        "policies.small.dtype: unknown choice 'float8'. Did you mean 'float64'? "
        "Known: float32, bfloat16, float16, float64."
    ),
    "policies.small.follows = 'large'": (
        "policies.small: give either model (its own weights) or follows (those of a live policy), not both or none."
    ),
    "policies.large.decay = 0.5": (
        "policies.large: decay and every belong to a follower; give follows or leave them out."
    ),
    "data.path = 'x'": "data.path: unknown key 'path'. Known: rows, seed, split, task.",
    "data.kind = 'dataset'": "data.path: missing; it has no default.",
    "evaluation.data.splt = 'eval'": (
        "evaluation.data.splt: unknown key 'splt'. Did you mean 'split'? Known: rows, seed, split, task."
    ),
    "data = 3": f"data: expected a table with a 'kind', got 3. Known: {SOURCES}.",
    "learners = 3": "learners: should be a table, got 3 (int).",
    "learners.small.rewards = { correctness = true }": (
        "learners.small.rewards.correctness: should be a valid number, got True (bool)."
    ),
    "learners.small.terms.policy.weight = nan": (
        "learners.small.terms.policy.weight: should be a finite number, got nan (float)."
    ),
    "rewards.kd.length_norm = 'sequence'": "rewards.kd: length_norm 'sequence' does not use length; leave length out.",
    "learners.large.terms.policy.anchor = 'behavior'": (
        "learners.large.terms.policy: anchor 'behavior' leaves a correction nothing to do (it would always be 1); "
        "remove the correction or use anchor 'proximal'."
    ),
    f"{POLICY_TERM}.ratio.kind = 'sequence'; {POLICY_TERM}.surrogate.kind = 'reinforce'": (
        f"{POLICY_TERM}: surrogate 'reinforce' has no ratio in its gradient; remove ratio or use surrogate 'clip'."
    ),
}
"""Settings put over codistill.toml, and the one mistake that each is."""

BAD_SETTINGS = {
    "steps": "--set steps: write it as a.b=c",
    "=3": "--set =3: write it as a.b=c",
    "a..b=3": "--set a..b=3: write it as a.b=c",
    "steps.more=3": "--set steps.more=3: 'steps' is a value, not a table",
}


def mistakes_of(settings, recipe="codistill"):
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe, settings=settings)
    return list(caught.value.mistakes)


@pytest.mark.parametrize("settings", MISTAKES)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(settings):
    assert mistakes_of(settings.split("; ")) == [MISTAKES[settings]]


def test_all_mistakes_are_reported_at_once():
    single = [settings for settings in MISTAKES if settings.startswith(("stpes", "steps = '3'", POLICY_TERM))][:3]
    settings = [
        *single,
        "learners.large.optimizer.lr = -1",
        "rewards.kd.teacher = 'larg'",
        "evaluation.reward = 'right'",
    ]
    assert sorted(mistakes_of(settings)) == sorted(
        [
            *(MISTAKES[setting] for setting in single),
            "learners.large.optimizer.lr: should be greater than 0, got -1 (int).",
            "rewards.kd: there is no policy 'larg'. Did you mean 'large'? Known: small, large.",
            "evaluation.reward: there is no reward 'right'. Known: correctness, kd.",
        ]
    )


def test_the_error_counts_its_mistakes_and_names_the_recipe():
    with pytest.raises(RecipeError, match=r"^codistill: 2 mistakes\n  steps: .*\n  seed: "):
        read_recipe("codistill", settings=["steps=a", "seed=-1"])
    with pytest.raises(RecipeError, match=r"^codistill: 1 mistake\n"):
        read_recipe("codistill", settings=["steps=a"])


def test_a_key_that_is_missing_is_named(tmp_path):
    (tmp_path / "short.toml").write_text("seed = 1")
    assert sorted(mistakes_of([], str(tmp_path / "short.toml"))) == [
        "data: missing; it has no default.",
        "learners: there is none, so nothing would be trained. Add a table [learners.NAME], NAME a policy.",
        *(
            f"{key}: missing; it has no default."
            for key in ("name", "policies", "prompts_per_step", "sampler", "steps")
        ),
    ]


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    (tmp_path / "broken.toml").write_text("steps = \n")
    assert mistakes_of([], str(tmp_path / "broken.toml"))[0].startswith("not TOML: Invalid value (at line 1")


@pytest.mark.parametrize("setting", BAD_SETTINGS)
def test_a_setting_that_cannot_be_read_is_refused(setting):
    assert mistakes_of([setting]) == [BAD_SETTINGS[setting]]


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("learners.small.mask_truncated=true", lambda recipe: recipe.learners["small"].mask_truncated is True),
        ("learners.small.mask_truncated=false", lambda recipe: recipe.learners["small"].mask_truncated is False),
        ("steps=7", lambda recipe: recipe.steps == 7),
        (" steps = 7", lambda recipe: recipe.steps == 7),
        ("learners.small.optimizer.lr=3e-4", lambda recipe: recipe.learners["small"].optimizer.lr == 3e-4),
        ("learners.small.optimizer.lr=1", lambda recipe: recipe.learners["small"].optimizer.lr == 1.0),
        ("name=other", lambda recipe: recipe.name == "other"),
        ('name="other"', lambda recipe: recipe.name == "other"),
        ("policies.large.model=./a=b", lambda recipe: recipe.policies["large"].model == "./a=b"),
        (
            "learners.small.optimizer.betas=[0.8, 0.9]",
            lambda recipe: recipe.learners["small"].optimizer.betas == (0.8, 0.9),
        ),
        (
            "learners.small.terms.policy.advantage={ kind = 'group_mean', scale = 'batch' }",
            lambda recipe: recipe.learners["small"].terms["policy"].advantage == GroupMean(scale="batch"),
        ),
    ],
)
def test_a_setting_is_put_over_the_recipe(setting, read):
    assert read(read_recipe("codistill", settings=[setting]))


def test_the_last_of_two_settings_wins():
    assert read_recipe("codistill", settings=["steps=3", "steps=4"]).steps == 4


def test_evaluation_data_holds_only_what_differs():
    recipe = read_recipe("codistill", settings=["data.task=sparse"])
    assert (recipe.data.split, recipe.evaluation.data.split) == ("train", "eval")
    assert recipe.evaluation.data.task == "sparse"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_recipe_reads_alone_on_one_page(path):
    raw = tomllib.loads(path.read_text())
    assert raw["name"] == path.stem
    assert {"steps", "seed"} <= raw.keys()
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_recipe_comes_back_from_its_own_toml(path):
    recipe = read_recipe(str(path))
    again, mistakes, _ = parse_recipe(tomllib.loads(tomli_w.dumps(as_table(recipe))))
    assert mistakes == []
    assert again == recipe


@pytest.mark.parametrize("name", ["grpo", "grpo.toml", "recipes/grpo.toml", "recipes/grpo"])
def test_a_shipped_recipe_is_found_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe(name) == next(path for path in SHIPPED if path.stem == "grpo")


def test_a_local_file_goes_before_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    text = next(path for path in SHIPPED if path.stem == "grpo").read_text()
    (tmp_path / "recipes" / "grpo.toml").write_text(text.replace("steps = ", "steps = 1"))
    assert find_recipe("recipes/grpo.toml") == Path("recipes/grpo.toml")
    assert str(read_recipe("recipes/grpo.toml").steps).startswith("1")


@pytest.mark.parametrize(
    ("name", "guess"),
    [("gropo", " Did you mean 'grpo'?"), ("codistil.toml", " Did you mean 'codistill'?"), ("elsewhere/grpo.toml", "")],
)
def test_an_unknown_recipe_is_refused_with_the_known_ones(name, guess, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (mistake,) = mistakes_of([], name)
    known = ", ".join(path.stem for path in SHIPPED)
    assert mistake.startswith("no such file.")
    assert guess in mistake
    assert mistake.endswith(f"Shipped: {known}.")


def places(table, above=()):
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def test_a_term_that_reads_an_undefined_policy_is_named_with_the_one_that_nothing_reads_now():
    assert mistakes_of(["learners.small.terms.teacher.to=nobody"], "gkd") == [
        "learners.small.terms.teacher: there is no policy 'nobody'. Known: small, large.",
        "policies.large: no sampler, reward or learner uses it. Remove it, or use it.",
    ]


OTHERS_SLOW = [pytest.param(path, marks=[] if path.stem == "codistill" else pytest.mark.slow) for path in SHIPPED]


@pytest.mark.parametrize("path", OTHERS_SLOW, ids=lambda path: path.stem)
def test_a_mistake_is_not_followed_by_others_that_are_none(path, tmp_path):
    """A list of dates fits nowhere; put in the place of any key in turn, it is the one thing that is reported."""
    raw = as_table(read_recipe(str(path)))
    for place in places(raw):
        table = deepcopy(raw)
        here = table
        for key in place[:-1]:
            here = here[key]
        here[place[-1]] = [[{"no": "such"}]]
        (tmp_path / "recipe.toml").write_text(tomli_w.dumps(table))
        where = ".".join(place if place[-1] != "kind" else place[:-1])
        assert {mistake.startswith(where) for mistake in mistakes_of([], str(tmp_path / "recipe.toml"))} == {True}, (
            place
        )


WRONG_PARTS = [
    "data.kind=nothing",
    "sampler.kind=nothing",
    "rewards.kd.kind=nothing",
    "learners.large.weighting.kind=nothing",
    "learners.large.weighting.length=-1",
    "learners.large.terms.policy.advantage.kind=nothing",
    "learners.large.terms.policy.surrogate.kind=nothing",
    "learners.large.terms.policy.correction.kind=nothing",
    "learners.large.optimizer.lr=fast",
    "policies.large.model=3",
]


@pytest.mark.parametrize("wrong", WRONG_PARTS)
def test_a_wrong_part_hides_no_mistake_between_the_others(wrong):
    between = {
        "learners.large.rewards.correctness=0": "learners.large.rewards.correctness: weight 0 does nothing. Remove it.",
        "learners.large.mini_batches=1000": "learners.large.mini_batches: 1000 of 128 rows a step",
        "policies.third.model=tiny:small": (
            "policies.third: no sampler, reward or learner uses it. Remove it, or use it."
        ),
        "policies.old.follows=ghost": "policies.old.follows: 'ghost' is not a live policy. Live: small, large.",
        "evaluation.reward=right": "evaluation.reward: there is no reward 'right'.",
    }
    found = mistakes_of([wrong, *between])
    place = wrong.rpartition(".")[0]
    assert sum(mistake.startswith(place) for mistake in found) >= 1
    missing = [setting for setting, mistake in between.items() if not any(f.startswith(mistake) for f in found)]
    # What uses a policy, and how many rows there are, cannot be said where the part that decides it is not known.
    unknown = {
        "sampler.kind=nothing": ["learners.large.mini_batches=1000", "policies.third.model=tiny:small"],
        "rewards.kd.kind=nothing": ["policies.third.model=tiny:small"],
    }
    assert (
        not set(missing)
        - set(unknown.get(wrong, []))
        - ({"policies.third.model=tiny:small"} if ".terms." in wrong else set())
    )
