"""What kind of thing a text is: a value, words, several things, an equation, a comparison, a set, a matrix."""

import re
from functools import lru_cache
from itertools import product

from grpo_kit.grading.kinds import Answer, Chain, Comparison, Join, Matrix, Named, Ratio, Several, Union, Value, Words
from grpo_kit.grading.text import closing, depth, normal
from grpo_kit.grading.units import split_unit

NAME = re.compile(
    r"(?:\\?[a-zA-Z]+|\\text\{[^{}]*\}|\\(?:angle|triangle|overline|vec|hat|mathbb|mathcal) ?\{?[a-zA-Z]+\}?)"
    r"(?:_\{[^{}]*\}|_\w)?'*(?:\([\w\\,+]*\))?"
)
"""What may stand before an equals sign as a mere name: `x`, `f(x)`, `a_{1}`, `\\angle ABC`, `\\text{Area}`."""
LONGEST, DEEPEST = 10_000, 100
"""Texts of more characters, or with more brackets in brackets, are not looked into."""
ALL_NUMBERS = ("all real numbers", "real numbers", "all reals", "all real x")
_SIGNS = re.compile(r"\\(?:leq|geq|neq)(?![a-zA-Z])|<|>")
_EQUALS = re.compile(r"(?<![<>!:])(?:=|\\approx(?![a-zA-Z])|\\equiv(?![a-zA-Z]))")
_AND_OR = re.compile(r"(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])|\\(land|lor|wedge|vee)(?![a-zA-Z])")
_MATRIX = re.compile(
    r"(?P<scale>[^&]*?)[\[(]?\\begin\{(?P<kind>[pbB]?matrix|array)\}(?:\{[lcr|]*\})?(?P<rows>.*)\\end\{(?P=kind)\}[\])]?",
    re.DOTALL,
)
_DOMAIN = re.compile(
    r"(?:,|\\text\{,?\}) ?\\forall.*$|,? ?\\text\{,? ?(?:for (?:all|any|every|each|some)|where|when|if)\b.*$"
)
"""What is said of the variables behind an answer."""
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))? ?(?:\\text\{ ?)?([apAP])\.?[mM]\.? ?\}?")


@lru_cache(maxsize=2048)
def read_answer(text: str) -> Answer:
    r"""What a text is; see the classes.

    Example:
        >>> read_answer(r"x = 3 \text{ or } x = -4").join
        'or'
        >>> read_answer("(1,2), (3,4)").items[1]
        Several(items=(Value(latex='3', unit=''), Value(latex='4', unit='')), brackets='()', join=',', plus_minus=False)
    """
    if len(text) > LONGEST:
        return Value(text)
    plain = normal(text)
    return _read(plain) if depth(plain) <= DEEPEST else Value(plain)


def _read(text: str) -> Answer:
    text = _trim(text)
    if (time := _TIME.fullmatch(text)) is not None:
        return Words(f"{int(time[1])}:{time[2] or '00'} {time[3].lower()}m")
    if re.match(r"\\(?:angle|triangle)(?![a-zA-Z])[^=<>,]*$", text):
        return Words(text)  # named by their corners, which do not commute
    if (words := _words(text)) is not None and not _AND_OR.search(words):
        return Value(r"\mathbb{R}") if words in ALL_NUMBERS else Words(words)
    items, join = _separate(text)
    if len(items) > 1:
        return _several(items, join)
    text = items[0] if items and r"\in" in text else text  # less what was said of its variables
    for reader in (_chain, _union, _comparison, _plus_minus, _matrix, _bracketed, _ratio):
        if (answer := reader(text)) is not None:
            return answer
    return _value(text)


def _trim(text: str) -> str:
    r"""Without spaces and stops at the ends; a `\text{...}` around the whole is taken off."""
    text = _DOMAIN.sub("", text).lstrip(" ,;").rstrip(" .,;")
    text = re.sub(r"\\\\$", "", text)
    if re.fullmatch(r"[A-Z]\)", text):
        text = text[0]  # a choice, `C)`
    if (match := re.fullmatch(r"\\text\{([^{}]*)\}", text)) is not None:
        return normal(match[1])
    return text


