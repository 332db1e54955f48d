"""The data set's own completions as rows: supervised learning."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy


@part("data_rows")
class DataRows:
    """One row a prompt, whose completion stands in a column of the data; no policy wrote it (`behavior` is None).

    The tokens are those of the text, nothing added in front, then the tokenizer's end-of-sequence token where the text
    does not end with one itself; the stop reason is `eos`. A completion is never cut: one that is no text, is empty or
    is longer than `max_new_tokens` makes its row a bad row before the run starts. Nothing is left to chance.

    Attributes:
        policy: whose tokenizer encodes the completions: the learner's.
        column: where they stand; the data set `arithmetic` has worked solutions in `completion`.
        max_new_tokens: longest completion in tokens, the end-of-sequence token included.
    """

    policy: str
    column: str = "completion"
    max_new_tokens: Annotated[int, Field(ge=1)]

    @property
    def reads(self) -> tuple[str, ...]:
        """The policy whose tokenizer it needs."""
        return (self.policy,)

    @property
    def samples(self) -> int:
        """Rows a prompt."""
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the data that it reads."""
        return (self.column,)

    def row_faults(self, columns: Mapping[str, Sequence[Any]], tokenizer: PreTrainedTokenizerBase) -> Mapping[int, str]:
        """Rows without a completion that can be used, each with the reason."""
        values, end = columns[self.column], end_of(tokenizer)
        faults = {
            row: f"column '{self.column}' is a {type(value).__name__}; the text of a completion is expected"
            if not isinstance(value, str)
            else f"column '{self.column}' is empty; the text of a completion is expected"
            for row, value in enumerate(values)
            if not isinstance(value, str) or not value.strip()
        }
        fine = [row for row in range(len(values)) if row not in faults]
        for row, ids in zip(fine, encode([values[row] for row in fine], tokenizer, end, {end}), strict=True):
            if len(ids) > self.max_new_tokens:
                faults[row] = (
                    f"column '{self.column}' has {len(ids)} tokens with the end-of-sequence token, over "
                    f"max_new_tokens = {self.max_new_tokens}"
                )
        return faults

    def __call__(self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator) -> Rollouts:
        """The completion of every prompt; see the class."""
        policy = policies[self.policy]
        texts: tuple[str, ...] = prompts.columns[self.column]
        ids = encode(texts, policy.tokenizer, end_of(policy.tokenizer), policy.eos_ids)
        width = max(map(len, ids))
        lengths = torch.tensor([len(own) for own in ids], device=policy.device)
        return Rollouts(
            prompts=prompts.ids,
            tokens=torch.tensor([[*own, *[0] * (width - len(own))] for own in ids], device=policy.device),
            mask=torch.arange(width, device=policy.device) < lengths[:, None],
            groups=torch.tensor(prompts.groups, device=policy.device),
            stop_reasons=("eos",) * len(prompts),
            texts=texts,
            columns=prompts.columns,
            behavior=None,
        )


def end_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the end-of-sequence token; ValueError without one."""
    end = tokenizer.eos_token_id
    if not isinstance(end, int):
        raise ValueError(
            "the tokenizer has no end-of-sequence token (eos_token), which completions of the data end with. "
            "Name one in its tokenizer_config.json"
        )
    return end


def encode(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, end: int, ends: Collection[int]
) -> list[list[int]]:
    """The token ids of completions, `end` behind those whose last id is none of `ends`."""
    if not texts:
        return []
    found: Any = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
    return [ids if ids and ids[-1] in ends else [*ids, end] for ids in found]
