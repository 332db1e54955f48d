"""Any table that `datasets` reads, local or on the hub, as prompts."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import datasets
from pydantic import Field, field_validator, model_validator

from grpo_kit.parts import part

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@part("dataset")
class DatasetRows:
    """Rows of a local file or of a hub data set, each turned into a prompt by a template.

    Attributes:
        path: a local `.jsonl`, `.json`, `.csv` or `.parquet` file, or a data set on the Hugging Face hub.
        name: configuration of a hub data set that has several; empty for one that has not, and for a local file.
        split: split of a hub data set; a local file is one split of any name. Slices such as `train[:200]` work.
        columns: our name = the table's name, for those that differ; rewards read columns by our name, and `prompt`
            must be among them (or in the table).
        extract: our name = a regular expression whose one group is kept of a text column, `.` matching line ends too;
            a text it does not match becomes a missing value, and its row is skipped and named.
        template: the prompt's text, with `{prompt}` where the row's own text goes; few-shot examples go here.
        system: a system message; needs `chat`.
        chat: give the text as a user message through the tokenizer's chat template instead of as plain text.
    """

    path: str
    name: str = ""
    split: str = "train"
    columns: Mapping[str, str] = Field(default_factory=dict)
    extract: Mapping[str, str] = Field(default_factory=dict)
    template: Annotated[str, Field(pattern=r"\{prompt\}")] = "{prompt}"
    system: str | None = None
    chat: bool = False

    @model_validator(mode="after")
    def _system_needs_chat(self) -> "DatasetRows":
        if self.system is not None and not self.chat:
            raise ValueError("system is a chat message: set chat = true, or put its text into template")
        return self

    @field_validator("extract")
    @classmethod
    def _compiles(cls, extract: Mapping[str, str]) -> Mapping[str, str]:
        for column, pattern in extract.items():
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise ValueError(f"{pattern!r} for '{column}' is not a regular expression: {error}") from None
            if groups != 1:
                raise ValueError(f"{pattern!r} for '{column}' has {groups} groups; mark the part to keep by one ( )")
        return extract

    def __hash__(self) -> int:
        """Hash of the settings; mappings have none of their own."""
        return hash(repr(self))

    def __call__(self) -> datasets.Dataset:
        """Read the table and write its prompts; ValueError names a missing file or column."""
        rows = self._read()
        names = {name: self.columns.get(name, name) for name in sorted({"prompt", *self.columns, *self.extract})}
        for theirs in names.values():
            if theirs not in rows.column_names:
                raise ValueError(self._missing(theirs, rows.column_names))
        ours = {name: list(rows[theirs]) for name, theirs in names.items()}
        for name, pattern in self.extract.items():
            found = (re.fullmatch(pattern, text, re.DOTALL) if isinstance(text, str) else None for text in ours[name])
            ours[name] = [match[1].strip() if match else None for match in found]
        ours["prompt"] = [self._prompt(text) for text in ours["prompt"]]
        others = {name: list(rows[name]) for name in rows.column_names if name not in ours}
        return datasets.Dataset.from_dict({**others, **ours})

    def _prompt(self, given: Any) -> Any:
        """The prompt of one row; None where the value is no text (nor, with `chat`, messages)."""
        if self.chat and isinstance(given, list):
            return [*self._system(), *given]
        if not isinstance(given, str) or not given.strip():
            return None
        filled = self.template.replace("{prompt}", given)
        return [*self._system(), {"role": "user", "content": filled}] if self.chat else filled

    def _system(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}] if self.system is not None else []

    def _read(self) -> datasets.Dataset:
        suffix = Path(self.path).suffix
        if suffix not in FORMATS and Path(self.path).is_file():
            raise ValueError(f"data file '{self.path}' must end in {', '.join(FORMATS)}, by its format")
        if suffix not in FORMATS:
            return self._load(self.path, self.name or None, split=self.split)
        if not Path(self.path).is_file():
            raise ValueError(f"data file '{self.path}' does not exist (looked from {Path.cwd()})")
        if self.name:
            raise ValueError(f"name '{self.name}' belongs to a hub data set; for the file '{self.path}' set it to ''")
        return self._load(FORMATS[suffix], data_files={self.split.split("[")[0]: self.path}, split=self.split)

    def _load(self, *where: Any, **settings: Any) -> datasets.Dataset:
        try:
            return datasets.load_dataset(*where, **settings)  # pyright: ignore[reportReturnType]
        except Exception as error:  # the library raises a dozen kinds, down to ConnectionError
            cause = error.__cause__ or error  # the outer message often says no more than that something failed
            first_line = (str(cause).splitlines() or [type(cause).__name__])[0]
            raise ValueError(f"data set '{self.path}' cannot be read: {first_line}") from error

    def _missing(self, column: str, known: list[str]) -> str:
        return (
            f"data set '{self.path}' has no column '{column}'. It has: {', '.join(known)}. "
            'Map it, for example columns = { prompt = "problem" }.'
        )
