"""vLLM in process beside our transformers sampler: tokens a second, and how far its log-probabilities are from scoring.

Run it with real vLLM: `.venv-vllm/bin/python tests/bench/engine.py FOLDER`, FOLDER a model; `--prompts 16 --samples 4
--tokens 64` are the defaults.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from grpo_kit import Arithmetic, InProcess, PolicySpec, Prompts, TransformersSampler, VLLMSampler
from grpo_kit.policies import load_policy


def main(
    folder: Path,
    prompts: int = 16,
    samples: int = 4,
    tokens: int = 64,
    tries: int = 3,
    only: Annotated[str | None, typer.Option(help="Leave the other out: transformers or vllm.")] = None,
    eager: Annotated[bool, typer.Option(help="Compile nothing.")] = False,
) -> None:
    """Print a line for each program and precision."""
    questions = [f"Question: what is {row}? Answer step by step." for row in Arithmetic(rows=prompts)()["prompt"]]
    size = {"prompts": prompts, "samples": samples, "tokens": tokens}
    print(f"{size}, torch threads {torch.get_num_threads()}, best of {tries}")
    for dtype in ("float32", "bfloat16"):
        policy = load_policy("model", PolicySpec(model=str(folder), dtype=dtype), live=False)
        policy.model.generation_config.eos_token_id = None  # every row is as long as allowed
        ids = tuple(tuple(policy.tokenizer(text)["input_ids"]) for text in questions)
        batch = Prompts(ids=ids, groups=tuple(range(prompts)), columns={})
        engine = InProcess(kv_cache_gib=1, max_model_len=512, enforce_eager=eager)
        settings = {"policy": "model", "samples": samples, "max_new_tokens": tokens}
        reference = replace(policy, autocast=None)
        if dtype == "bfloat16":  # against float32 arithmetic on the same, rounded weights
            reference = load_policy("model", PolicySpec(model=str(folder), dtype="bfloat16"), live=False)
            reference.model.float()
        for name, sampler in (
            ("transformers", TransformersSampler(**settings)),
            ("vllm", VLLMSampler(engine=engine, **settings)),
        ):
            if only not in (None, name):
                continue
            sampler(batch, {"model": policy}, torch.Generator().manual_seed(9))
            seconds = []
            for seed in range(tries):
                start = time.perf_counter()
                rows = sampler(batch, {"model": policy}, torch.Generator().manual_seed(seed))
                seconds.append(time.perf_counter() - start)
            count = int(rows.mask.sum())
            line = f"{dtype:9} {name:13} {count / min(seconds):7.0f} tokens/s ({count / max(seconds):.0f} at worst)"
            for label, scorer in (("its own scoring", policy), ("float32 scoring", reference)):
                gap = (scorer.score_all(rows).logprobs - rows.behavior.logprobs).abs()[rows.mask]
                line += f"; |log p - {label}| mean {float(gap.mean()):.2g} max {float(gap.max()):.2g}"
            print(line, flush=True)
        policy.close()


if __name__ == "__main__":
    typer.run(main)
