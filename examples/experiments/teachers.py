"""Make teachers of about equal accuracy that write other answers than the tiny student, and measure how far apart.

Each goes on from one of the tiny pair, trained as that was (`policies.tiny.warm_up`), on answers in another style with
few wrong totals. `--pairs` makes whole pairs like the shipped one, from other seeds.

Run it: python examples/experiments/teachers.py OUT [--seed 0] [--styles totals --styles chained] [--pairs 100]
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Literal, NamedTuple

import styles as written
import torch
import typer
from transformers import LlamaForCausalLM

from grpo_kit import Arithmetic, TransformersSampler, read_recipe
from grpo_kit.data.arithmetic import worked_answer
from grpo_kit.overlap.measure import measure
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.policies.tiny.warm_up import PLANS, Plan, Writer, make_tokenizer, warm_up
from grpo_kit.run.evaluation import evaluate_policy
from grpo_kit.run.setup import load_inputs, load_policies

SMALL, LARGE = PLANS
KIN = replace(SMALL, error_rate=0.03, steps=500, lr=3e-3)
STRANGER = replace(LARGE, error_rate=0.02, batch=16, steps=600)
TOP = 4  # of the vocabulary's 19 tokens
MOST = 80  # new tokens, for the longest style
EXAMPLE = "3+8-5+2="


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """A teacher to be made.

    Attributes:
        write: the answers that it learns.
        plan: its size and how it learns; its error rate is what sets its accuracy.
        start: of the tiny pair, whose weights it goes on from; it is of that size.
    """

    write: Writer
    plan: Plan = STRANGER
    start: Literal["small", "large"] = "large"


STYLES = {
    "kin": Style(write=worked_answer, plan=replace(KIN, error_rate=0.04, steps=300, lr=2e-3), start="small"),
    "kin_half_chained": Style(write=written.half_chained, plan=KIN, start="small"),
    "kin_twice": Style(write=written.twice, plan=replace(KIN, error_rate=0.04, steps=300), start="small"),
    "own": Style(write=worked_answer, plan=replace(STRANGER, error_rate=0.05, steps=250, lr=1e-3)),
    "positives_first": Style(write=written.positives_first, plan=replace(STRANGER, error_rate=0.04, steps=350)),
    "chained": Style(write=written.chained, plan=replace(STRANGER, error_rate=0.045, steps=300)),
    "right_to_left": Style(write=written.right_to_left, plan=replace(STRANGER, error_rate=0.04, steps=400)),
    "totals": Style(write=written.totals),
    "equation_reversed": Style(write=written.equation_reversed),
    "boxed_totals": Style(write=written.boxed_totals),
}
"""The most aligned first. Those called kin go on from the student's own weights, at its size."""


class Measured(NamedTuple):
    """What a teacher is, and how far from its student.

    Attributes:
        accuracy: on evaluation questions of the plain task, at temperature 1.
        greedy: the same, greedily.
        length: mean tokens of its answers at temperature 1.
        needs: tokens of the longest answer that it learned to give to these questions.
        overlap: mean output-token overlap ratio on rollouts of the student.
        log_ratio: mean log teacher / student of the tokens that the student wrote, in nats.
        reverse_kl: mean KL(student || teacher) at these tokens, in nats.
        seconds: to make it.
    """

    accuracy: float
    greedy: float
    length: float
    needs: int
    overlap: float
    log_ratio: float
    reverse_kl: float
    seconds: float


def make(name: str, out: Path, *, seed: int = 0, steps: int | None = None) -> Path:
    """Train the teacher of a style and save it; its folder."""
    style = STYLES[name]
    start = LlamaForCausalLM.from_pretrained(tiny_path(style.start), dtype=torch.float32)
    return warm_up(out, replace(style.plan, name=name), seed=seed, steps=steps, write=style.write, model=start)


def make_pair(out: Path, seed: int, *, steps: int | None = None) -> Path:
    """Train a pair like the shipped one from another seed; the folder of both."""
    for plan in PLANS:
        warm_up(out / f"pair-{seed}", plan, seed=seed, steps=steps)
    return out / f"pair-{seed}"


