"""The scripts of examples/experiments: styles of answers, the teachers made of them, and the modeled cost."""

import json
import runpy
from functools import cache
from itertools import product
from math import isnan, nan, sqrt
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_kit.data.arithmetic import SLIPS, Arithmetic, gold, terms_of, worked_answer
from grpo_kit.grading.extract import last_boxed
from grpo_kit.policies.tiny.warm_up import VOCABULARY, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
FOLDER = Path(__file__).parents[1] / "examples" / "experiments"
STYLES = (
    "twice",
    "positives_first",
    "right_to_left",
    "equation_reversed",
    "chained",
    "totals",
    "boxed_totals",
    "half_chained",
)
WRITTEN = {
    "twice": "3+8=11|3+8=11|11-5=6|11-5=6|6+2=8|6+2=8|\\boxed{8}",
    "positives_first": "3+8=11|11+2=13|13-5=8|\\boxed{8}",
    "right_to_left": "-5+2=-3|8-3=5|3+5=8|\\boxed{8}",
    "equation_reversed": "11=3+8|6=11-5|8=6+2|\\boxed{8}",
    "chained": "3+8=11-5=6+2=8|\\boxed{8}",
    "totals": "11|6|8|\\boxed{8}",
    "boxed_totals": "\\boxed{11}|\\boxed{6}|\\boxed{8}",
}


@pytest.fixture(scope="module")
def styles():
    return runpy.run_path(str(FOLDER / "styles.py"))


@pytest.fixture
def teachers(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))  # where Python looks first when the script is run
    return runpy.run_path(str(FOLDER / "teachers.py"))


@pytest.fixture(scope="module")
def cost():
    return runpy.run_path(str(FOLDER / "cost_model.py"))


@pytest.fixture(scope="module")
def row_length():
    return SimpleNamespace(**runpy.run_path(str(FOLDER / "row_length.py")))


@cache
def questions(task="plain", rows=200):
    return Arithmetic(task=task, split="eval", rows=rows)()["prompt"][:]


@pytest.mark.parametrize("style", WRITTEN)
def test_a_style_is_written_as_its_docstring_says(styles, style):
    assert styles[style]("3+8-5+2=", 0.0, Random(0)) == WRITTEN[style].replace("|", "\n")


@pytest.mark.parametrize("task", ["plain", "sparse"])
@pytest.mark.parametrize("style", STYLES)
def test_an_answer_without_errors_is_right_and_of_the_vocabulary(styles, style, task):
    tokenizer, random = make_tokenizer(), Random(0)
    for question in questions(task):
        answer = styles[style](question, 0.0, random)
        assert last_boxed(answer) == str(gold(question))
        ids = tokenizer(answer)["input_ids"]
        assert VOCABULARY.index("<unk>") not in ids
        assert tokenizer.decode(ids) == answer


@pytest.mark.parametrize("style", [style for style in STYLES if style != "twice"])
def test_plain_answers_have_room_in_48_tokens(styles, style):
    tokenizer, random = make_tokenizer(), Random(0)
    answers = [styles[style](question, 0.0, random) for question in questions(rows=2000)]
    assert max(map(len, tokenizer(answers)["input_ids"])) + 1 <= 48


@pytest.mark.parametrize("style", STYLES)
def test_totals_are_wrong_as_often_as_told(styles, style):
    random, rate = Random(0), 0.4
    expected, right, variance = 0.0, 0, 0.0
    for question in questions(rows=1500):
        answer = styles[style](question, rate, random)
        right += last_boxed(answer) == str(gold(question))
        chance = chance_of_right(len(terms_of(question)) - 1, rate)
        expected, variance = expected + chance, variance + chance * (1 - chance)
    assert right == pytest.approx(expected, abs=5 * sqrt(variance))


