r"""One spelling for what authors of answers write in many: plain LaTeX without layout, from LaTeX, unicode or code."""

import re
import unicodedata
from functools import lru_cache

from grpo_kit.grading.spellings import CURRENCIES, FUNCTIONS, GREEK, RENAMED, SUBSCRIPTS, SUPERSCRIPTS, SYMBOLS

_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|phantom\{[^{}]*\}|rm|bf|it|mathstrut)"
    r"(?![a-zA-Z])\.?"
)
_SPACE = re.compile(r"(?<!\\)\\(?:[,;:!> ]|[hv]space\*?\{[^{}]*\}|thinspace|medspace|enspace)|~|\s+")
_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?(?![a-zA-Z])")
_ROMAN = re.compile(r"\\(mathrm|mathit)\s*\{\s*([^{}]*?)\s*\}")
_WRAPPERS = re.compile(
    r"\\(?:begin|end)\{(?:aligned|align\*?|gathered|equation\*?|split)\}|\\color\{[^{}]*\}|\\checkmark|\\square"
    r"|\\(?:underline|mathop)(?=\{)|\\textcolor\{[^{}]*\}|\^\{?\\text(?:rm)?\{(?:st|nd|rd|th)\}\}?|(?<=\d)(?:st|nd|rd|th)(?![a-zA-Z])"
)
_TOKEN = r"\\sqrt\{[^{}]*\}|\\(?!sqrt|frac)[a-zA-Z]+|[a-zA-Z\d]"
"""What TeX takes as an argument without braces."""
_PARENTHESIZED = re.compile(r"(?:\\sqrt(?:\[\w+\])?|\^)\s*\(")
_DIGIT_GROUPS = re.compile(
    r"(?<![\d.,(\[])(\d{1,3})((?:(?:,|\{,\}|(?<=\d) | ?\\[,;!:] ?|, ?\\! ?)\d{3})+)(?!\d)(?!\s*,\s*\d)"
)


@lru_cache(maxsize=4096)
def normal(text: str) -> str:
    r"""The text in one spelling; two texts of the same normal form are the same answer.

    Unicode signs become LaTeX, layout and spacing commands go, spellings of one command become one (`\dfrac`, `\tfrac`,
    `\frac12` to `\frac{1}{2}`), code becomes LaTeX (`sqrt(2)*x**2`), digit groups are joined (`1\,234`, `1,234`), and a
    column whose backslashes were doubled is read as meant.

    Example:
        >>> normal(r"$\dfrac12$."), normal("7,\\! 048,\\! 900"), normal("10 - 2√5")
        ('\\frac{1}{2}', '7048900', '10-2\\sqrt{5}')
    """
    text = _undouble(text.strip())
    text = _unicode(text)
    text = _currency(text)
    text = re.sub(r"\\?\$|(?<!\\)\\[()\[\]]", " ", text)
    text = _WRAPPERS.sub("", text)
    text = re.sub(r"\\q?quad(?![a-zA-Z])", ", ", text)
    text = re.sub(r"\\?%", r"\\% ", text)
    text = _DIGIT_GROUPS.sub(lambda match: match[1] + re.sub(r"\D", "", match[2]), text)
    text = _LAYOUT.sub("", text)
    text = _COMMAND.sub(_rename, text)
    text = re.sub(
        r"\\text\s*\{([^{}]*)\}", lambda match: rf"\text{{{' '.join(match[1].replace('~', ' ').split())}}}", text
    )
    text = _SPACE.sub(" ", text)
    text = _ROMAN.sub(_roman, text)
    text = _code(text)
    text = _groups(text)
    text = text if r"\begin" in text else text.replace("&=", "=").replace("&", ",")
    text = re.sub(r"\s*([-+=<>/^_,;:|(){}\[\]&])\s*", r"\1", text)
    text = re.sub(r"(\\[a-zA-Z]+) +(?![a-zA-Z])", r"\1", text)
    text = text.strip().removesuffix(".").removesuffix(",").strip()
    return _unwrap(text)


