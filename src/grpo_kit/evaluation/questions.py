"""Questions with gold answers, from a named set, a file or a run's own data, worded for a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import PydanticCustomError
from transformers import PreTrainedTokenizerBase

from grpo_kit.data import DATA, Rows, as_rows
from grpo_kit.data.tables import read_table
from grpo_kit.evaluation.sets import ANSWER_COLUMNS, INSTRUCTION, PROMPT_COLUMNS, Place
from grpo_kit.parts import did_you_mean

COLUMN = "answer"
"""The column of gold answers, under our name."""
KEPT = ("chat_options", "few_shot", "few_shot_path", "few_shot_count", "few_shot_template")
"""Keys of a run's data that word its prompts, beside those that `Asking` names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """How a question is put to a model.

    Attributes:
        template: the text with `{prompt}` in it; None for the default one.
        system: a system message, for chat.
        chat: through the chat template; None: where the tokenizer has one.
        stop: strings that end a completion; None for those that belong to the template.
        few_shot: a file of worked examples in front of every question.
        shots: how many of them; None for all.
        kept: further keys of a run's data that word its prompts.
    """

    template: str | None = None
    system: str | None = None
    chat: bool | None = None
    stop: tuple[str, ...] | None = None
    few_shot: str | None = None
    shots: int | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    def over(self, run: "Asking") -> "Asking":
        """What is given here put over the way of a run."""
        given = {name: value for name in Asking.__slots__ if (value := getattr(self, name)) not in (None, {})}
        return replace(run, **given)

    def resolve(self, tokenizer: PreTrainedTokenizerBase, instruction: str = INSTRUCTION) -> "Asking":
        """Decide what was left open, for one tokenizer; ValueError where that cannot be."""
        has_template = tokenizer.chat_template is not None
        chat = has_template if self.chat is None else self.chat
        if chat and not has_template:
            raise ValueError("the tokenizer has no chat template: use --no-chat")
        if self.system is not None and not chat:
            raise ValueError("a system message needs chat: use --chat, or put its text into --template")
        template = self.template
        if template is None:
            template = "{prompt}\n\n" + instruction
            template = template if chat else f"Problem: {template}\n\nSolution:"
        if "{prompt}" not in template:
            raise ValueError(f"--template {template!r} has no {{prompt}}, the place of the question")
        own = () if chat or self.template is not None else ("\n\nProblem:",)
        return replace(self, template=template, chat=chat, stop=own if self.stop is None else self.stop)

    def table(self) -> dict[str, Any]:
        """The keys of a `dataset` table in a recipe that word its prompts so; resolved."""
        kept = dict(self.kept)
        kept.pop("few_shot_template" if self.chat else "chat_options", None)  # each belongs to the other way
        if self.few_shot is not None:
            kept = {name: value for name, value in kept.items() if not name.startswith("few_shot")}
            kept["few_shot_path"] = self.few_shot
        words = {"template": self.template, "system": self.system, "chat": self.chat, "few_shot_count": self.shots}
        return kept | {name: value for name, value in words.items() if value is not None}


def asked_in(recipe: Mapping[str, Any]) -> Asking:
    """How a run, given by the table of its recipe, puts questions to its policies."""
    data = recipe.get("data", {})
    return Asking(
        template=data.get("template", "{prompt}"),
        system=data.get("system"),
        chat=data.get("chat", False),
        stop=tuple(recipe.get("sampler", {}).get("stop", ())),
        kept={name: data[name] for name in KEPT if name in data},
    )


def rows_of(place: Place, asking: Asking, columns: Mapping[str, str]) -> Rows:
    """The questions of a set with the columns `prompt` and `answer`; ValueError where they cannot be read.

    Args:
        place: which set.
        asking: how to ask, resolved.
        columns: our name = the file's, for a file whose columns have unusual names.
    """
    named, table = place.named, asking.table()
    prompts, answers = PROMPT_COLUMNS, ANSWER_COLUMNS
    known: Sequence[str] | None = None
    if named is not None:
        prompts, answers = (named.prompt, *prompts), (named.answer, *answers)
        table |= {"path": named.path, "name": named.config, "split": named.split}
        table |= {"extract": {COLUMN: named.extract}} if named.extract else {}
    if place.file is not None:
        known = read_table(str(place.file)).column_names
        table |= {"path": str(place.file), "name": "", "split": "train"}
    found = {"prompt": _pick("prompt", prompts, known, columns), COLUMN: _pick(COLUMN, answers, known, columns)}
    return _read({"kind": "dataset", **table, "columns": found})


def own_rows(data: Mapping[str, Any], asking: Asking) -> Rows:
    """The questions of a run's own data, a table of its recipe, worded as asked."""
    kind = data.get("kind")
    if kind == "dataset":
        words = {"template", "system", "chat", *KEPT}
        return _read({name: value for name, value in data.items() if name not in words} | asking.table())
    if asking.table() != {"template": "{prompt}", "chat": False}:
        raise ValueError(f"its prompts, of the kind '{kind}', have no template, system message, chat or examples")
    return _read(data)


def _read(table: Mapping[str, Any]) -> Rows:
    try:
        part: Any = DATA.read(table)
    except PydanticCustomError as error:
        found = (error.context or {}).get("errors") or [{"msg": error.message(), "loc": ()}]
        faults = [": ".join([*map(str, one["loc"][:1]), one["msg"]]) for one in found]
        raise ValueError(f"the questions cannot be read: {'; '.join(faults)}") from None
    rows = as_rows(part())
    golds = [", ".join(map(str, gold)) if isinstance(gold, list) else gold for gold in rows.columns.get(COLUMN, ())]
    return replace(rows, columns={**rows.columns, COLUMN: golds}) if COLUMN in rows.columns else rows


def _pick(ours: str, candidates: Sequence[str], known: Sequence[str] | None, columns: Mapping[str, str]) -> str:
    """The table's name of a column: the one given, else the first candidate that is there."""
    if ours in columns:
        return columns[ours]
    for name in candidates:
        if known is None or name in known:
            return name
    names = " or ".join(f"'{name}'" for name in dict.fromkeys(candidates))
    raise ValueError(
        f"no column {names}. It has: {', '.join(known or ())}.{did_you_mean(ours, known or ())} "
        f"Say which it is: --column {ours}=NAME"
    )