def _words(text: str) -> str | None:
    r"""A text of nothing but words, folded; None for anything else. `xy` and `abc` are products, `yes` is a word."""
    plain = " ".join(re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).split())
    if not re.fullmatch(r"[^\W\d_][^\W\d_' .\-]*(?:[ \-'.]+[^\W\d_][^\W\d_'\-]*)*[.!]?", plain):
        return None
    longest = max(re.findall(r"[^\W\d_]+", plain), key=len)
    codes = sorted({ord(letter) for letter in longest.lower()})
    neighbors = longest.isascii() and codes[-1] - codes[0] == len(codes) - 1 and len(codes) == len(longest)
    letters = len(longest) < 3 or (neighbors and "\\text" not in text)
    if letters and plain.casefold() != "no":
        return None
    return plain.casefold().strip(".!")


def _separate(text: str) -> tuple[list[str], Join]:
    r"""Split at the outermost commas, semicolons, `and` and `or`, those inside `\text{...}` too."""
    text = re.sub(r"\\text\{([^{}]*)\}", _split_words, text)
    join: Join = ","
    items, start, index = [], 0, 0
    while index < len(text):
        letter = text[index]
        if letter in "([{":
            close = closing(text, index)
            index = len(text) if close is None else close + 1
            continue
        end = index + 1 if letter in ",;" else None
        if (match := _AND_OR.match(text, index)) is not None:
            end = match.end()
            join = "or" if match[0] in ("or", r"\lor", r"\vee") else "and"
        if end is None:
            index += 1
            continue
        items.append(text[start:index])
        start = index = end
    items = [item.strip() for item in [*items, text[start:]]]
    items = [item for item in items if item and item != "\\"]
    told = [item for item in items if not re.fullmatch(r"[a-zA-Z] ?\\in ?\\mathbb ?\{?[NZ]\}?(?:\^\{?\+\}?)?", item)]
    return told or items, join


def _split_words(match: re.Match[str]) -> str:
    r"""`\text{dollars and}` as `\text{dollars}\land `."""
    pieces = re.split(r"(?<![a-zA-Z])(and|or)(?![a-zA-Z])|(,)", match[1])
    signs = {"and": r"\land ", "or": r"\lor ", ",": ","}
    return "".join(signs.get(piece, f"\\text{{{piece.strip()}}}") for piece in pieces if piece and piece.strip())


def is_name(text: str) -> bool:
    """Whether a text is a mere name: `x`, `f(x)`; not a constant."""
    return NAME.fullmatch(text) is not None and text not in (r"\pi", "e", "i", r"\infty")


def _several(items: list[str], join: Join) -> Answer:
    """A list of items; a name before the first only, as in `n=3,5,7`, names them all."""
    first, *rest = items
    name, equals, value = first.partition("=")
    if (
        equals
        and NAME.fullmatch(name.strip())
        and not any(_EQUALS.search(item) or _SIGNS.search(item) for item in rest)
    ):
        return Named(name.strip(), _several([value, *rest], join))
    return Several(tuple(_read(item) for item in items), "", join)