def compare(
    teacher: Path, write: Writer, *, student: str = "tiny:small", questions: int = 1000, prompts: int = 256
) -> Measured:
    """Measure a teacher, and its overlap with a student on rollouts of the student; `seconds` is left 0."""
    settings = [f"policies.small.model={student}", f"policies.large.model={teacher}"]
    recipe = read_recipe("opd", settings=[*settings, f"evaluation.questions={questions}", f"data.rows={prompts}"])
    inputs, policies = load_inputs(recipe), load_policies(recipe)
    assert inputs.questions is not None
    answers = TransformersSampler(policy="large", samples=1, max_new_tokens=MOST)
    found = evaluate_policy(
        policies["large"],
        inputs.questions,
        recipe.rewards["correctness"],
        sampled=answers,
        greedy=replace(answers, temperature=0.0),
        samples=1,
    )
    writes = TransformersSampler(policy="small", samples=1, max_new_tokens=48)
    few = inputs.prompts.take(range(prompts))
    rollouts = writes(few, policies, torch.Generator().manual_seed(1))
    values = measure(policies["small"], policies["large"], rollouts, TOP).values
    return Measured(
        accuracy=found["accuracy"],
        greedy=found["greedy"],
        length=found["length"],
        needs=longest(write, questions),
        overlap=float(values.overlap.mean()),
        log_ratio=float(values.log_ratio.mean()),
        reverse_kl=float(values.reverse_kl.mean()),
        seconds=0.0,
    )


def longest(write: Writer, questions: int) -> int:
    """Tokens of the longest answer without an error to the first evaluation questions, with its end."""
    random, rows = Random(0), Arithmetic(split="eval", rows=questions)()
    answers = [write(question, 0.0, random) for question in rows["prompt"]]
    return 1 + max(map(len, make_tokenizer()(answers)["input_ids"]))


def main(
    out: Annotated[Path, typer.Argument(help="Folder that a folder is written to for each teacher and pair.")],
    seed: Annotated[int, typer.Option(help="Seed of the teachers' weights, questions and noise.")] = 0,
    styles: Annotated[list[str] | None, typer.Option(help="Teachers to make, all by default; again for more.")] = None,
    pairs: Annotated[list[int] | None, typer.Option(help="Seeds of pairs to make instead; again for more.")] = None,
    questions: Annotated[int, typer.Option(help="Evaluation questions.")] = 1000,
) -> None:
    """Make teachers in several styles, or pairs from several seeds, and print what was measured."""
    torch.set_num_threads(1)
    chosen = styles or ([] if pairs else list(STYLES))
    if unknown := [name for name in chosen if name not in STYLES]:
        raise typer.BadParameter(f"no such style: {', '.join(unknown)}. Known: {', '.join(STYLES)}.")
    out.mkdir(parents=True, exist_ok=True)
    for number in pairs or ():
        print(f"made: {make_pair(out, number)}")
    lines = []
    for name in chosen:
        started = time.perf_counter()
        folder = make(name, out, seed=seed)
        seconds = time.perf_counter() - started
        found = compare(folder, STYLES[name].write, questions=questions)._replace(seconds=seconds)
        (folder / "measured.json").write_text(json.dumps(found._asdict(), indent=1) + "\n", encoding="utf-8")
        lines.append(line(name, found))
        print(lines[-1], flush=True)
    if lines:
        print("\n" + "\n".join([*HEAD, *lines]))


HEAD = (
    f"| style | answer to {EXAMPLE} | T=1 | greedy | tokens | needs | overlap | log teacher / student | KL | seconds |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def line(name: str, found: Measured) -> str:
    """A teacher's row of the table."""
    example = STYLES[name].write(EXAMPLE, 0.0, Random(1)).replace("\n", " ")
    shares = f"{found.accuracy:.3f} | {found.greedy:.3f} | {found.length:.1f} | {found.needs}"
    distance = f"{found.overlap:.3f} | {found.log_ratio:.3f} | {found.reverse_kl:.3f}"
    return f"| {name} | `{example}` | {shares} | {distance} | {found.seconds:.0f} |"


if __name__ == "__main__":
    typer.run(main)
