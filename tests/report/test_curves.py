"""Curves: bands over seeds, gaps, which metrics go where; their numbers are those of the files."""

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from grpo_kit.report.bands import MOST_POINTS, band
from grpo_kit.report.command import report_data
from grpo_kit.report.figures import COLORS, curves, shown, stage_times
from grpo_kit.report.panels import KNOWN, Panel, panels
from grpo_kit.report.runs import grouped, read_runs
from report.made import HOSTILE, metrics, run_folder

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"
NUMBER = st.floats(-1e6, 1e6)


@given(st.lists(st.dictionaries(st.integers(0, 6), st.none() | NUMBER, max_size=7), min_size=1, max_size=4))
def test_a_band_is_the_mean_the_least_and_the_greatest_of_each_step(seeds):
    found = band([[{"step": step, "x": value} for step, value in own.items()] for own in seeds], "x")
    by_step = {step: [own[step] for own in seeds if own.get(step) is not None] for own in seeds for step in own}
    if not any(by_step.values()):
        assert found is None
        return
    assert list(found.steps) == sorted(by_step)
    for step, mean, low, high, count in zip(found.steps, found.mean, found.low, found.high, found.seeds, strict=True):
        values = by_step[step]
        assert count == len(values)
        assert (low, high) == ((min(values), max(values)) if values else (None, None))
        assert mean == (pytest.approx(sum(values) / count, abs=1e-6) if values else None)
        assert mean is None or low - 1e-9 <= mean <= high + 1e-9
    inside = [place for stretch in found.stretches() for place in stretch]
    assert inside == [place for place, count in enumerate(found.seeds) if count > 1]
    assert all(
        one.stop < other.start for one, other in zip([*found.stretches()], [*found.stretches()][1:], strict=False)
    )


def test_one_seed_is_its_own_numbers_and_a_step_written_twice_is_the_last():
    lines = [{"step": 1, "x": 0.1}, {"step": 2, "x": 0.7}, {"step": 2, "x": 0.3}, {"step": 3}, {"step": 4, "x": None}]
    found = band([lines], "x")
    assert (found.steps, found.mean, found.seeds) == ((1, 2, 4), (0.1, 0.3, None), (1, 1, 0))
    assert list(found.stretches()) == []


@given(st.integers(1, 200), st.integers(2, 50))
def test_a_long_curve_has_so_many_points_from_the_first_to_the_last(count, most):
    found = band([[{"step": step, "x": 2.0 * step} for step in range(count)]], "x").thinned(most)
    assert (found.steps[0], found.steps[-1]) == (0, count - 1)
    assert len(found.steps) == len({*found.steps}) <= most
    assert found.steps == tuple(range(count)) or count > most
    assert found.mean == found.low == found.high == tuple(2.0 * step for step in found.steps)


def test_a_picture_of_a_long_run_is_thinned(tmp_path):
    lines = [{"step": step, "x": float(step)} for step in range(5001)]
    runs, _ = read_runs([run_folder(tmp_path / "run", lines=lines)])
    (line,) = curves(panels(["x"], [])[0], grouped(runs))["data"]
    assert 1000 < len(line["x"]) <= MOST_POINTS
    assert (line["x"][0], line["x"][-1], line["y"][-1]) == (0, 5000, 5000.0)


def made(tmp_path, **more):
    folders = [run_folder(tmp_path / f"{seed}", seed=seed, lines=metrics(shift=0.1 * seed, **more)) for seed in (0, 1)]
    folders.append(run_folder(tmp_path / "other", name="rloo", lines=metrics(shift=0.5)))
    runs, _ = read_runs(folders)
    return grouped(runs)


def panel(data, title):
    return next(own for section in data["sections"] for own in section["panels"] if own["title"] == title)