def _split(text: str, pattern: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Split at a pattern outside of all brackets: the pieces and what was between."""
    pieces, between, start, index = [], [], 0, 0
    while index < len(text):
        if text[index] in "([{" and (close := closing(text, index)) is not None:
            index = close + 1
        elif (match := pattern.match(text, index)) is not None:
            pieces.append(text[start:index].strip())
            between.append(match[0])
            start = index = match.end()
        else:
            index += 1
    return [*pieces, text[start:].strip()], between


def _chain(text: str) -> Answer | None:
    sides, signs = _split(text, _EQUALS)
    if len(sides) < 2 or _split(text, _SIGNS)[1]:
        return None
    if any(not side for side in sides):
        return Value(text)
    rounded = "approx" in signs[-1]
    if len(sides) == 2 and NAME.fullmatch(sides[0]) and sides[0] not in ((r"\pi", "e") if rounded else (r"\pi",)):
        return Named(sides[0], _read(sides[1]))
    return Chain(tuple(_read(side) for side in sides), rounded=rounded)


def _union(text: str) -> Answer | None:
    sides, _ = _split(text, re.compile(r"\\in(?![a-zA-Z])"))
    if len(sides) == 2 and NAME.fullmatch(sides[0]) and sides[1]:
        return Named(sides[0], _read(sides[1]))
    if (forgotten := re.fullmatch(r"([a-zA-Z]) ?(\([^()\[\]]*\]|\[[^()\[\]]*\))", text)) is not None:
        return Named(forgotten[1], _read(forgotten[2]))  # `t(0,4]`: the sign between was left out
    without, _ = _split(text, re.compile(r"\\setminus(?![a-zA-Z])"))
    parts, _ = _split(without[0], re.compile(r"\\cup(?![a-zA-Z])|(?<=[)\]}]) ?U ?(?=[(\[\\])"))
    if (len(parts) < 2 and len(without) < 2) or not all([*parts, *without]):
        return None
    return Union(tuple(_read(part) for part in parts), tuple(_read(part) for part in without[1:]))


def _comparison(text: str) -> Answer | None:
    sides, signs = _split(text, _SIGNS)
    return Comparison(tuple(sides), tuple(signs)) if len(sides) > 1 and all(sides) else None


def _plus_minus(text: str) -> Answer | None:
    if not re.search(r"\\[pm][pm](?![a-zA-Z])", text) or "\\text" in text or text.startswith(r"\{"):
        return None
    if r"\mp" not in text and 1 < len(signs := re.split(r"\\pm(?![a-zA-Z])", text)) - 1 <= 4:
        # Several signs are independent of each other.
        choices = product("+-", repeat=len(signs) - 1)
        texts = ["".join(map("".join, zip(signs, (*choice, ""), strict=True))) for choice in choices]
        return Several(tuple(_read(re.sub(r"(^|[(,])\+", r"\1", each)) for each in texts), plus_minus=True)
    upper = re.sub(r"\\pm(?![a-zA-Z])", "+", re.sub(r"\\mp(?![a-zA-Z])", "-", text))
    lower = re.sub(r"\\pm(?![a-zA-Z])", "-", re.sub(r"\\mp(?![a-zA-Z])", "+", text))
    return Several((_read(upper.lstrip("+ ")), _read(lower)), plus_minus=True)


def _matrix(text: str) -> Answer | None:
    if (match := _MATRIX.fullmatch(text)) is None:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-zA-Z])", match["rows"]) if row.strip()]
    scale = match["scale"].removesuffix(r"\cdot").strip()
    times = rf"{scale}\cdot" if scale[-1:].isalnum() or scale[-1:] in tuple(")}") else scale
    entries = [[f"{times}({entry.strip()})" if scale else entry for entry in row.split("&")] for row in rows]
    return Matrix(tuple(tuple(map(_read, row)) for row in entries))


def _bracketed(text: str) -> Answer | None:
    r"""A tuple, interval or set; brackets around one thing are only brackets."""
    text = re.sub(r"^(?:[A-Z]|\\text\{[^{}]*\}) ?(?=\([^()]*,[^()]*\)$)", "", text)  # a named point, `P(2, 4)`
    is_set = text.startswith(r"\{")
    start = 1 if is_set else 0
    if text[start : start + 1] not in tuple("([{") or closing(text, start) != len(text) - 1:
        return None
    inner = text[start + 1 : len(text) - 1].rstrip("\\" if is_set else "")
    if is_set:
        builder = re.fullmatch(r"[a-zA-Z](?: ?\\in ?\\mathbb ?\{?R\}?)?(?:\||:)(.+)", inner)
        if builder is not None:
            return _read(builder[1])
        items, _ = _separate(inner)
        members = tuple(_read(item) for item in items)
        return members[0] if len(members) == 1 and isinstance(members[0], Comparison) else Several(members, "{}")
    items, _ = _separate(inner)
    if len(items) < 2:
        return _read(inner) if text[start] == "(" and inner.strip() else None
    return Several(tuple(_read(item) for item in items), text[start] + text[-1])


def _ratio(text: str) -> Answer | None:
    parts, _ = _split(text, re.compile(":"))
    return Ratio(tuple(_read(part) for part in parts)) if len(parts) > 1 and all(parts) else None


def _value(text: str) -> Answer:
    value, unit = split_unit(text)
    inner = _read(value) if value != text else Value(text)
    return Value(inner.latex, unit) if isinstance(inner, Value) and not inner.unit else inner
