"""Which runs a report is of: plain ones by their recipe, compared ones by their arm; what cannot be read is said."""

import pytest

from grpo_kit.json_lines import read_lines
from grpo_kit.report.runs import grouped, read_runs
from report.made import comparison, metrics, run_folder, sample


def labels(folders):
    runs, _ = read_runs(folders)
    return {label: [(run.seed, run.path.name) for run in own] for label, own in grouped(runs).items()}


def test_seeds_of_a_recipe_are_one_group(tmp_path):
    folders = [run_folder(tmp_path / str(seed), seed=seed) for seed in (2, 0, 1)]
    other = run_folder(tmp_path / "other", name="rloo")
    assert labels([*folders, other]) == {"grpo": [(0, "0"), (1, "1"), (2, "2")], "rloo": [(0, "other")]}


def test_equal_names_and_seeds_are_told_apart_by_their_folders(tmp_path):
    one, two = run_folder(tmp_path / "one"), run_folder(tmp_path / "two")
    third = run_folder(tmp_path / "third", seed=1)
    assert labels([one, two, third]) == {"one": [(0, "one")], "two": [(0, "two")], "grpo": [(1, "third")]}
    deep = [run_folder(tmp_path / name / "run") for name in "ab"]
    assert list(labels(deep)) == [str(folder) for folder in deep]


def test_equal_arms_of_two_comparisons_are_told_apart(tmp_path):
    one, two = (comparison(tmp_path / name, ["grpo", name], seeds=(0, 1)) for name in ("one", "two"))
    later = comparison(tmp_path / "later", seeds=(1, 2))
    both = [(0, "run"), (1, "run")]
    assert labels([one, two]) == {"one/grpo": both, "one": both, "two/grpo": both, "two": both}
    assert list(labels([one, later])) == ["one/grpo", "one", "later/grpo"]  # all seeds of an arm stay together
    deep = [comparison(tmp_path / name / "same") for name in "ab"]
    assert list(labels(deep)) == [f"{folder}/grpo" for folder in deep]


def test_an_arm_and_a_run_of_one_name_are_told_apart(tmp_path):
    own, run, other = comparison(tmp_path / "own"), run_folder(tmp_path / "run"), run_folder(tmp_path / "x", seed=1)
    assert labels([own, run, other]) == {"own/grpo": [(0, "run")], "run": [(0, "run")], "grpo": [(1, "x")]}
    arm = comparison(tmp_path / "arm", ["a", "b"])
    runs = [run_folder(tmp_path / "b", name="a"), run_folder(tmp_path / "c", name="c")]
    assert list(labels([arm, *runs])) == ["arm/a", "b", str(runs[0]), "c"]  # the folder is called like an arm


def test_a_comparison_is_grouped_by_its_arms(tmp_path):
    for arm in ("first", "second"):
        for seed in (0, 1):
            run_folder(tmp_path / "runs" / arm / f"seed-{seed}" / "run", name="same", seed=seed)
    assert labels([tmp_path]) == {arm: [(0, "run"), (1, "run")] for arm in ("first", "second")}
    plain = run_folder(tmp_path / "plain", name="same")
    assert list(labels([tmp_path, plain])) == ["first", "second", "same"]


def test_runs_of_a_comparison_that_have_not_begun_are_left_out(tmp_path):
    run_folder(tmp_path / "runs" / "a" / "seed-0" / "run")
    late = run_folder(tmp_path / "runs" / "b" / "seed-0" / "run", lines=[])
    runs, notes = read_runs([tmp_path])
    assert [run.label for run in runs] == ["a"]
    assert notes == [f"{late}: no metrics yet; left out"]


def test_arms_come_in_the_order_of_the_plan(tmp_path):
    made = comparison(tmp_path / "made", ["small", "base", "large"])
    run_folder(made / "runs" / "another" / "seed-0" / "run")
    assert list(labels([made])) == ["small", "base", "large", "another"]


