"""TRL's side of the parity check, in its environment: `python theirs_trl.py BATCHES RESULTS`.

A real trainer is built on a model of a few weights, with the case's options. Only what needs a language model is
replaced: the completions, the rewards and the log-probabilities of the tokens are read from the batch. Advantages,
importance weights, loss and gradient are the trainer's own.
"""

import sys
import tempfile
from collections.abc import Mapping

import torch
from case import Case
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from cases import CASES

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
        columns = [self.batch["rewards"], self.batch["brief"]][: len(self.reward_funcs)]
        return torch.stack(columns, dim=1)

    def _get_per_token_logps_and_entropies(self, model, *_, **__):
        if model is self.ref_model:
            values = self.batch["reference"]
        else:
            values = self.current if torch.is_grad_enabled() else self.batch["old"]
        return values, torch.zeros_like(values), None


class ScriptedGRPO(Scripted, GRPOTrainer):
    """GRPO's trainer on a batch."""


class ScriptedGMPO(Scripted, GMPOTrainer):
    """GMPO's trainer on a batch."""


class ScriptedRLOO(Scripted, RLOOTrainer):
    """RLOO's trainer on a batch."""


TRAINERS = {"GRPO": (ScriptedGRPO, GRPOConfig), "GMPO": (ScriptedGMPO, GMPOConfig), "RLOO": (ScriptedRLOO, RLOOConfig)}


def trainer(case: Case, folder: str, rows: int, width: int) -> Scripted:
    """The trainer of a case; two iterations a batch, so that it compares with the old log-probabilities."""
    options = dict(case.theirs)
    kind, config = TRAINERS[options.pop("trainer", "GRPO")]
    vllm = {key: options.pop(key) for key in list(options) if key.startswith("vllm_importance")}
    arguments = config(
        output_dir=folder,
        report_to="none",
        use_cpu=True,
        bf16=False,
        num_iterations=2,
        num_generations=4,
        per_device_train_batch_size=rows,
        **{"max_completion_length": width, **options},
        **vllm,
    )
    made = kind(
        model=folder,
        reward_funcs=[lambda **_: None] * len(options.get("reward_weights", [1.0])),
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
    advantages = scored["advantages"][:, None] * scored["completion_mask"]
    return {"advantages": advantages, "loss": loss.detach(), "gradient": gradient}


def save_model(folder: str) -> None:
    """A model and a tokenizer of three words, for the trainer's constructor."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=3, num_key_value_heads=1, **sizes)).save_pretrained(folder)
    words = Tokenizer(WordLevel({"<pad>": PAD, "<eos>": EOS, "word": WORD}, unk_token="word"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)


if __name__ == "__main__":
    disable_progress_bar()
    batches, found = torch.load(sys.argv[1]), {}
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        for case in (case for case in CASES if case.peer == "TRL"):
            own = case.of(batches)
            made = trainer(case, folder, *next(iter(own.values()))["mask"].shape)
            found[case.key] = {name: result(made, batch) for name, batch in own.items()}
    torch.save(found, sys.argv[2])