@cache
def chance_of_right(totals, rate):
    """That the slips of so many totals add up to 0: each is none, or one of 18 equally likely ones."""
    sums = {0: 1.0}
    for _ in range(totals):
        after = {}
        for (sum_, chance), slip in product(sums.items(), (0, *SLIPS)):
            of_slip = 1 - rate if slip == 0 else rate / len(SLIPS)
            after[sum_ + slip] = after.get(sum_ + slip, 0.0) + chance * of_slip
        sums = after
    return sums[0]


@pytest.mark.parametrize("style", STYLES)
def test_the_seed_decides_the_answers(styles, style):
    first, again, other = (
        [styles[style](question, 0.5, random) for question in questions(rows=50)] for random in map(Random, (3, 3, 4))
    )
    assert first == again != other


def test_half_chained_are_half_of_each(styles):
    random, question = Random(0), "3+8-5+2="
    forms = {worked_answer(question, 0.0, random): 0, styles["chained"](question, 0.0, random): 0}
    for _ in range(1000):
        forms[styles["half_chained"](question, 0.0, random)] += 1
    # Five standard deviations of a share of 1000 tosses.
    assert list(forms.values()) == [pytest.approx(500, abs=5 * sqrt(250))] * 2


def test_teachers_are_made_and_measured(teachers, tmp_path, monkeypatch, capsys):
    inside, make, compare = (teachers["main"].__globals__, teachers["make"], teachers["compare"])
    monkeypatch.setitem(inside, "make", lambda *given, **named: make(*given, **named, steps=1))
    monkeypatch.setitem(inside, "compare", lambda *given, **named: compare(*given, **named, prompts=8))
    names = ["kin", "totals"]
    teachers["main"](tmp_path, seed=3, styles=names, questions=4)
    said = capsys.readouterr().out
    assert "| totals | `11 6 8 \\boxed{8}` |" in said
    for name in names:
        model = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path / name)) == len(VOCABULARY)
        found = json.loads((tmp_path / name / "measured.json").read_text())
        assert 0 <= found["accuracy"] <= 1
        assert 0.0 < found["overlap"] <= 1
        assert found["reverse_kl"] > 0
        assert found["seconds"] > 0


def test_a_teacher_that_goes_on_from_a_model_starts_with_its_weights(teachers, tmp_path):
    write = teachers["STYLES"]["kin"].write
    near = teachers["compare"](teachers["make"]("kin", tmp_path, steps=0), write, questions=4, prompts=16)
    assert near.overlap == 1
    assert near.log_ratio == near.reverse_kl == 0


def test_teachers_are_decided_by_their_seed(teachers, tmp_path):
    folders = [
        teachers["make"]("totals", tmp_path / str(place), seed=seed, steps=1) for place, seed in enumerate((5, 5, 6))
    ]
    first, again, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == again != other


def test_pairs_are_made_instead_of_teachers(teachers, tmp_path, monkeypatch):
    made = teachers["make_pair"]
    monkeypatch.setitem(teachers["main"].__globals__, "make_pair", lambda out, seed: made(out, seed, steps=1))
    teachers["main"](tmp_path, pairs=[100, 101])
    assert {folder.name for folder in tmp_path.iterdir()} == {"pair-100", "pair-101"}
    for name in ("small", "large"):
        first, other = (tmp_path / pair / name / "model.safetensors" for pair in ("pair-100", "pair-101"))
        assert first.read_bytes() != other.read_bytes()
        AutoModelForCausalLM.from_pretrained(first.parent)


def test_an_unknown_style_is_refused_before_anything_is_made(teachers, tmp_path):
    with pytest.raises(typer.BadParameter, match=r"no such style: total\. Known: kin, "):
        teachers["main"](tmp_path / "out", styles=["totals", "total"])
    assert not (tmp_path / "out").exists()


def test_ten_styles_have_a_teacher_and_each_is_tested(teachers):
    assert len(teachers["STYLES"]) == 10
    writers = {style.write.__name__ for style in teachers["STYLES"].values()}
    assert writers <= {"worked_answer", *STYLES}


