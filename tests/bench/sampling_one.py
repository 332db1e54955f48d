"""One measurement of sampling in a process of its own: `python sampling_one.py VARIANT MODEL PROMPT_TOKENS [TIMES]`.

MODEL is `tiny:small`, `tiny:large` or a folder. 16 prompts, 8 completions of each, at most 64 new tokens at temperature
1, float32; with PROMPT_TOKENS 0 the prompts are questions of the task `arithmetic` and rows end by themselves,
otherwise they are random tokens and no row ends before 64. Prints a line of JSON: seconds and processor seconds of one
call (mean of TIMES), tokens written, and the mean log-probability of the tokens where the variant gives one. Threads:
OMP_NUM_THREADS, else 2.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

PROMPTS, SAMPLES, NEW = 16, 8, 64
Ids = list[list[int]]


def questions(tokenizer) -> Ids:
    """Questions of the tiny pair's own task, made here so that the peers' environment needs nothing of ours."""
    draw = torch.Generator().manual_seed(0)

    def question() -> str:
        terms = torch.randint(0, 10, (4,), generator=draw).tolist()
        signs = "".join("+-"[int(sign)] for sign in torch.randint(0, 2, (3,), generator=draw))
        return "".join(f"{term}{sign}" for term, sign in zip(terms, f"{signs}=", strict=True))

    return [tokenizer(question())["input_ids"] for _ in range(PROMPTS)]


def prompts_of(tokenizer, length: int) -> Ids:
    if length == 0:
        return questions(tokenizer)
    draw = torch.Generator().manual_seed(0)
    return torch.randint(2, len(tokenizer), (PROMPTS, length), generator=draw).tolist()


class Ours:
    """The transformers sampler, with log-probabilities."""

    def __init__(self, model: str, prompts: Callable, ends: bool) -> None:
        from grpo_kit import PolicySpec, Prompts, TransformersSampler
        from grpo_kit.policies import load_policy

        self.policy = load_policy("small", PolicySpec(model=model, device="cpu"), live=False)
        ids = tuple(map(tuple, prompts(self.policy.tokenizer)))
        if not ends:
            self.policy.tokenizer.eos_token = None
            self.policy.model.generation_config.eos_token_id = None
        self.prompts = Prompts(ids=ids, groups=tuple(range(PROMPTS)), columns={})
        self.sampler = TransformersSampler(policy="small", samples=SAMPLES, max_new_tokens=NEW)
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self) -> dict[str, float]:
        rows = self.sampler(self.prompts, {"small": self.policy}, self.generator)
        assert rows.behavior is not None
        mean = rows.behavior.logprobs[rows.mask].mean()
        return {"tokens": int(rows.mask.sum()), "logprob": float(mean)}


class Generate:
    """transformers' own: `generate` with one of its caches, or continuous batching."""

    def __init__(self, model: str, prompts: Callable, ends: bool, cache: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(model)
        self.ids, self.cache = prompts(tokenizer), cache
        listed = self.model.generation_config.eos_token_id if ends else None
        self.eos = listed if isinstance(listed, list) else [] if listed is None else [listed]
        pad = tokenizer.pad_token_id or 0
        settings = {"max_new_tokens": NEW, "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        self.model.generation_config = GenerationConfig(**settings, eos_token_id=self.eos or None, pad_token_id=pad)
        if cache != "batching":
            self.model.generation_config.num_return_sequences = SAMPLES
            self.model.generation_config.cache_implementation = cache
        self.pad = pad

    @torch.no_grad()
    def __call__(self) -> dict[str, float]:
        if self.cache == "batching":
            ids = [row for row in self.ids for _ in range(SAMPLES)]
            found = self.model.generate_batch(ids, generation_config=self.model.generation_config, progress_bar=False)
            assert len(found) == PROMPTS * SAMPLES
            return {"tokens": sum(len(row.generated_tokens) for row in found.values())}
        width = max(map(len, self.ids))
        ids = torch.tensor([[self.pad] * (width - len(row)) + row for row in self.ids])
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in self.ids])
        found = self.model.generate(ids, attention_mask=real)[:, width:]
        return {"tokens": written(found, self.eos)}


def written(found: torch.Tensor, eos: list[int]) -> int:
    """Tokens up to the first that ends a row."""
    ended = torch.isin(found, torch.tensor(eos, dtype=torch.long)).long().cumsum(1)
    return int(((ended - torch.isin(found, torch.tensor(eos, dtype=torch.long)).long()) == 0).sum())


class TRL:
    """The rollouts of TRL's own trainer, by `generate` or continuous batching; log-probabilities come later there."""

    def __init__(self, model: str, prompts: Callable, ends: bool, batching: bool) -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        tokenizer = AutoTokenizer.from_pretrained(model)
        settings = {
            "output_dir": "/tmp/trl",
            "use_cpu": True,
            "bf16": False,
            "report_to": [],
            "per_device_train_batch_size": PROMPTS * SAMPLES,
            "num_generations": SAMPLES,
            "max_completion_length": NEW,
            "use_transformers_continuous_batching": batching,
            "gradient_checkpointing": False,
            "model_init_kwargs": {"dtype": "float32"},
        }
        self.trainer = GRPOTrainer(
            model,
            reward_funcs=lambda completions, **columns: [0.0] * len(completions),
            args=GRPOConfig(**settings),
            train_dataset=Dataset.from_dict({"prompt": ["1"] * PROMPTS}),
            processing_class=tokenizer,
        )
        if not ends:
            self.trainer.generation_config.eos_token_id = None
            self.trainer.model.generation_config.eos_token_id = None
            self.trainer.generation_kwargs["eos_token_id"] = None
            self.trainer.eos_token_ids = []
        self.ids = [row for row in prompts(tokenizer) for _ in range(SAMPLES)]

    def __call__(self) -> dict[str, float]:
        completions = self.trainer._generate_single_turn(self.ids, None, {}, SAMPLES)[0]
        return {"tokens": sum(map(len, completions))}


VARIANTS: dict[str, Callable] = {
    "ours": Ours,
    "generate": lambda *inputs: Generate(*inputs, "dynamic"),
    "static": lambda *inputs: Generate(*inputs, "static"),
    "batching": lambda *inputs: Generate(*inputs, "batching"),
    "trl": lambda *inputs: TRL(*inputs, False),
    "trl_batching": lambda *inputs: TRL(*inputs, True),
}


def folder(model: str, variant: str) -> str:
    """The folder of a tiny model for those who know no such name."""
    tiny = Path(__file__).parents[2] / "src/grpo_kit/policies/tiny"
    return str(tiny / model.removeprefix("tiny:")) if model.startswith("tiny:") and variant != "ours" else model


def main(variant: str, model: str, length: str, times: str = "1") -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    torch.manual_seed(0)
    run = VARIANTS[variant](folder(model, variant), lambda tokenizer: prompts_of(tokenizer, int(length)), length == "0")
    if int(times) > 1:
        run()  # what is set up once is no part of the measurement
    start, busy, found = time.perf_counter(), time.process_time(), {"tokens": 0.0}
    for _ in range(int(times)):
        once = run()
        found = {**once, "tokens": found["tokens"] + once["tokens"]}
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    found["tokens"] /= int(times)
    print(json.dumps({"seconds": seconds / int(times), "processor": busy / int(times), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
