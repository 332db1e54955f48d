"""Rows become token ids; every row that cannot be used is named."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import datasets
import jinja2
from transformers import PreTrainedTokenizerBase

from grpo_kit.data.columns import missing_columns
from grpo_kit.data.prompts import PromptSet
from grpo_kit.data.rows import Fault, FaultKind, Rows, as_rows, in_words, tally

CHUNK = 1024
"""Rows tokenized in one call."""

Judge = Callable[[Mapping[str, Sequence[Any]]], Mapping[int, str]]
"""A part's `row_faults`: columns in, the numbers of rows it cannot use out, each with the reason."""
Problem = tuple[FaultKind, str]


def encode_prompts(
    rows: Rows | datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_tokens: int,
    needed: Sequence[str] = (),
    free: Collection[str] = (),
    judges: Sequence[Judge] = (),
    writers: Sequence[Judge] = (),
    limit: int | None = None,
    limit_name: str = "max_prompt_tokens",
) -> PromptSet:
    """Tokenize the column `prompt`: a text as it is, chat messages through the chat template (applied once).

    A chat template writes special tokens itself; to a text the tokenizer adds its own (a beginning-of-sequence token),
    unless it begins with that token written out: then it was rendered already, and nothing is added.

    Rows are never cut. Those without a prompt, longer than `max_tokens` (with everything the template adds), without a
    text or number in a `needed` column (any value in a `free` one), or refused by `judges` (rewards: `not gradable`) or
    by `writers` (samplers: `no completion`) are left out and named in `skipped`, as are the faults that the rows bring.
    `limit` stops after that many good rows; `limit_name` is what users call the limit of tokens. ValueError when a
    needed column is missing, when the tokenizer has no chat template for messages, or when no row is left.
    """
    rows = as_rows(rows)
    missing = {name: name for name in ("prompt", *needed) if name not in rows.columns}
    if missing:
        raise ValueError(missing_columns(rows, missing))
    if rows.chat_options:
        _options_are_read(rows.chat_options, tokenizer)
    ids: list[tuple[int, ...]] = []
    kept: list[int] = []
    faults = list(rows.faults)
    start = 0
    while start < len(rows) and (limit is None or len(kept) < limit):
        wanted = CHUNK if limit is None else min(CHUNK, limit - len(kept))
        numbers = range(start, min(len(rows), start + wanted))
        found, problems = _encode(rows, numbers, tokenizer)
        for number in numbers:
            if number not in problems:
                problem = _problem(found[number], max_tokens, limit_name) or _value_problem(rows, number, needed, free)
                problems |= {number: problem} if problem else {}
        refusing: tuple[tuple[FaultKind, Sequence[Judge]], ...] = (("not gradable", judges), ("no completion", writers))
        for kind, parts in refusing:
            problems |= _refused(rows, [number for number in numbers if number not in problems], kind, parts)
        for number in numbers:
            if number in problems:
                kind, reason = problems[number]
                faults.append(Fault(place=rows.places[number], kind=kind, reason=reason))
            else:
                kept.append(number)
                ids.append(found[number])
        start = numbers.stop
    if not kept:
        raise ValueError(_none_left(rows, faults, f"{max_tokens} tokens ({limit_name})"))
    columns = {name: tuple(values[number] for number in kept) for name, values in rows.columns.items()}
    return PromptSet(ids=tuple(ids), columns=columns, skipped=tuple(faults))