def _currency(text: str) -> str:
    r"""Amounts of money with the currency behind, where there is nothing else: `\$5` as `5 \text{dollar}`."""
    amount = re.fullmatch(r"(-?) ?(?:\\?\$|USD|(EUR|GBP)) ?([\d.,]*\d)(?: ?\\text\{ ?(\w*) ?\}| (\w+))?", text)
    if amount is None or (text.count("$") == 2 and not text.startswith("\\")):
        return text
    sign, other, number, *words = amount.groups()
    return f"{sign}{number} \\text{{{' '.join(word for word in words if word)} {CURRENCIES.get(other, 'dollar')}}}"


def _undouble(text: str) -> str:
    r"""Backslashes that were escaped twice on their way here: all doubled, and before letters (a matrix is not)."""
    if "\\\\" in text and not re.search(r"(?<!\\)\\(?!\\)", text) and re.search(r"\\\\[a-zA-Z]{2}", text):
        return text.replace("\\\\", "\\")
    return text


def _unicode(text: str) -> str:
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+", lambda match: "^{" + match[0].translate(SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉ₙ]+", lambda match: "_{" + match[0].translate(SUBSCRIPTS) + "}", text)
    text = re.sub("(\\d?)([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])", _vulgar, text)
    text = re.sub(
        "√ ?(\\(|\\{|\\d+(?:\\.\\d+)?|\\w)", lambda m: r"\sqrt" + (m[1] if m[1] in "({" else "{" + m[1] + "}"), text
    )
    text = re.sub("∛ ?(\\d+|\\w)", r"\\sqrt[3]{\1}", text)
    text = "".join(SYMBOLS.get(letter, letter) for letter in text)
    text = "".join(" " if unicodedata.category(letter) in ("Zs", "Cf") else letter for letter in text)
    return unicodedata.normalize("NFKC", text)


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[2]).split("⁄")
    return f"{match[1]}\\frac{{{top}}}{{{bottom}}}"


def _rename(match: re.Match[str]) -> str:
    new = RENAMED.get(match[1], match[1])
    return ("\\" + new if new[0].isalpha() else new) + " " * (new.isalpha() and match[0][-1].isalpha())


def _roman(match: re.Match[str]) -> str:
    r"""Upright letters: functions are commands, `e`, `i` and `d` are themselves, the rest is text, a word at a time."""
    word = match[2]
    if match[1] == "mathit":
        return word
    if word in FUNCTIONS or word in GREEK:
        return f"\\{word} "
    return re.sub(
        r"(?<!\\)[a-zA-Z]+(?:[ ]+[a-zA-Z]+)*",
        lambda found: found[0] if found[0] in ("e", "i", "d") else f"\\text{{{found[0]}}}",
        word,
    )


def _code(text: str) -> str:
    """Plain-text mathematics as LaTeX: functions, Greek letters, `**`, `*`, comparisons of two signs."""
    pieces = re.split(r"(\\text\{[^{}]*\})", text)
    return "".join(piece if index % 2 else _code_piece(piece) for index, piece in enumerate(pieces))


def _code_piece(text: str) -> str:
    text = re.sub(r"(?<![a-zA-Z])(?:np|math|sp|sympy)\.(?=[a-zA-Z])", "", text)
    text = text.replace("**", "^").replace("*", r"\cdot ").replace("...", r"\ldots ")
    text = text.replace("<=", r"\leq ").replace(">=", r"\geq ").replace(" !=", r"\neq ").replace("+/-", r"\pm ")
    text = re.sub(r"(?<![\\a-zA-Z])(sqrt|cbrt)(?=\s*\()", lambda m: r"\sqrt" if m[1] == "sqrt" else r"\sqrt[3]", text)
    text = re.sub(rf"(?<![\\a-zA-Z])({'|'.join(FUNCTIONS)})(?![a-zA-Z])", r"\\\1 ", text)
    text = re.sub(rf"(?<![\\a-zA-Z])({'|'.join(GREEK)})(?![a-zA-Z])", r"\\\1 ", text)
    text = re.sub(r"(\d)\.(?=[-+*/^)}]|\\(?:times|cdot|pi))", r"\1", text)
    return re.sub(r"(?<![\\a-zA-Z])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty ", text)


