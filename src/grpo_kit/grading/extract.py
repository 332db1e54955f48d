r"""Where a completion says its final answer.

The rule, the same in training and in evaluation:

1. What stands inside `<think>...</think>` is no answer: only the text behind the last `</think>` is read, and a thought
   that never ends leaves nothing behind it. A completion without these tags is read whole.
2. The last complete `\boxed{...}` or `\fbox{...}` counts, also `\boxed 7`. Of boxes in boxes the innermost counts. An
   empty last box is no answer.
3. Without a box, unless `strict`, the last `<answer>...</answer>` counts; without one, a cue is looked for in the last
   line that is not empty: `answer is`, `answer:`, `A:` at the line's start, or `####`. A cue that ends the line before,
   or is that line (`## Final Answer`), counts for the last line. The answer is what follows the last cue, to the end of
   its sentence; of several `$...$` there, the last. "I hope it is correct" is no line.
4. Else there is no answer: a number in passing is none.
"""

import re

_BRACES = re.compile(
    r"\\{1,2}(?:boxed|fbox|framebox)\s*(?:\{|(?P<bare>[+\-−]?[\w.,/%]*\w|\\[a-zA-Z]+(?=\s*\{)))|\\.|[{}]", re.DOTALL
)
_CUE = re.compile(
    r"\banswer\b(?:\s+is\b(?:\s*:)?|\s*[:=])|(?:^|\n)\s*\**A\s*:|####|(?:^|\n)[#*\s]*(?:final )?answer[*\s]*(?=\n)",
    re.IGNORECASE,
)
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_IDLE_LINE = re.compile(r"\$\$|\\\[|\\\]|\W*I hope (?:it|this) is correct\W*", re.IGNORECASE)
_DOLLARS = re.compile(r"\$\$?(?!\s)([^$]+)(?<!\s)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_SENTENCE_END = re.compile(r"[.!?;](?=\s+\S)| (?:because|since|as) |[.!?;,:]*\s*$")
LONGEST_TAIL = 4000
"""Characters at the end of a completion in which a cue is looked for."""
_EMPHASIS = re.compile(r"(\*\*|__|`)(.+?)\1")


def final_answer(text: str, *, strict: bool = False) -> str | None:
    r"""The final answer of a completion by the rule above, or None.

    Args:
        text: the completion.
        strict: only a box counts.

    Example:
        >>> final_answer(r"First \boxed{12}, but no: \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
        >>> final_answer("So the answer is $x = 41$. Wait, 42 was asked.")
        'x = 41'
        >>> final_answer("The answer is 41.", strict=True) is None
        True
        >>> final_answer("There are 18 hens, but I could not finish the") is None
        True
    """
    spoken = _spoken(text)
    found = last_boxed(spoken)
    if found is None and not strict:
        tagged = _TAGGED.findall(spoken)
        found = tagged[-1].strip() if tagged else _after_cue(spoken)
    return found or None


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}` or `\fbox{...}`, braces balanced; None without one.

    One pass over the text, so that no completion can make it slow.

    Example:
        >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
        >>> last_boxed(r"you asked for \boxed , so \boxed 7.")
        '7'
    """
    open_braces: list[tuple[bool, int]] = []
    last: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match["bare"] is not None:
            last = _bare(text, match)
        elif match[0].endswith("{") and match[0] != r"\{":
            open_braces.append((match[0] != "{", match.end()))
        elif match[0] == "}" and open_braces:
            is_box, start = open_braces.pop()
            if is_box and (last is None or start > last[0]):
                last = start, match.start()
    return text[last[0] : last[1]].strip() if last else None


def _bare(text: str, match: re.Match[str]) -> tuple[int, int]:
    r"""The place of a box without braces: a number or word, or a command with its groups (`\boxed\frac{1}{2}`)."""
    start, end = match.span("bare")
    while group := re.compile(r"\s*\{[^{}]*\}").match(text, end) if text[start] == "\\" else None:
        end = group.end()
    return start, end


def _spoken(text: str) -> str:
    """The text without thoughts."""
    _, closed, rest = text.rpartition("</think>")
    return (rest if closed else text).partition("<think>")[0]


def _after_cue(text: str) -> str | None:
    lines = [line.strip() for line in text[-LONGEST_TAIL:].splitlines()]
    tail = "\n".join([line for line in lines if line and not _IDLE_LINE.fullmatch(line)][-2:])
    cues = list(_CUE.finditer(tail))
    if not cues:
        return None
    rest = _EMPHASIS.sub(r"\2", tail[cues[-1].end() :]).strip("*_` ")
    if "\n" in rest.strip():
        return None
    rest = rest.strip()
    if marked := _DOLLARS.findall(rest):
        return next(part for part in marked[-1] if part).strip()
    end = _SENTENCE_END.search(rest)
    return rest[: end.start()].strip(" :") if end else rest