def test_arms_without_a_run_are_said(tmp_path):
    made = comparison(tmp_path / "made", ["base", "b", "late", "a", "prompt"], begun="ab", controls=("base", "prompt"))
    runs, notes = read_runs([made])
    assert [run.label for run in runs] == ["b", "a"]
    assert notes == [
        f"{made}: no run to draw of base, prompt: not trained (train = false); left out",
        f"{made}: no run to draw of late: not begun yet; left out",
    ]
    (made / "plan.toml").write_text("arms = 3")
    assert [run.label for run in read_runs([made])[0]] == ["a", "b"]
    (made / "plan.toml").write_text("[arms")
    with pytest.raises(ValueError, match=r"plan\.toml cannot be read: "):
        read_runs([made])


def test_a_comparison_of_which_nothing_has_begun(tmp_path):
    early = comparison(tmp_path / "early", begun=())
    with pytest.raises(ValueError, match=r"^no reported run of .*early has begun yet\. Draw it again once one has\.$"):
        read_runs([early])
    (early / "runs" / "grpo" / "seed-0").mkdir(parents=True)
    with pytest.raises(ValueError, match="has begun yet"):
        read_runs([early])
    asked = comparison(tmp_path / "asked", begun=(), controls=("grpo",))
    with pytest.raises(ValueError, match="asked has no run to draw: none of its arms is trained"):
        read_runs([asked])


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere' does not exist\. Give run folders"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"is no run folder \(it has no metrics\.jsonl\)"):
        read_runs([tmp_path])
    empty = run_folder(tmp_path / "empty", lines=[])
    with pytest.raises(ValueError, match="has no metrics yet: no step of it has ended"):
        read_runs([empty])
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="has no metrics yet"):
        read_runs([empty])
    late = tmp_path / "late"
    run_folder(late / "runs" / "a" / "seed-0" / "run", lines=[])
    with pytest.raises(ValueError, match=r"no run of .*late has metrics yet"):
        read_runs([late])
    damaged = run_folder(tmp_path / "damaged")
    (damaged / "metrics.jsonl").write_text("{\n[1]\n")
    with pytest.raises(ValueError, match="has no line that can be read"):
        read_runs([damaged])
    broken = run_folder(tmp_path / "broken")
    (broken / "recipe.resolved.toml").write_text("name = ")
    with pytest.raises(ValueError, match=r"recipe\.resolved\.toml cannot be read: "):
        read_runs([broken])
    (broken / "recipe.resolved.toml").unlink()
    with pytest.raises(ValueError, match=r"is no whole run folder: recipe\.resolved\.toml: No such file"):
        read_runs([broken])
    whole = run_folder(tmp_path / "whole")
    with pytest.raises(ValueError, match="whole is given twice"):
        read_runs([whole, whole / ".." / "whole"])


def test_damaged_lines_are_left_out_and_counted(tmp_path):
    run = run_folder(tmp_path / "run", samples=[sample()])
    for name in ("metrics.jsonl", "samples.jsonl"):
        with (run / name).open("a") as file:
            file.write('{"step": 7, "tor\n[]\n{"step": -1}\n{"step": true}\n' + "[" * 100_000 + "\n\n")
    (found,), notes = read_runs([run])
    assert [line["step"] for line in found.metrics] == [0, 1, 2, 3]
    assert len(found.samples) == 1
    assert notes == [
        f"{run / 'metrics.jsonl'}: 5 damaged lines left out (5, 6, 7, 8, 9)",
        f"{run / 'samples.jsonl'}: 5 damaged lines left out (2, 3, 4, 5, 6)",
    ]


def test_numbers_that_no_page_can_hold_are_none(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(
        '{"step": 1, "a": NaN, "b": -Infinity, "c": 1e999, "d": ' + "9" * 400 + ', "e": 9007199254740993}\n'
    )
    assert read_lines(file) == ([{"step": 1, "a": None, "b": None, "c": None, "d": None, "e": None}], [])


def test_only_numbers_are_metrics(tmp_path):
    run = run_folder(tmp_path / "run", lines=[*metrics(1), {"step": 2, "a": "text", "b": True, "c": 1, "d": None}])
    (found,), _ = read_runs([run])
    assert found.metrics[-1] == {"step": 2, "c": 1, "d": None}
    assert found.steps == 2