def test_parameters_are_those_of_the_published_models(cost):
    # A layer of the small one: 2 * 1536^2 + 2 * 1536 * 256 (attention) + 3 * 1536 * 8960 (MLP) + 1536 + 2 * 256
    # (biases) + 2 * 1536 (norms) = 46_797_824; 28 of them, the embedding 151936 * 1536 = 233_373_696, the last norm.
    assert cost["SMALL"].parameters == 1_543_714_304 == 28 * 46_797_824 + 233_373_696 + 1536
    # Of the large one: 2 * 3584^2 + 2 * 3584 * 512 + 3 * 3584 * 18944 + 3584 + 2 * 512 + 2 * 3584 = 233_057_792;
    # embedding and head 152064 * 3584 = 544_997_376 each.
    assert cost["LARGE"].parameters == 7_615_616_512 == 28 * 233_057_792 + 2 * 544_997_376 + 3584


def test_flops_and_bytes_of_a_token(cost):
    # 2 * (28 * 46_792_704 + 233_373_696) for the matrices, 2 * 2 * 28 * 1536 * 1000 for attention to 1000 tokens.
    assert cost["token_flops"](cost["SMALL"], 1000) == 3_087_138_816 + 172_032_000
    # Keys and values, 28 layers, 2 heads (4 of the large one) of 128 numbers, 2 bytes.
    assert cost["SMALL"].cache_bytes == 2 * 28 * 2 * 128 * 2 == 28_672
    assert cost["LARGE"].cache_bytes == 2 * cost["SMALL"].cache_bytes


def test_a_row_is_read_as_its_tokens_one_by_one(cost):
    given, tokens = cost["Assumptions"](mfu=0.5), 4096
    flops = sum(cost["token_flops"](cost["SMALL"], context) for context in range(tokens))
    assert cost["forward_seconds"](cost["SMALL"], 3, tokens, given) == pytest.approx(
        3 * flops / (0.5 * 989e12), rel=1e-3
    )


def test_rows_at_once_are_bounded_by_rows_the_limit_and_the_cache(cost):
    def at_once(shape, rows, limit):
        return cost["rows_at_once"](cost[shape], rows, cost["Assumptions"](concurrency=limit))

    assert at_once("SMALL", 40, 64) == 40
    assert at_once("SMALL", 512, 64) == 64
    # (0.6 * 80e9 - 2 * 1_543_714_304) / (28_672 * 4096) = 382.4
    assert at_once("SMALL", 512, 512) == 382
    # (0.6 * 80e9 - 2 * 7_615_616_512) / (57_344 * 4096) = 139.5
    assert at_once("LARGE", 512, 512) == 139


def test_generation_is_its_prefill_and_its_tokens_one_by_one(cost):
    # Bound by bytes: 64 rows at once in 8 turns, each token reads the weights and 64 caches.
    given, small = cost["Assumptions"](decode_share=0.5, concurrency=64), cost["SMALL"]
    read = sum(2 * small.matrix_parameters + 64 * 28_672 * (1024 + token) for token in range(3072))
    prefill = cost["forward_seconds"](small, 64, 1024, given)
    expected = prefill + 8 * read / (0.5 * 3.35e12)
    assert cost["generate_seconds"](small, 8, given) == pytest.approx(expected, rel=1e-3)
    # Bound by FLOPs once the bandwidth is not: 512 rows of 3072 tokens, however many at once.
    fast = cost["Assumptions"](decode_share=1000.0, concurrency=64)
    flops = 512 * sum(cost["token_flops"](small, 1024 + token) for token in range(3072))
    expected = prefill + flops / (0.4 * 989e12)
    assert cost["generate_seconds"](small, 8, fast) == pytest.approx(expected, rel=1e-3)