def _encode(
    rows: Rows, numbers: range, tokenizer: PreTrainedTokenizerBase
) -> tuple[dict[int, tuple[int, ...]], dict[int, Problem]]:
    """Token ids of rows, empty where there is no prompt, and what is wrong with the prompts themselves."""
    plain: dict[int, str] = {}
    rendered: dict[int, str] = {}
    start = str(tokenizer.bos_token or "")
    problems: dict[int, Problem] = {}
    for number in numbers:
        prompt = rows["prompt"][number]
        if isinstance(prompt, list) and prompt:
            try:
                rendered[number] = _render(prompt, tokenizer, rows.chat_options)
            except (jinja2.TemplateError, TypeError, KeyError, AttributeError) as error:
                reason = f"the chat template refuses its messages ({type(error).__name__}: {error})"
                problems[number] = "odd chat", reason
        elif isinstance(prompt, str) and prompt.strip():
            (rendered if start and prompt.startswith(start) else plain)[number] = prompt
    for texts in (plain, rendered):
        for number in [number for number, text in texts.items() if not _is_unicode(text)]:
            del texts[number]
            problems[number] = "broken unicode", "its prompt holds half of a surrogate pair"
    found: dict[int, tuple[int, ...]] = dict.fromkeys(numbers, ())
    for texts, special in ((plain, True), (rendered, False)):  # these have their special tokens already
        if texts:
            encoded = tokenizer(list(texts.values()), add_special_tokens=special, return_attention_mask=False)[
                "input_ids"
            ]
            found |= {number: tuple(one) for number, one in zip(texts, encoded, strict=True)}  # pyright: ignore
    return found, problems


def _render(messages: list[Any], tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]) -> str:
    """Messages as the text that the chat template writes, up to where the answer begins."""
    if tokenizer.chat_template is None:
        raise ValueError("the tokenizer has no chat template: remove chat = true and write the prompt as a template")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str | list):
            raise TypeError("a message is a table with role and content")
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options))


def _options_are_read(options: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """ValueError for an option that the chat template never mentions: Jinja would ignore it without a word."""
    templates = tokenizer.chat_template
    text = " ".join(templates.values()) if isinstance(templates, dict) else templates or ""
    for name in options:
        if not re.search(rf"\b{re.escape(name)}\b", text):
            raise ValueError(f"chat_options.{name}: the tokenizer's chat template has no such option. Remove it")


def _problem(encoded: Sequence[int], max_tokens: int, limit_name: str) -> Problem | None:
    """Why a prompt cannot be used, or None."""
    if not encoded:
        return "no prompt", "no prompt (a text that is not empty, or chat messages with chat = true)"
    if len(encoded) > max_tokens:
        return "too long", f"{len(encoded)} tokens, over {limit_name} = {max_tokens}"
    return None


def _value_problem(rows: Rows, number: int, needed: Sequence[str], free: Collection[str]) -> Problem | None:
    """Why the columns that rewards read cannot be used, or None."""
    for name in needed:
        value = rows[name][number]
        if value is None or _is_blank(value) or (isinstance(value, float) and math.isnan(value)):
            return "no value", f"column '{name}' has no value (or extract does not match it)"
        if name not in free and (isinstance(value, bool) or not isinstance(value, str | int | float)):
            return "odd value", f"column '{name}' is a {type(value).__name__}; a text or a number is expected"
        if isinstance(value, str) and not _is_unicode(value):
            return "broken unicode", f"column '{name}' holds half of a surrogate pair"
    return None


def _refused(rows: Rows, numbers: Sequence[int], kind: FaultKind, judges: Sequence[Judge]) -> dict[int, Problem]:
    """What rewards or samplers say of rows that are fine otherwise."""
    if not judges or not numbers:
        return {}
    columns = {name: [values[number] for number in numbers] for name, values in rows.columns.items()}
    return {numbers[at]: (kind, reason) for judge in judges for at, reason in judge(columns).items()}


def _none_left(rows: Rows, faults: Sequence[Fault], limit: str) -> str:
    """The sentence for a set of which nothing is left."""
    if not faults:
        return f"{rows.source} has no rows"
    first = "; ".join(map(str, faults[:3])) + ("; ..." if len(faults) > 3 else "")
    return f"{rows.source}: 0 of {len(faults)} rows left, limit {limit}: {in_words(tally(faults))}. {first}"


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