def test_the_numbers_drawn_are_those_of_the_files(tmp_path):
    data = report_data(made(tmp_path), [], [])
    area, line, single = panel(data, "Total reward")["figure"]["data"]
    assert line["x"] == single["x"] == [1, 2, 3]
    assert line["y"] == [(0.1 * step + 0.1 * step + 0.1) / 2 for step in (1, 2, 3)]
    assert single["y"] == [0.1 * step + 0.5 for step in (1, 2, 3)]
    assert line["customdata"] == [[0.1 * step, 0.1 * step + 0.1, 2] for step in (1, 2, 3)]
    assert area["x"] == [1, 2, 3, 3, 2, 1]
    assert area["y"] == [*(0.1 * step + 0.1 for step in (1, 2, 3)), *(0.1 * step for step in (3, 2, 1))]
    assert area["fill"] == "toself"
    assert (line["name"], single["name"]) == ("grpo · small", "rloo · small")
    assert line["line"]["color"] != single["line"]["color"]
    bars = {own["name"]: own for own in panel(data, "Stages of a step")["figure"]["data"]}
    assert set(bars) == {"sample", "update/small"}
    assert tuple(bars["update/small"]["x"]) == (0.5, 0.5)  # the mean of 0.25, 0.5 and 0.75
    assert tuple(bars["sample"]["y"]) == ("grpo", "rloo")


def test_a_number_that_is_not_there_is_a_gap_and_no_empty_panel(tmp_path):
    lines = [{"step": 1, "a": 0.0, "b": None}, {"step": 2, "a": None, "b": None}, {"step": 3, "a": 2.0}]
    runs, _ = read_runs([run_folder(tmp_path / "run", lines=lines)])
    data = report_data(grouped(runs), [], [])
    (section,) = data["sections"]
    (own,) = section["panels"]
    (line,) = own["figure"]["data"]
    assert own["title"] == "a"
    assert line["y"] == [0.0, None, 2.0]
    assert line["connectgaps"] is False


def test_the_summary_goes_from_the_first_evaluation_to_the_last(tmp_path):
    assert report_data(made(tmp_path), [], [])["summary"] == {
        "head": ["", "seeds", "steps", "small accuracy", "small greedy"],
        "lines": [
            [["grpo", ""], ["0, 1", ""], ["3", ""], ["0.300 → 0.550", "0.500 to 0.600"], ["0.500", ""]],
            [["rloo", ""], ["0", ""], ["3", ""], ["0.750 → 1.000", ""], ["0.500", ""]],
        ],
    }


def test_the_summary_ends_where_all_seeds_are(tmp_path):
    accuracies = {0: [0.25, 0.5, 0.875], 1: [0.5, 0.75]}
    folders = [
        run_folder(
            tmp_path / str(seed),
            seed=seed,
            lines=[{"step": 10 * place, "eval/small/accuracy": value} for place, value in enumerate(own)],
        )
        for seed, own in accuracies.items()
    ]
    below = "0.500 to 0.750; at step 10, the last that all seeds have; some are at 20"
    assert _lines(folders) == [[["grpo", ""], ["0, 1", ""], ["10-20", ""], ["0.375 → 0.625", below]]]
    folders.append(run_folder(tmp_path / "2", seed=2, lines=[{"step": 1}]))
    assert _lines(folders)[0][3] == ["-", "no step that all 3 seeds have yet; step 20 is the last of some"]


def _lines(folders):
    return report_data(grouped(read_runs(folders)[0]), [], [])["summary"]["lines"]


def test_statuses_and_components_are_told_apart_by_the_recipe():
    keys = ["reward/small/task", "reward/small/task_two", "reward/small/task_two_timeout", "reward/small/task_timeout"]
    found = panels(keys, ["task", "task_two"])
    assert {own.title: own.series for own in found} == {
        "Component task": (("small", "reward/small/task"),),
        "Component task_two": (("small", "reward/small/task_two"),),
        "Statuses of task (shares)": (("small: timeout", "reward/small/task_timeout"),),
        "Statuses of task_two (shares)": (("small: timeout", "reward/small/task_two_timeout"),),
    }


