"""TRL's side of the parity check, in its environment: `python theirs_trl.py BATCHES RESULTS`.

A real trainer is built on a model of a few weights, with the case's options. Only what needs a language model is replaced: the
completions, the rewards and the log-probabilities of the tokens are read from the batch. Advantages, importance weights, loss
and gradient are the trainer's own.
"""

import sys
import tempfile
from collections.abc import Mapping

import torch
from cases import CASES, Case
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

PAD, EOS, WORD = 0, 1, 2


class Scripted:
    """What stands in a batch instead of a language model; goes before a trainer's class."""

    batch: Mapping[str, Tensor]
    current: Tensor

    def _generate(self, prompts):
        lengths = self.batch["mask"].sum(1).tolist()
        cut = self.batch["truncated"].tolist()
        completions = [[WORD] * (n - 1) + [WORD if short else EOS] for n, short in zip(lengths, cut, strict=True)]
        texts = [""] * len(completions)
        if isinstance(self, RLOOTrainer):
            return [[WORD]] * len(texts), completions, texts
        sampled = [row[:n].tolist() for row, n in zip(self.batch["rollout"], lengths, strict=True)]
        return [[WORD]] * len(texts), completions, None, texts, sampled, {}, None, None

    def _calculate_rewards(self, *_):
        return self.batch["rewards"][:, None].clone()

    def _get_per_token_logps_and_entropies(self, model, *_, **__):
        if model is self.ref_model:
            values = self.batch["reference"]
        else:
            values = self.current if torch.is_grad_enabled() else self.batch["old"]
        return values, torch.zeros_like(values), None


class ScriptedGRPO(Scripted, GRPOTrainer):
    """GRPO's trainer on a batch."""


class ScriptedRLOO(Scripted, RLOOTrainer):
    """RLOO's trainer on a batch."""


def trainer(case: Case, folder: str, batch: Mapping[str, Tensor]) -> Scripted:
    """The trainer of a case; two iterations a batch, so that it compares with the old log-probabilities."""
    options = dict(case.theirs)
    kind, config = (ScriptedRLOO, RLOOConfig) if options.pop("trainer", None) == "RLOO" else (ScriptedGRPO, GRPOConfig)
    vllm = {key: options.pop(key) for key in list(options) if key.startswith("vllm_importance")}
    rows, width = batch["mask"].shape
    arguments = config(
        output_dir=folder,
        report_to="none",
        use_cpu=True,
        bf16=False,
        num_iterations=2,
        num_generations=4,
        per_device_train_batch_size=rows,
        max_completion_length=width,
        **options,
        **vllm,
    )
    made = kind(
        model=folder,
        reward_funcs=lambda **_: None,
        args=arguments,
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
        train_dataset=Dataset.from_dict({"prompt": ["word"]}),
    )
    made.use_vllm = bool(vllm)
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def result(made: Scripted, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Advantages, loss and gradient of one trainer on one batch."""
    made.batch, made.current = batch, batch["current"].clone().requires_grad_()
    scored = made._generate_and_score_completions([{"prompt": "word"}] * len(batch["mask"]))
    loss = made._compute_loss(made.model, scored)
    (gradient,) = torch.autograd.grad(loss, made.current)
    advantages = scored["advantages"][:, None] * batch["mask"]
    return {"advantages": advantages, "loss": loss.detach(), "gradient": gradient}


def save_model(folder: str) -> None:
    """A model and a tokenizer of three words, for the trainer's constructor."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=3, num_key_value_heads=1, **sizes)).save_pretrained(folder)
    words = Tokenizer(WordLevel({"<pad>": PAD, "<eos>": EOS, "word": WORD}, unk_token="word"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)


if __name__ == "__main__":
    batches = {name: batch for name, batch in torch.load(sys.argv[1]).items() if name.startswith("even")}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        for case in (case for case in CASES if case.peer == "TRL"):
            made = trainer(case, folder, next(iter(batches.values())))
            found[case.key] = {name: result(made, batch) for name, batch in batches.items()}
    torch.save(found, sys.argv[2])
