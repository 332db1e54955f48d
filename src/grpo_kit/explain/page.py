"""A page of formulas, sentences and tables, as plain text for a terminal or as Markdown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from grpo_kit.formula import plain, plain_text
from grpo_kit.terminal import visible

WIDEST, WIDTH = 44, 110
"""A formula up to the first width has its words beside it, else below; they are wrapped to keep lines to the second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """A line `symbol = latex` with words on it; without `latex` the words say all."""

    symbol: str
    latex: str | None = None
    words: str = ""

    @property
    def whole(self) -> str:
        """The formula as LaTeX; the symbol alone where there is none."""
        return self.symbol if self.latex is None else f"{self.symbol} = {self.latex}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of text under headings; a cell may hold `$formulas$`, unless they are `literal` (a user's own values)."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    literal: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A title with sentences (texts), formulas and tables in the order to be read."""

    title: str
    blocks: tuple[str | Formula | Table, ...]


def as_text(title: str, sections: Sequence[Section]) -> str:
    """The page as plain text: no colors, no boxes, nothing cut; sentences are wrapped."""
    lines = [title]
    for section in sections:
        lines += ["", section.title]
        for kind, run in groupby(section.blocks, type):
            if kind is Formula:
                lines += _formula_lines([block for block in run if isinstance(block, Formula)])
                continue
            for block in run:
                lines += _table_lines(block) if isinstance(block, Table) else _sentence_lines(str(block))
    return visible("\n".join(line.rstrip() for line in lines) + "\n")


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    """The page as Markdown with LaTeX formulas between dollar signs."""
    lines = [f"# {title}"]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for kind, run in groupby(section.blocks, type):
            lines.append("")
            for block in run:
                if isinstance(block, Formula):
                    lines.append(f"- ${block.whole}$" + (f": {block.words}" if block.words else ""))
                elif isinstance(block, Table):
                    lines += _markdown_table(block)
                else:
                    lines.append(f"- {block}")
            assert kind is not None
    return visible("\n".join(lines) + "\n")


def _formula_lines(formulas: Sequence[Formula]) -> Iterator[str]:
    texts = [plain(formula.whole) for formula in formulas]
    column = max((len(text) for text in texts if len(text) <= WIDEST), default=WIDEST)
    for formula, text in zip(formulas, texts, strict=True):
        words = _wrapped(plain_text(formula.words), WIDTH - column - 4)
        if len(text) > WIDEST:
            yield f"  {text}"
            text = ""
        for number, line in enumerate(words):
            if text or line:
                yield f"  {'' if number else text:<{column}}  {line}"


def _sentence_lines(text: str) -> list[str]:
    return [f"  {line}" for line in _wrapped(plain_text(text), WIDTH - 2)]


def _table_lines(table: Table) -> Iterator[str]:
    """Columns side by side; the last one is wrapped where the line would be too long."""
    rows = [table.headings, *(row if table.literal else tuple(map(plain_text, row)) for row in table.rows)]
    *widths, _ = (max(len(row[column]) for row in rows) for column in range(len(table.headings)))
    before = sum(widths) + 2 * len(widths) + 2
    for row in rows:
        first, *others = _wrapped(row[-1], max(WIDTH - before, 60))
        yield "  " + "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False)) + first
        yield from (" " * before + line for line in others)


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.headings)} |"
    yield "|---" * len(table.headings) + "|"
    for row in table.rows:
        cells = [re.sub(r"([|$])" if table.literal else r"([|])", r"\\\1", cell) for cell in row]
        yield f"| {' | '.join(cells)} |"