def test_every_metric_is_drawn_once_and_in_order():
    keys = ["step", "time/step", "time/look", "learner/a/version", "eval/a/pass@1", "eval/a/pass@16", "eval/a/pass@4"]
    keys += ["learner/a/kl/kl", "learner/a/grad_norm", "learner/b/grad_norm", "unknown/x", "sampler/stop_eos"]
    found = panels(keys, [])
    assert [own.title for own in found] == [
        "pass@4", "pass@16", "KL of the divergence", "Gradient norm", "Why rows ended (shares)", "Seconds a step",
        "unknown/x",
    ]  # fmt: skip
    assert next(own for own in found if own.title == "Gradient norm") == Panel(
        section="Optimizer",
        title="Gradient norm",
        key="learner/<learner>/grad_norm",
        series=(("a", "learner/a/grad_norm"), ("b", "learner/b/grad_norm")),
    )


def test_flops_and_tokens_trained_on_have_their_panels():
    keys = [f"flops/{policy}/{stage}" for policy in ("large", "small") for stage in ("sample", "score", "update")]
    found = panels([*keys, "learner/large/tokens", "learner/small/tokens"], [])
    assert [(own.section, own.title, own.key) for own in found] == [
        ("Optimizer", "Tokens trained on", "learner/<learner>/tokens"),
        ("Speed", "Model FLOPs a step, by policy and stage", "flops/<policy>/<stage>"),
    ]
    assert found[0].series == (("large", "learner/large/tokens"), ("small", "learner/small/tokens"))
    assert found[1].series == tuple((key.removeprefix("flops/"), key) for key in keys)


def test_the_keys_of_panels_are_documented():
    documented = set(re.findall(r"^\| `([^`]+)` \|", METRICS.read_text(), re.MULTILINE))
    several = {"sampler/length_<of>", "sampler/mismatch/<policy>/<what>", "flops/<policy>/<stage>"}
    assert {key for _, _, key in KNOWN} - several <= documented
    unplaced = {panel.key for panel in panels(documented, ["<component>"]) if panel.section == "Others"}
    assert unplaced == {"skipped"}, "every other documented metric has a section of its own kind"


def test_names_are_no_markup():
    assert shown("a\x1b<b>&\n") == r"a\x1b&lt;b&gt;&amp;\n"


def test_names_are_no_templates(tmp_path):
    assert shown("%{meta.label}%{{") == "%&#123;meta.label}%&#123;{"
    runs, _ = read_runs([run_folder(tmp_path / "run", lines=[{"step": 1, "x": 1.0, "time/%{y}": 1.0}])])
    groups = {"%{meta.label}": runs, "two": runs}
    for figure in (curves(panels(["x"], [])[0], groups), stage_times(groups)):
        for own in figure["data"]:
            assert "meta" not in own
            assert not any("%{" in str(text) for text in (own["name"], own["x"], own["y"]))


def test_hostile_labels_reach_no_picture(tmp_path):
    runs, _ = read_runs(
        [run_folder(tmp_path / "run", name="x", lines=[{"step": 1, f"a{HOSTILE}": 1.0, "time/x<b>": 1.0}])]
    )
    groups = {f"<img>{HOSTILE}": runs, "two": runs}
    (found,) = panels([f"a{HOSTILE}"], [])
    for figure in (curves(found, groups), stage_times(groups)):
        texts = [
            text for own in figure["data"] for text in (own["name"], *(own.get("y") or ())) if isinstance(text, str)
        ]
        assert texts
        texts += [line for text in figure["layout"]["yaxis"].get("ticktext", ()) for line in text.split("<br>")]
        assert not any("<" in text or "\x1b" in text or "\u202e" in text for text in texts)


def test_the_colors_differ():
    assert len({*COLORS}) == len(COLORS)
