r"""Find what a completion puts in its last `\boxed{...}`."""

import re

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}` or `\fbox{...}`, braces balanced; None without one.

    One pass over the text, so that no completion can make it slow.

    Example:
        >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
    """
    open_braces: list[tuple[bool, int]] = []
    last: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match[0].endswith("{") and match[0] != r"\{":
            open_braces.append((match[0] != "{", match.end()))
        elif match[0] == "}" and open_braces:
            is_box, start = open_braces.pop()
            if is_box and (last is None or start > last[0]):
                last = start, match.start()
    return text[last[0] : last[1]].strip() if last else None