def test_stages_of_codistill_against_those_of_grpo(cost):
    given = cost["Assumptions"]()
    for shape in (cost["SMALL"], cost["LARGE"]):
        alone, paired = cost["grpo"](shape, given), cost["codistill"](shape, given)
        assert alone.update == pytest.approx(3 * alone.score)
        assert paired.score == pytest.approx(14 / 8 * alone.score)
        assert paired.update == pytest.approx(alone.update)
    assert paired.generate == 0  # the large one writes nothing
    assert cost["codistill"](cost["SMALL"], given).generate > cost["grpo"](cost["SMALL"], given).generate


@pytest.mark.parametrize("ratio", ["both", "alone", "learner"])
def test_codistill_gains_where_decoding_is_dear(cost, ratio):
    slow, fast = (cost[ratio](cost["Assumptions"](decode_share=share)) for share in (0.3, 0.7))
    few, many = (cost[ratio](cost["Assumptions"](concurrency=rows)) for rows in (32, 128))
    idle, busy = (cost[ratio](cost["Assumptions"](mfu=mfu)) for mfu in (0.3, 0.5))
    assert slow < fast
    assert few < many
    assert busy < idle


def test_the_spread_covers_its_corners(cost):
    low, middle, high = cost["spread"](cost["both"])
    cheapest = cost["both"](cost["Assumptions"](decode_share=0.3, mfu=0.5, concurrency=32))
    assert low == pytest.approx(cheapest)
    assert low < middle < high
    assert low <= cost["spread"](cost["both"], ("mfu",))[0] <= cost["both"](cost["Assumptions"]()) <= high


def test_a_ratio_hinges_on_what_moves_it_most(cost):
    assert cost["hinge"](lambda given: 1000 * given.mfu + given.concurrency / 512) == "mfu"
    assert cost["hinge"](lambda given: given.mfu + given.concurrency) == "concurrency"


def test_semi_opd_pays_its_buffer_once(cost):
    given, small = cost["Assumptions"](), cost["SMALL"]
    live, once, often = cost["opd"](given), cost["semi_opd"](given, 1), cost["semi_opd"](given, 16)
    assert live.score == pytest.approx(64 * cost["forward_seconds"](cost["LARGE"], 1, 4096, given))
    update = 3 * 64 * cost["forward_seconds"](small, 1, 4096, given)
    assert [own.update for own in (live, once, often)] == pytest.approx([update] * 3)
    assert once.score == live.score == 16 * often.score
    # 382 rows at once (see above), bound by bytes: the weights and 382 caches for each token of 64 rows a step.
    read = sum(2 * small.matrix_parameters + 382 * 28_672 * (1024 + token) for token in range(3072))
    prefill = cost["forward_seconds"](small, 64, 1024, given)
    assert once.generate == pytest.approx(prefill + 64 / 382 * read / (0.5 * 3.35e12), rel=1e-3)
    assert once.generate < live.generate
    assert 1 < cost["faster"](1)(given) < cost["faster"](16)(given) < sum(live) / live.update


def test_the_tables_are_printed(cost, capsys):
    cost["main"]()
    said = capsys.readouterr().out
    assert "| GRPO, large |" in said
    assert "| CoDistill / (GRPO small + GRPO large) | 0.78 | 0.56 - 0.81 - 0.96 |" in said
    assert "| the paper's 18 % speed-up | 0.82 or 0.85 |" in said
    assert "| Semi-OPD, a row used 16 x | 0.6 | 0.6 | 6.8 | 8.1 | 3.9 | 3.2 - 4.0 - 6.7 |" in said


@pytest.fixture(scope="module")
def winner():
    return runpy.run_path(str(FOLDER / "overlap_winner.py"))


