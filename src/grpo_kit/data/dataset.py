"""Any table that `datasets` reads, local or on the hub, as prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, Field, model_validator

from grpo_kit.data.columns import drop_duplicates, keep, map_columns, missing_columns
from grpo_kit.data.few_shot import Example, read_examples
from grpo_kit.data.rows import Fault, Rows
from grpo_kit.data.tables import read_table
from grpo_kit.data.wording import SHOT_TEMPLATE, Template, chat_prompt, plain_prompt
from grpo_kit.parts import part
from grpo_kit.patterns import OneGroup


@part("dataset")
class DatasetRows:
    """Rows of local files or of a hub data set, each turned into a prompt.

    A row that cannot be read, or whose `id` came before, is counted and named and costs nothing but itself.

    Attributes:
        path: a local `.jsonl`, `.json`, `.csv`, `.tsv` (also with `.gz`, `.bz2` or `.xz`), `.parquet` or `.arrow`
            file; a pattern such as `problems/*.jsonl` for several of one format; a folder; or a data set on the hub.
        name: configuration of a hub data set that has several; empty for one that has not, and for a local file.
        split: split of a hub data set; local files are one split of any name. Slices such as `train[:200]` work.
        rows: the first rows only (of the slice, if there is one), bad ones included; a text file is read no further.
        stream: read a hub data set or a folder no further than `rows`, too, instead of as a whole.
        columns: our name = the table's name, for those that differ; rewards read columns by our name, and `prompt`
            must be among them (or in the table).
        extract: our name = a regular expression whose one group is kept of a column, `.` matching line ends too; a
            value it does not match becomes a missing one.
        id: the column that tells rows apart, by the table's name: a second row of the same id is a bad row. A table
            without the column `id` is fine; empty: any row may come twice.
        template: the prompt's text, with `{prompt}` where the row's own text goes.
        system: a system message; needs `chat`.
        chat: give the text as a user message through the tokenizer's chat template instead of as plain text; a row's
            `prompt` may then be a list of messages, too.
        chat_options: further options of the chat template, such as `{ enable_thinking = false }`; needs `chat`.
        few_shot: worked examples in front of every prompt, `{ prompt = "...", answer = "..." }` each: with `chat` as
            exchanges between user and assistant, else as text. A row whose text is one of them is a bad row.
        few_shot_path: a local text file of examples instead, with the columns `prompt` and `answer`.
        few_shot_count: how many of the examples, the first; all without it.
        few_shot_template: how an example becomes text, `{prompt}` being its prompt through `template`; not for `chat`.
    """

    path: Annotated[str, Field(min_length=1)]
    name: str = ""
    split: str = "train"
    rows: Annotated[int, Field(ge=1)] | None = None
    stream: bool = False
    columns: Mapping[str, str] = Field(default_factory=dict)
    extract: Mapping[str, OneGroup] = Field(default_factory=dict)
    id: str = "id"
    template: Template = "{prompt}"
    system: str | None = None
    chat: bool = False
    chat_options: Mapping[str, str | int | float | bool] = Field(default_factory=dict)
    few_shot: Annotated[Sequence[Example], AfterValidator(tuple)] = ()
    few_shot_path: str = ""
    few_shot_count: Annotated[int, Field(ge=1)] | None = None
    few_shot_template: Annotated[str, Field(pattern=r"(?s)\{prompt\}.*\{answer\}")] = SHOT_TEMPLATE

    @model_validator(mode="after")
    def _keys_that_need_others(self) -> "DatasetRows":
        if self.system is not None and not self.chat:
            raise ValueError("system is a chat message: set chat = true, or put its text into template")
        if self.chat_options and not self.chat:
            raise ValueError("chat_options are the chat template's: set chat = true, or remove them")
        if self.stream and self.rows is None:
            raise ValueError("stream reads the first rows only: say how many, for example rows = 10000")
        if self.stream and "[" in self.split:
            raise ValueError(f"stream reads from the start: write split without a slice, not '{self.split}'")
        if self.few_shot and self.few_shot_path:
            raise ValueError("few_shot and few_shot_path both give examples: remove one")
        given = bool(self.few_shot or self.few_shot_path)
        if self.few_shot_count is not None and not given:
            raise ValueError("few_shot_count counts examples and there are none: give few_shot or few_shot_path")
        if self.few_shot_count is not None and self.few_shot and self.few_shot_count > len(self.few_shot):
            raise ValueError(f"few_shot_count = {self.few_shot_count}, but few_shot has {len(self.few_shot)}")
        if self.few_shot_template != SHOT_TEMPLATE and (self.chat or not given):
            why = "with chat they are messages" if self.chat else "there are none"
            raise ValueError(f"few_shot_template writes examples as text, but {why}: remove it")
        return self

    def __hash__(self) -> int:
        """Hash of the settings; mappings have none of their own."""
        return hash(repr(self))

    def __call__(self) -> Rows:
        """Read the table and write its prompts; ValueError names a missing file or column."""
        table = read_table(self.path, name=self.name, split=self.split, rows=self.rows, stream=self.stream)
        if self.id not in ("", "id") and self.id not in table.columns:
            raise ValueError(missing_columns(table, {"id": self.id}))
        table = map_columns(drop_duplicates(table, self.id), self.columns, self.extract)
        examples = self._examples()
        shown = {example.prompt.strip() for example in examples}
        prompts: list[Any] = []
        kept: list[int] = []
        faults = list(table.faults)
        for number, given in enumerate(table["prompt"]):
            place = table.places[number]
            if isinstance(given, str) and given.strip() in shown:
                reason = "its text is one of the few-shot examples"
                faults.append(Fault(place=place, kind="few-shot example", reason=reason))
                continue
            try:
                prompts.append(self._prompt(given, examples))
                kept.append(number)
            except ValueError as error:
                faults.append(Fault(place=place, kind="odd chat", reason=str(error)))
        table = keep(table, kept)
        columns = {**table.columns, "prompt": prompts}
        return replace(table, columns=columns, faults=tuple(faults), chat_options=self.chat_options)

    def _prompt(self, given: Any, examples: Sequence[Example]) -> Any:
        """The prompt of one row; None where the value is no text (nor, with `chat`, messages)."""
        if self.chat and (isinstance(given, list) or _is_text(given)):
            return chat_prompt(given, template=self.template, examples=examples, system=self.system)
        if not _is_text(given):
            return None
        return plain_prompt(given, template=self.template, examples=examples, shot_template=self.few_shot_template)

    def _examples(self) -> Sequence[Example]:
        """The few-shot examples, from the recipe or from their file."""
        if self.few_shot_path:
            return read_examples(self.few_shot_path, self.few_shot_count)
        return self.few_shot[: self.few_shot_count]


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())
