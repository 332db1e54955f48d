"""Measure the grader: verdicts by kind, agreement and speed on real completions, a batch of which a tenth hangs.

Run it on an idle machine: python tests/grading/measure.py ../shared
"""

import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import math_verify

sys.path.insert(0, str(Path(__file__).parents[1]))
from grading.pairs import PAIRS
from grpo_kit.grading import grade, grade_all


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def lines(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def timed(work):
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def by_math_verify(golds, answers):
    """math-verify called directly, in this process, as its users do."""
    return [
        math_verify.verify(math_verify.parse(boxed(gold)), math_verify.parse(boxed(answer)))
        for gold, answer in zip(golds, answers, strict=True)
    ]


def pairs(rows):
    right, seconds = defaultdict(Counter), []
    for row in rows:
        text = boxed(row["answer"]) if row["form"] == "boxed" else row["answer"]
        given, took = timed(lambda row=row, text=text: grade(row["gold"], text))
        seconds.append((took, row["id"]))
        right[row["kind"]][given.value == row["expected"]] += 1
    total = sum(count[True] for count in right.values())
    print(
        f"pairs: {total}/{len(rows)} right;", ", ".join(f"{k} {c[True]}/{c.total()}" for k, c in sorted(right.items()))
    )
    print("slowest:", ", ".join(f"{name} {took:.2f} s" for took, name in sorted(seconds)[:-4:-1]))


def speed(name, golds, answers, truth):
    for repeat in range(3):
        slow, off = timed(lambda: grade_all(golds, list(map(boxed, answers)), fast=False))
        quick, on = timed(lambda: grade_all(golds, list(map(boxed, answers))))
        direct, theirs = timed(lambda: by_math_verify(golds, answers))
        agree = [sum(g == t for g, t in zip(found, truth, strict=True)) for found in (
            [given.value == 1 for given in slow], [given.value == 1 for given in quick], direct)]  # fmt: skip
        count = len(golds)
        print(
            f"{name} {repeat}: fast off {agree[0]}/{count}, {count / off:.0f}/s; fast on {agree[1]}/{count}, "
            f"{count / on:.0f}/s; math-verify {agree[2]}/{count}, {count / theirs:.0f}/s"
        )
    statuses = Counter(given.status for given in slow)
    print(f"{name}: statuses with fast off {dict(statuses)}")


def hanging():
    hangs = [rf"\prod_{{k=1}}^{{200000}}({start}+k)" for start in range(3, 23)]
    good = [f"x+{number}" for number in range(180)]
    answers = [f"{number - 1}+x+1" for number in range(180)]
    walls = []
    for _ in range(3):
        grades, wall = timed(lambda: grade_all(good + ["3"] * 20, list(map(boxed, answers + hangs))))
        walls.append(wall)
    statuses = Counter(given.status for given in grades)
    print(
        f"200 answers of which 20 hang: {statistics.median(walls):.1f} s ({min(walls):.1f} to {max(walls):.1f});",
        dict(statuses),
    )


def main(shared):
    grade("x+1", boxed("1+x"))
    pairs([row for row in lines(shared / "cases/answer_pairs.jsonl") if not row["policy"]])
    own = [
        {
            "id": f"{kind} {gold[:20]}",
            "kind": kind,
            "gold": gold,
            "answer": answer,
            "expected": expected,
            "form": "boxed",
        }
        for kind, members in PAIRS.items()
        for gold, answer, expected in members
    ]
    pairs(own)
    graded = lines(shared / "data/gsm8k_graded_completions.jsonl")
    answers = [row["completion"].rpartition("A:")[2].strip() for row in graded]
    speed("GSM8K completions", [row["answer"] for row in graded], answers, [row["is_correct"] for row in graded])
    golds = [row["answer"] for row in lines(shared / "data/math500.jsonl")]
    speed("MATH-500 golds", golds, golds, [True] * len(golds))
    hanging()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