def run_of(folder, accuracies, seconds, fill):
    """A run of a comparison, an evaluation at every step and before the first."""
    (folder / "run").mkdir(parents=True)
    lines = [
        {"step": step, "eval/small/accuracy": value, "time/step": seconds} for step, value in enumerate(accuracies)
    ]
    del lines[0]["time/step"]
    (folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text(json.dumps({"seconds": {"fill": fill}}))


def test_sooner_is_where_both_are_as_good_as_the_worse_of_them_becomes(winner):
    opd = [winner["Point"](*own) for own in ((0.2, 0, 0), (0.5, 10, 0.5), (0.9, 20, 1))]
    semi = [winner["Point"](*own) for own in ((0.2, 0, 0), (0.6, 2, 0.5), (0.5, 4, 1))]
    # OPD is at 0.6 after 20 s; Semi-OPD after 2 s, and 6 s to fill its buffer, of which it had used a half.
    assert winner["times"](opd, semi, 6.0) == (20 / 8, 20 / 5)


def test_nothing_is_sooner_where_one_never_got_better(winner):
    opd = [winner["Point"](*own) for own in ((0.2, 0, 0), (0.5, 10, 0.5))]
    sunk = [winner["Point"](*own) for own in ((0.2, 0, 0), (0.1, 2, 0.5))]
    assert all(map(isnan, winner["times"](opd, sunk, 6.0) + winner["times"](sunk, opd, 6.0)))
    assert winner["_times"](nan) == "-"
    assert isnan(winner["_median"]([1.0, nan, 2.0]))


def test_a_row_for_each_teacher_and_rank_correlations(winner, tmp_path, capsys):
    rows, overlaps = [], {"near": 0.9, "mid": 0.6, "far": 0.3}
    for name, overlap in overlaps.items():
        opd, semi = 0.9 * overlap + 0.1, 0.4 if name == "far" else 0.5
        for arm, value, fill in ((f"opd_{name}", opd, 0.0), (f"semi_opd_{name}", semi, 4.0)):
            of = {"mean": semi - opd, "low": semi - opd - 0.1, "high": semi - opd + 0.1}
            rows.append(
                {
                    "arm": arm,
                    "values": {"5": value},
                    "estimate": {"mean": value},
                    "differences": {f"opd_{name}": {"of": of}},
                }
            )
            run_of(tmp_path / "runs" / arm / "seed-5", (0.1, 0.3, value), 2.0, fill)
        (tmp_path / name).mkdir()
        (tmp_path / name / "measured.json").write_text(json.dumps({"overlap": overlap, "reverse_kl": 1 - overlap}))
    (tmp_path / "summary.json").write_text(json.dumps({"metrics": {"small/accuracy": rows}}))
    winner["main"](tmp_path, tmp_path, "small/accuracy")
    said = capsys.readouterr().out
    assert "| near | 0.90 | 0.10 | 0.910 | 0.500 | -0.410 | -0.510 to -0.310 | 0.5 x | 0.5 x |" in said
    assert "rank correlation of overlap and Semi-OPD - OPD: -1.00" in said
    assert "rank correlation of KL(student || teacher) and OPD: -1.00" in said


def test_a_picture_has_every_arm_and_is_the_same_again(tmp_path):
    estimates = {"one": (0.5, 0.4, 0.6), "two": (0.7, None, None)}
    rows = [
        {"arm": arm, "values": {"0": mean}, "estimate": {"mean": mean, "low": low, "high": high}}
        for arm, (mean, low, high) in estimates.items()
    ]
    (tmp_path / "summary.json").write_text(json.dumps({"metrics": {"small/accuracy": rows}}))
    picture = runpy.run_path(str(FOLDER / "picture.py"))
    pictures = [tmp_path / "deep" / f"{number}.svg" for number in (1, 2)]
    for out in pictures:
        picture["main"](tmp_path / "summary.json", "small/accuracy", out)
    texts = [out.read_text() for out in pictures]
    assert texts[0] == texts[1]
    assert all(word in texts[0] for word in (">one<", ">two<", "small/accuracy: mean"))


def test_ratios_of_cost_by_hand(tmp_path, capsys):
    """The first step is left out; scoring is shared as FLOPs are."""
    timed = runpy.run_path(str(FOLDER / "cost.py"))
    stages = {
        "grpo_small": {"time/sample": 1.0, "time/score": 1.0, "time/update/small": 2.0},
        "grpo_large": {"time/sample": 4.0, "time/score": 4.0, "time/update/large": 8.0},
        "codistill": {"time/sample": 2.0, "time/score": 6.0, "time/update/small": 2.0, "time/update/large": 8.0},
        "codistill_paper": {"time/sample": 2.0, "time/score": 6.0, "time/update/small": 2.0, "time/update/large": 6.0},
    }
    for arm, own in stages.items():
        run = tmp_path / "runs" / arm / "seed-5" / "run"
        run.mkdir(parents=True)
        step = own | {"time/step": sum(own.values()), "flops/small/score": 1.0, "flops/large/score": 5.0}
        first = {key: 100 * value for key, value in step.items()}
        lines = [{"step": 0}, {"step": 1} | first, {"step": 2} | step, {"step": 3} | step]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "summary.json").write_text(json.dumps({"plan": {"seeds": [5]}}))
    timed["main"](tmp_path)
    said = capsys.readouterr().out
    assert "| codistill / (GRPO small + GRPO large) | 0.90 | 0.90 to 0.90 |" in said, "18 / (4 + 16)"
    assert "| codistill_paper / GRPO large | 1.00 | 1.00 to 1.00 |" in said
    assert "| large learner of codistill / GRPO large | 0.94 | 0.94 to 0.94 |" in said, "(2 + 8 + 5) / 16"


