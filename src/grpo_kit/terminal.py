"""What is shown: text that others wrote (models, data, servers, files) cannot steer a terminal."""

import unicodedata
from typing import Any

KEPT = "\n\t"
"""Control characters that are shown as they are: they lay a text out."""


def visible(text: str) -> str:
    r"""A text with every character written out that a terminal might obey, or that cannot be seen.

    Those are control characters (escape, bell, carriage return, backspace, delete, and the ones from 0x80 to 0x9f),
    marks of writing direction and other invisible ones, and halves of surrogate pairs. Line breaks and tabs stay.

    Example:
        >>> print(visible("red\x1b[31m, \u202eback"))
        red\x1b[31m, \u202eback
    """
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else repr(each)[1:-1] for each in text)


def one_line(text: str) -> str:
    r"""The same on one line: line breaks and tabs are written out, too.

    Example:
        >>> print(one_line("a\tb\nc"))
        a\tb\nc
    """
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")


def visible_json(document: str) -> str:
    r"""The same for a JSON document, written out as JSON does it, so that it means what it meant.

    Example:
        >>> print(visible_json('{"é": "\x9b"}'))
        {"é": "\u009b"}
    """
    return "".join(each if _is_harmless(each) else _in_json(each) for each in document)


def say(console: Any, text: str, style: str | None = None) -> None:
    """Print a line on a console of rich: visible, and without markup, highlighting and wrapping."""
    console.print(visible(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _is_harmless(letter: str) -> bool:
    return letter.isprintable() or letter in KEPT or unicodedata.category(letter) == "Zs"


def _in_json(letter: str) -> str:
    code = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[start : start + 4]}" for start in range(0, len(code), 4))
