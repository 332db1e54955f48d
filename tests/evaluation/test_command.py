"""An evaluation from start to end, on the tiny pair: numbers, files, mistakes."""

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from grpo_kit import Arithmetic, RecipeError, read_recipe
from grpo_kit.config import find_recipe
from grpo_kit.evaluation import command
from grpo_kit.evaluation.command import eval_command, same_answers
from grpo_kit.evaluation.estimates import Tally, accuracy, interval, mean_pass_at_k
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

ROWS = [{"problem": row["prompt"], "answer": row["answer"]} for row in Arithmetic(rows=12, split="eval")()]


def write_rows(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run_eval(model, tmp_path, *, terminal=False, **settings):
    """The exit code, what was printed, the report, and every completion."""
    out, completions = tmp_path / "report.json", tmp_path / "completions.jsonl"
    for path in (out, completions):
        path.unlink(missing_ok=True)
    with (tmp_path / "log").open("w") as log:
        console = Console(file=log, width=120, force_terminal=terminal)
        code = eval_command(
            model, **{"template": "{prompt}"} | settings, out=out, completions=completions, console=console
        )
    lines = [json.loads(line) for line in completions.read_text().splitlines()]
    return code, (tmp_path / "log").read_text(), json.loads(out.read_text()), lines


def test_the_report_is_what_the_completions_say(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl")
    code, log, report, lines = run_eval("tiny:small", tmp_path, data=[data], samples=4, max_new_tokens=24)
    assert code == 0
    assert [(line["question"], line["sample"]) for line in lines] == [(q, s) for q in range(12) for s in range(4)]
    assert [line["gold"] for line in lines] == [row["answer"] for row in ROWS for _ in range(4)]
    for line in lines:  # the tiny pair writes integers only, so that plain equality is the grader's
        assert line["right"] == float(line["answer"] == line["gold"])
        assert line["status"] == ("no_answer" if line["answer"] is None else "ok")
    (result,) = report["results"]
    tallies = [Tally(int(sum(x["right"] for x in lines[i : i + 4])), 4) for i in range(0, 48, 4)]
    assert (result["policy"], result["data"]) == ("tiny:small", "sums")
    assert (result["questions"], result["samples"], result["missing"]) == (12, 4, 0)
    assert 0 < result["accuracy"] == accuracy(tallies) < 1
    assert result["interval"] == list(interval(tallies))
    assert result["pass_at"] == {str(k): mean_pass_at_k(tallies, k) for k in (1, 2, 4)}
    assert result["length"] == sum(line["tokens"] for line in lines) / 48
    cut = [line for line in lines if line["stop_reason"] == "length"]
    assert result["truncated"] == len(cut) / 48
    unanswered = [line for line in lines if line["status"] == "no_answer"]
    assert result["statuses"]["no_answer"] == len(unanswered) > 3
    assert result["statuses"]["ok"] == 48 - len(unanswered)
    assert [example["question"] for example in result["examples"]] == [line["question"] for line in unanswered[:3]]
    assert report["settings"]["temperature"] == 1.0
    assert report["versions"]["grpo_kit"]
    printed = dict(line.strip().split(": ", 1) for line in log.splitlines() if line.startswith("  "))
    assert printed["accuracy"] == f"{result['accuracy']:.3f}"
    assert printed["95 % interval"] == "{:.3f} to {:.3f}".format(*result["interval"])
    assert printed["pass@4"] == f"{result['pass_at']['4']:.3f}"
    assert printed["maj@4"] == f"{result['majority']:.3f}"
    assert printed["status no_answer"] == f"{len(unanswered)} of 48"
    assert "tiny:small on sums: no_answer, e.g. question " in log


def test_one_completion_a_question_is_greedy(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl")
    first = run_eval("tiny:large", tmp_path, data=[data], questions=5)
    second = run_eval("tiny:large", tmp_path, data=[data], questions=5, seed=7)
    assert first[3] == second[3]
    assert len(first[3]) == 5
    assert "greedy" in first[1]
    assert first[2]["results"][0]["accuracy"] == 1.0
    assert first[2]["results"][0]["interval"][0] < 0.7
    assert first[2]["results"][0]["majority"] is None
    assert "maj@" not in first[1]


def test_samples_depend_on_the_seed_and_not_on_the_batch(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl")
    settings = {"data": [data], "samples": 3, "questions": 6}
    texts = [
        [line["text"] for line in run_eval("tiny:small", tmp_path, **settings, **more)[3]]
        for more in ({}, {"rows_per_batch": 4}, {"seed": 1})
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_table_in_a_terminal_has_a_column_a_result(tmp_path):
    one, two = write_rows(tmp_path / "one.jsonl", ROWS[:3]), write_rows(tmp_path / "two.jsonl", ROWS[3:6])
    _, log, report, _ = run_eval("tiny:large", tmp_path, data=[one, two], terminal=True)
    assert [result["data"] for result in report["results"]] == ["one", "two"]
    (line,) = [line for line in log.splitlines() if "95 % interval" in line]
    assert line.count(" to ") == 2


def test_named_sets_read_hub_columns_and_plain_ones(tmp_path):
    hub = write_rows(
        tmp_path / "hub.jsonl",
        [{"question": row["problem"], "answer": f"think\n#### {row['answer']}"} for row in ROWS[:4]],
    )
    lists = write_rows(
        tmp_path / "lists.jsonl", [{"question": row["problem"], "final_answer": [row["answer"]]} for row in ROWS[:4]]
    )
    plain = write_rows(tmp_path / "plain.jsonl", ROWS[:4])
    data = [f"gsm8k={hub}", f"olympiadbench={lists}", f"math500={plain}"]
    _, _, report, lines = run_eval("tiny:large", tmp_path, data=data)
    assert [result["data"] for result in report["results"]] == ["gsm8k", "olympiadbench", "math500"]
    golds = [line["gold"] for line in lines]
    assert golds == [row["answer"] for row in ROWS[:4]] * 3


def test_csv_columns_may_have_any_name(tmp_path):
    with (tmp_path / "sums.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["q", "a"])
        writer.writerows([row["problem"], row["answer"]] for row in ROWS[:3])
    settings = {"data": [str(tmp_path / "sums.csv")], "columns": ["prompt=q", "answer=a"]}
    _, _, report, lines = run_eval("tiny:large", tmp_path, **settings)
    assert report["results"][0]["accuracy"] == 1.0
    assert [line["gold"] for line in lines] == [row["answer"] for row in ROWS[:3]]
    with pytest.raises(
        ValueError, match=r"sums: no column 'prompt' or 'problem' or 'question'\. It has: q, a\. .*--column prompt=NAME"
    ):
        run_eval("tiny:large", tmp_path, data=settings["data"])


def test_rows_that_cannot_be_asked_are_named(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl", [ROWS[0], {"problem": "", "answer": "1"}, ROWS[1]])
    _, log, report, lines = run_eval("tiny:large", tmp_path, data=[data])
    assert len(lines) == 2
    (reason,) = report["results"][0]["skipped"]
    assert reason.startswith("line 2: no prompt")
    assert f"  {reason}" in log.splitlines()
    assert "sums: 1 of 3 rows cannot be used (1 no prompt) and are skipped:" in log.splitlines()


def test_gold_answers_that_cannot_be_read_are_named_and_not_asked(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl", [ROWS[0], {"problem": ROWS[1]["problem"], "answer": r"\frac{"}])
    _, _, report, lines = run_eval("tiny:large", tmp_path, data=[data])
    assert len(lines) == 1
    assert report["results"][0]["skipped"] == [
        r"line 2: column 'answer': '\\frac{' is neither words nor mathematics that can be read"
    ]


def test_strict_counts_boxed_answers_only(tmp_path):
    data = write_rows(tmp_path / "sums.jsonl", ROWS[:4])
    _, _, lenient, _ = run_eval("tiny:large", tmp_path, data=[data])
    settings = []

    def measure(*arguments, **given):
        settings.append((given["reward"].strict, given["strict"]))
        return original(*arguments, **given)

    original = command.measure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "measure", measure)
        _, _, strict, _ = run_eval("tiny:large", tmp_path, data=[data], strict=True)
    assert settings == [(True, True)]
    assert strict["results"][0]["accuracy"] == lenient["results"][0]["accuracy"] == 1.0  # it boxes


def test_worked_examples_go_in_front_of_every_question(tmp_path, monkeypatch):
    data = write_rows(tmp_path / "sums.jsonl", ROWS[:2])
    shots = tmp_path / "shots.jsonl"
    shots.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(3)))
    seen = []

    def measure(policy, questions, **settings):
        seen.extend(policy.tokenizer.decode(list(ids)) for ids in questions.ids)
        return original(policy, questions, **settings)

    original = command.measure
    monkeypatch.setattr(command, "measure", measure)
    run_eval("tiny:small", tmp_path, data=[data], few_shot=shots, shots=2, max_new_tokens=2)
    # The tiny tokenizer has no space.
    assert seen == [f"0+1=<unk>1\n\n1+1=<unk>2\n\n{row['problem']}" for row in ROWS[:2]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of codistill with two trained policies."""
    settings = ["data.rows=64", "steps=1", "prompts_per_step=2", "evaluation.questions=4", "evaluation.samples=2"]
    recipe = read_recipe("codistill", settings=settings)
    out = tmp_path_factory.mktemp("run") / "out"
    source = find_recipe("codistill").read_text()
    assert start(recipe, load_inputs(recipe), source, out=out, console=Console(quiet=True)).run() == 0
    return out


@pytest.mark.slow
def test_a_run_is_asked_as_it_was_trained_each_policy_in_turn(run, tmp_path):
    data = write_rows(tmp_path / "sums.jsonl")
    _, _, report, _ = run_eval(str(run), tmp_path, data=[data], template=None)
    assert [result["policy"] for result in report["results"]] == ["small", "large"]
    assert all(result["asked"]["template"] == "{prompt}" for result in report["results"])
    _, _, report, _ = run_eval(str(run), tmp_path, data=[data], template=None, policy="large")
    assert [result["policy"] for result in report["results"]] == ["large"]
    assert report["results"][0]["accuracy"] > 0.5


def test_a_run_without_data_is_asked_its_own_questions(run, tmp_path):
    _, _, report, lines = run_eval(str(run), tmp_path, data=[], template=None, policy="large", questions=6)
    assert report["results"][0]["data"] == "own questions"
    assert len(lines) == 6


def test_every_mistake_is_listed_at_once_and_nothing_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").touch()
    with pytest.raises(RecipeError) as caught:
        eval_command(
            "./nowhere",
            data=["mth500", "none.jsonl"],
            columns=["prompt"],
            samples=2,
            temperature=0.0,
            top_p=1.5,
            questions=0,
            out=Path("there.json"),
            completions=Path("no/c.jsonl"),
            console=Console(quiet=True),
        )
    head, *mistakes = str(caught.value).splitlines()
    assert head == "eval: 9 mistakes"
    starts = ["--questions 0: at least 1", "--temperature 0 gives 2 completions that are all the same", "--top-p 1.5"]
    starts += ["--out there.json exists already", "--completions no/c.jsonl: there is no folder"]
    starts += ["--column prompt: write prompt=THEIRS", "model './nowhere' is no folder here", "--data: 'mth500'"]
    starts += ["--data: 'none.jsonl' is no file here"]
    for mistake, begin in zip(mistakes, starts, strict=True):
        assert mistake.strip().startswith(begin)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": []}, "no --data is given, and this is no run with evaluation questions of its own"),
        ({"max_new_tokens": 255}, r"and --max-new-tokens 255 need \d+ positions; 'tiny:small' has 256\. Lower"),
        ({"chat": True}, "the tokenizer has no chat template: use --no-chat"),
        ({"system": "Be brief."}, "a system message needs chat"),
        ({"template": "Solve it."}, r"--template 'Solve it\.' has no \{prompt\}"),
        ({"shots": 0}, "--shots 0: at least 1"),
        ({"shots": 1}, "few_shot_count counts examples and there are none"),
        ({"device": "banana"}, "device 'banana' is none"),
    ],
)
def test_what_does_not_fit_the_model_is_said(settings, message, tmp_path):
    data = write_rows(tmp_path / "sums.jsonl")
    given = {"data": [data], "template": "{prompt}"} | settings
    with pytest.raises(ValueError, match=message):
        eval_command("tiny:small", **given, console=Console(quiet=True))


def test_answers_are_the_same_by_the_graders_equality():
    assert same_answers([(r"\frac{1}{2}", "0.5"), ("2", "3"), ("x+1", "1+x")]) == [True, False, True]


def test_ctrl_c_reports_the_sets_that_were_finished(tmp_path, monkeypatch):
    one, two = write_rows(tmp_path / "one.jsonl", ROWS[:3]), write_rows(tmp_path / "two.jsonl", ROWS[3:6])
    finish = command.conclude

    def stop_after_one(*arguments, **settings):
        if settings["data"] == "two":
            raise KeyboardInterrupt
        return finish(*arguments, **settings)

    monkeypatch.setattr(command, "conclude", stop_after_one)
    code, log, report, _ = run_eval("tiny:large", tmp_path, data=[one, two])
    assert code == 130
    assert [result["data"] for result in report["results"]] == ["one"]
    assert "stopped: 1 of 2 evaluations were finished and are reported" in log.splitlines()
