"""Remake the tiny pair: train both models on noisy worked answers, save them, and measure them.

Run it as `python -m grpo_kit.policies.tiny.warm_up`; it takes some minutes on one core.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated

import torch
import typer
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_kit.batch import Sampling
from grpo_kit.data.arithmetic import TERMS, Arithmetic, Task, draw_question, split_of, worked_answer
from grpo_kit.grading.extract import last_boxed
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import decode

HERE = Path(__file__).parent
PLAIN_SHARE = 0.85
VOCABULARY = ("<pad>", "<eos>", "<unk>", *"0123456789+-=\n", "\\boxed{", "}")
Writer = Callable[[str, float, Random], str]
"""Writes the answer to a question, each total wrong with some probability, as `worked_answer` does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One of the pair: its size, the share of wrong totals it learns from, and how it learns."""

    name: str
    layers: int
    hidden: int
    error_rate: float
    batch: int
    steps: int
    lr: float


PLANS = (
    Plan(name="small", layers=2, hidden=64, error_rate=0.40, batch=64, steps=1600, lr=4e-3),
    Plan(name="large", layers=4, hidden=128, error_rate=0.25, batch=32, steps=1400, lr=2e-3),
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    r"""One token a character, except `\boxed{`; nothing is added to a text."""
    tokenizer = Tokenizer(models.WordLevel({text: i for i, text in enumerate(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_max_length=256,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def make_model(plan: Plan, seed: int) -> LlamaForCausalLM:
    """The untrained model of a plan."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=plan.hidden,
        intermediate_size=4 * plan.hidden,
        num_hidden_layers=plan.layers,
        num_attention_heads=4,
        max_position_embeddings=256,
        pad_token_id=VOCABULARY.index("<pad>"),
        eos_token_id=VOCABULARY.index("<eos>"),
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def batches(
    tokenizer: PreTrainedTokenizerFast, plan: Plan, random: Random, write: Writer = worked_answer
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of warm-up questions with noisy answers: token ids, and labels that are -100 off the answer.

    A batch is of one task, since the questions of the other have another length.
    """
    pad, eos = VOCABULARY.index("<pad>"), VOCABULARY.index("<eos>")
    while True:
        task: Task = "plain" if random.random() < PLAIN_SHARE else "sparse"
        questions = [_warm_up_question(task, random) for _ in range(plan.batch)]
        prompts = tokenizer(questions)["input_ids"]
        answers = tokenizer([write(question, plan.error_rate, random) for question in questions])["input_ids"]
        width = max(len(prompt) + len(answer) + 1 for prompt, answer in zip(prompts, answers, strict=True))
        ids = torch.full((plan.batch, width), pad)
        labels = torch.full((plan.batch, width), -100)
        for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            start, end = len(prompt), len(prompt) + len(answer) + 1
            ids[row, :end] = torch.tensor([*prompt, *answer, eos])
            labels[row, start:end] = ids[row, start:end]
        yield ids, labels


def train(
    plan: Plan, *, seed: int, steps: int, write: Writer = worked_answer, model: LlamaForCausalLM | None = None
) -> LlamaForCausalLM:
    """Train a model on noisy worked answers: AdamW, a linear warm-up over a tenth of the steps, then a cosine decay.

    Args:
        plan: its size, its batches and its learning rate.
        seed: of weights, questions and noise.
        steps: updates.
        write: the answers that it learns.
        model: goes on from this one, in float32, instead of a new one.
    """
    model = make_model(plan, seed) if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / warm, total_iters=warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, steps - warm)),
        ],
        milestones=[warm],
    )
    model.train()
    examples = batches(make_tokenizer(), plan, Random(seed), write)
    for step, (ids, labels) in enumerate(islice(examples, steps)):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"{plan.name} step {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    return model.eval()


def warm_up(
    out: Path,
    plan: Plan,
    *,
    seed: int = 0,
    steps: int | None = None,
    write: Writer = worked_answer,
    model: LlamaForCausalLM | None = None,
) -> Path:
    """Train a model, see `train`, and save it, weights in float16, as a folder that `from_pretrained` loads."""
    model = train(plan, seed=seed, steps=plan.steps if steps is None else steps, write=write, model=model)
    model.half().save_pretrained(out / plan.name)
    make_tokenizer().save_pretrained(out / plan.name)
    return out / plan.name


@torch.no_grad()
def accuracy(folder: Path, task: Task, *, temperature: float, questions: int = 512, seed: int = 0) -> float:
    """Share of evaluation questions that a saved model answers right in one try."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    policy = Policy(name=folder.name, model=model, tokenizer=tokenizer, vocabulary=len(VOCABULARY))
    rows = Arithmetic(task=task, split="eval", rows=questions, seed=seed)()
    uniforms = torch.rand((questions, 128), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    prompts = tokenizer(list(rows["prompt"]))["input_ids"]
    written = decode(policy, prompts, sampling=Sampling(temperature=temperature), uniforms=uniforms)
    texts = [tokenizer.decode(tokens[keep]) for tokens, keep in zip(written.tokens, written.mask, strict=True)]
    return sum(last_boxed(text) == gold for text, gold in zip(texts, rows["answer"], strict=True)) / questions


def main(
    out: Annotated[Path, typer.Option(help="Folder that small/ and large/ are written to.")] = HERE,
    seed: Annotated[int, typer.Option(help="Seed of weights, questions and noise.")] = 0,
) -> None:
    """Remake the tiny pair and print its accuracy on questions it has not seen."""
    torch.set_num_threads(1)
    table = ["model  task    T=1   greedy"]
    for plan in PLANS:
        started = time.perf_counter()
        folder = warm_up(out, plan, seed=seed)
        print(f"{plan.name}: {time.perf_counter() - started:.0f} s")
        for task in TERMS:
            sampled, greedy = (accuracy(folder, task, temperature=temperature) for temperature in (1.0, 0.0))
            table.append(f"{plan.name:6} {task:7} {sampled:.2f}  {greedy:.2f}")
    print("\n".join(table))


def _warm_up_question(task: Task, random: Random) -> str:
    while split_of(question := draw_question(random.choice(TERMS[task]), random)) != "warm_up":
        pass
    return question


if __name__ == "__main__":
    typer.run(main)