def _groups(text: str) -> str:
    r"""Arguments in braces: `\frac12`, `\sqrt3`, `\sqrt(x)`, `x^10` written by hand as `x^{10}`."""
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    text = re.sub(rf"\\frac\s*({_TOKEN})", r"\\frac{\1}", text)
    for at in reversed([match.end() for match in re.finditer(r"\\frac\s*(?=\{)", text)]):
        close = closing(text, at)
        if close is not None and (bare := re.compile(rf"\s*({_TOKEN})").match(text, close + 1)) is not None:
            text = f"{text[: close + 1]}{{{bare[1]}}}{text[bare.end() :]}"
    text = re.sub(r"\\binom\s*(\d)\s*(\d)", r"\\binom{\1}{\2}", text)
    text = re.sub(r"\{([^{}]*)\\choose ?([^{}]*)\}", r"\\binom{\1}{\2}", text)
    text = re.sub(r"(?<![a-zA-Z])C\(([^(),]*),([^(),]*)\)", r"\\binom{\1}{\2}", text)
    text = re.sub(r"\\(d?dot|bar|hat|vec|tilde) ?(\\?[a-zA-Z]+)", r"\\\1{\2}", text)
    text = re.sub(r"\^\{?\s*\\prime\s*\}?", "'", text)
    text = re.sub(r"\\text\{([-+\d]+)\}", r"\1", text)
    if r"\ldots" in text and len(text) < 200:
        text = re.sub(r"(?<![\d.])(\d*\.\d*?)(\d+?)\2{2,}\s*\\ldots", r"\1\\overline{\2}", text)
    text = re.sub(r"(?<=\d)\s*(?:\\text\{to\}|\bto\b)\s*(?=\d)", ":", text)
    text = re.sub(r"\^\s*(-?\d+(?:\.\d+)?|\\circ(?![a-zA-Z]))", r"^{\1}", text)
    text = re.sub(r"_\s*(\w)(?![\w])", r"_{\1}", text)
    start = 0
    while (at := _PARENTHESIZED.search(text, start)) is not None:
        start, close = at.end(), closing(text, at.end() - 1)
        if close is not None:
            text = f"{text[: start - 1]}{{{text[start:close]}}}{text[close + 1 :]}"
    return text


def closing(text: str, start: int) -> int | None:
    """The place of the bracket that closes the one at `start`, of whatever kind; None when it stays open.

    Example:
        >>> closing("f(a[1])+2", 1)
        6
    """
    depth = 0
    for index in range(start, len(text)):
        if text[index] in "([{":
            depth += 1
        elif text[index] in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return None


def depth(text: str) -> int:
    """How many brackets stand in brackets at most.

    Example:
        >>> depth("(a[1])+(2)")
        2
    """
    here = deepest = 0
    for letter in text:
        here += (letter in "{([") - (letter in "})]")
        deepest = max(deepest, here)
    return deepest


def _unwrap(text: str) -> str:
    """Without braces, a box, or brackets around brackets around the whole."""
    many = min(len(text) - len(text.lstrip("(")), len(text) - len(text.rstrip(")")))
    if many > 1 and closing(text[many - 1 : len(text) - many + 1], 0) == len(text) - 2 * many + 1:
        text = text[many - 1 : len(text) - many + 1]
    while True:
        inner = re.sub(r"^\\(?:boxed|fbox)(?=\{)", "", text)
        if inner.startswith("{") and closing(inner, 0) == len(inner) - 1:
            inner = inner[1:-1].strip()
        if inner == text:
            return text
        text = inner
