"""What a docstring says of each attribute."""

import inspect
import re


def split_docstring(thing: object) -> tuple[str, dict[str, str]]:
    """The prose of a Google-style docstring, and the description of each name in its section `Attributes`.

    Example:
        >>> prose, found = split_docstring(re.Match)
        >>> found
        {}
    """
    text = inspect.getdoc(thing) or ""
    if text.startswith(f"{getattr(thing, '__name__', '')}("):  # a dataclass without a docstring has its signature
        return "", {}
    pieces = re.split(r"^(Attributes|Args|Example|Examples|Returns|Raises):$", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", sections.get("Attributes", ""), re.MULTILINE)
    return pieces[0].strip(), {name: " ".join(said.split()) for name, said in entries}