def test_long_rows_are_whole_rows_laid_end_to_end_and_cut(row_length):
    rows = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])]
    long = row_length.laid_end_to_end(rows, 4, 50, torch.Generator().manual_seed(0))
    assert {tuple(own) for own in long.tolist()} == {(1, 2, 1, 2), (1, 2, 3, 4), (3, 4, 5, 1), (3, 4, 5, 3)}


def test_what_corrections_keep_of_rows_whose_ratios_are_known(row_length):
    def expected(*weights):
        return pytest.approx(
            (sum(weights) / len(weights), sum(weights) ** 2 / (len(weights) * sum(own**2 for own in weights)))
        )

    ratios = torch.tensor([[2.0, 1.0, 1.0], [0.5, 0.5, 1.0], [4.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    found = row_length.of_length(ratios.log())
    assert found["row, no bound"] == expected(2, 0.25, 8, 1)
    assert found["row, at most 5"] == expected(2, 0.25, 5, 1)
    assert found["prefix, at most 5"] == expected(2, 2, 2, 0.5, 0.25, 0.25, 4, 5, 5, 1, 1, 1)
    assert found["token, at most 2"] == expected(2, 1, 1, 0.5, 0.5, 1, 2, 2, 1, 1, 1, 1)
    assert found[row_length.MIXED] == expected(1, 0.25, 5, 1)  # the large one wrote the first
    assert found["window of 25, at most 5"] == found["prefix, at most 5"]
    halves = torch.full((4, 27), 1.0)
    halves[:, 0] = 0.5
    assert row_length.of_length(halves.log())["window of 25, at most 5"] == expected(*[0.5] * 25, 1, 1)


def test_ratios_are_of_the_reader_over_the_writer(row_length, monkeypatch, capsys):
    rows = row_length.log_ratios("tiny:small", "tiny:large", questions=8, samples=2)
    assert all(len(row) for row in rows)
    assert torch.cat(rows).mean() < 0, "minus the KL"
    for name, value in {"LENGTHS": (30,), "ROWS": 50}.items():
        monkeypatch.setitem(row_length.main.__globals__, name, value)
    row_length.main("tiny:small", "tiny:large", 8, 2)
    head, _, _, _, line = capsys.readouterr().out.strip().splitlines()
    assert head.startswith("16 rows of ")
    assert line.startswith("| 30 | ")
    assert line.count(" / ") == 6
