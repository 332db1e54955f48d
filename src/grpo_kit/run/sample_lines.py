"""The lines of `samples.jsonl`: a completion each, with all that is known of it and of its tokens."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grpo_kit.loop import Report
from grpo_kit.run.pieces import pieces
from grpo_kit.shapes import AnyShape
from grpo_kit.step.row_signals import RowSignals


def sample_lines(report: Report, count: int, tokenizer: PreTrainedTokenizerBase) -> Iterator[dict[str, Any]]:
    """A line for each of the first `count` completions of a step; docs/files.md describes the keys."""
    rollouts, rewards, signals = report.experience.rollouts, report.experience.rewards, report.experience.signals
    greedy = rollouts.greedy
    for row in range(min(count, len(rollouts))):
        tokens = rollouts.tokens[row, : int(rollouts.lengths[row])].tolist()
        behavior, seen = rollouts.behavior, report.row_signals
        logprobs = {name: own.logprobs for name, own in seen.scores.items()} if seen else {}
        logprobs |= {key.policy: scores.logprobs for key, scores in signals.scores.items()}
        yield {
            "step": report.step,
            "group": int(rollouts.groups[row]),
            "kept": bool(report.kept[row]),
            "greedy": bool(greedy[row]),
            "prompt": tokenizer.decode(list(rollouts.prompts[row])),
            "completion": rollouts.texts[row],
            "stop_reason": rollouts.stop_reasons[row],
            "columns": {name: values[row] for name, values in rollouts.columns.items()},
            "rewards": {name: _plain(part.per_row()[row]) for name, part in rewards.components.items()},
            "statuses": {name: part.statuses[row] for name, part in rewards.components.items()},
            "tokens": tokens,
            "pieces": pieces(tokens, tokenizer),
            "behavior": rounded(behavior.logprobs[row, : len(tokens)]) if behavior else None,
            "logprobs": {name: rounded(values[row, : len(tokens)]) for name, values in logprobs.items()},
            **_signals(seen, row, len(tokens)),
        }


def _signals(seen: RowSignals | None, row: int, length: int) -> dict[str, Any]:
    """Entropies, and what the terms of learners made of the row; None for a term whose learner does not train on it."""
    if seen is None:
        return {"entropy": {}, "advantage": {}, "correction": {}, "counted": {}}

    def of_terms(values: Mapping[str, Tensor]) -> dict[str, Any]:
        # A term goes by <learner>/<term>, and neither name has a slash.
        is_trained = {key: row in seen.trained[key.rsplit("/", 1)[0]] for key in values}
        return {key: rounded(own[row, :length]) if is_trained[key] else None for key, own in values.items()}

    return {
        "entropy": {
            name: rounded(own.entropy[row, :length]) for name, own in seen.scores.items() if own.entropy is not None
        },
        "advantage": of_terms(seen.advantages),
        "correction": of_terms(seen.corrections),
        "counted": {
            key: None if values is None else [int(value) for value in values]
            for key, values in of_terms(seen.counted).items()
        },
    }


def _plain(value: Any) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def rounded(values: AnyShape) -> list[float | None]:
    """Five decimals; None where a number is not finite."""
    return [round(value, 5) if math.isfinite(value) else None for value in values.double().tolist()]
