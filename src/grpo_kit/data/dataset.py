"""Any table that `datasets` reads, local or on the hub, as prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import datasets
from pydantic import Field, model_validator

from grpo_kit.parts import part

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@part("dataset")
class DatasetRows:
    """Rows of a local file or of a hub data set, each turned into a prompt by a template.

    Attributes:
        path: a local `.jsonl`, `.json`, `.csv` or `.parquet` file, or a data set on the Hugging Face hub.
        name: configuration of a hub data set that has several.
        split: split of a hub data set; a local file is one split, `train`. Slices such as `train[:200]` work.
        columns: our name = the table's name, for those that differ; rewards read columns by our name, and `prompt`
            must be among them (or in the table).
        template: the prompt's text, with `{prompt}` where the row's own text goes; few-shot examples go here.
        system: a system message; needs `chat`.
        chat: give the text as a user message through the tokenizer's chat template instead of as plain text.
    """

    path: str
    name: str | None = None
    split: str = "train"
    columns: Mapping[str, str] = Field(default_factory=dict)
    template: Annotated[str, Field(pattern=r"\{prompt\}")] = "{prompt}"
    system: str | None = None
    chat: bool = False

    @model_validator(mode="after")
    def _system_needs_chat(self) -> "DatasetRows":
        if self.system is not None and not self.chat:
            raise ValueError("system is a chat message: set chat = true, or put its text into template")
        return self

    def __call__(self) -> datasets.Dataset:
        """Read the table and write its prompts; ValueError names a missing file or column."""
        rows = self._read()
        for theirs in (*self.columns.values(), *({"prompt"} - set(self.columns))):
            if theirs not in rows.column_names:
                raise ValueError(self._missing(theirs, rows.column_names))
        ours = {name: list(rows[self.columns.get(name, name)]) for name in {*self.columns, "prompt"}}
        ours["prompt"] = [self._prompt(text) for text in ours["prompt"]]
        for name, values in sorted(ours.items()):
            rows = rows.remove_columns([name] if name in rows.column_names else []).add_column(name, values)  # pyright: ignore
        return rows

    def _prompt(self, text: Any) -> Any:
        if not isinstance(text, str) or not text.strip():
            return None
        filled = self.template.replace("{prompt}", text)
        if not self.chat:
            return filled
        system = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*system, {"role": "user", "content": filled}]

    def _read(self) -> datasets.Dataset:
        suffix = Path(self.path).suffix
        local = suffix in FORMATS
        if local and not Path(self.path).is_file():
            raise ValueError(f"data file '{self.path}' does not exist (looked from {Path.cwd()})")
        try:
            if local:
                return datasets.load_dataset(FORMATS[suffix], data_files=self.path, split=self.split)  # pyright: ignore
            return datasets.load_dataset(self.path, self.name, split=self.split)  # pyright: ignore
        except Exception as error:  # the library raises a dozen kinds, down to ConnectionError
            raise ValueError(f"data set '{self.path}' cannot be read: {str(error).splitlines()[0]}") from error

    def _missing(self, column: str, known: list[str]) -> str:
        return (
            f"data set '{self.path}' has no column '{column}'. It has: {', '.join(known)}. "
            'Map it, for example columns = { prompt = "problem" }.'
        )
