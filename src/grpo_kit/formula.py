r"""Formulas as text: numbers into LaTeX, LaTeX into a plain line that a terminal shows.

A part may have a property `formula`: what its call computes, as LaTeX without dollar signs, its settings put in as
numbers. `grpo-kit explain` joins the formulas of a learner's parts. Shared symbols: $i$ is a row, $t$ one of its
tokens, $g$ its group; $r_i$ the reward, $A_i$ the advantage, $d_{it}$ a log-ratio, $\rho_{it}$ what the surrogate sees,
$b_{it}$ the log-ratio of a correction, $R$ the rows of an optimizer step with a counted token, $|o_i|$ a row's tokens.
"""

import re
from functools import cache
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

SPACED = {"cdot": "·", "leftarrow": "←", "le": "≤", "ge": "≥", "ne": "≠", "in": "∈", "mid": "|", "sim": "~", "to": "→"}
NAMES = ("log", "exp", "min", "max", "clip", "mean", "std", "cos")
OTHERS = {"|": "‖", "ell": "\N{SCRIPT SMALL L}", "quad": "  ", ",": " ", "!": "", "nabla": "∇"}
TIDY = (
    (r"\b(exp|min|max|clip|mean|std|cos) \(", r"\1("),
    (r"(?<=[\w)\]|]) ?([-+]) ?(?=\S)", r" \1 "),
    (r"(?<=[\w)]),(?=\S)", ", "),
    (r" ?([=←]) ?", r" \1 "),
    (r"\s+", " "),
    (r" (?=[,.)\]])", ""),
    (r"(?<=[(\[]) ", ""),
)
"""What makes the spaces around operators, commas and brackets regular, one pattern after the other."""
OPEN, CLOSE = "\x02", "\x03"


def number(value: float | int) -> str:
    r"""A setting as LaTeX, six digits at most.

    Example:
        >>> number(0.28), number(1e-6), number(2.5e-7), number(float("inf"))
        ('0.28', '10^{-6}', '2.5 \\cdot 10^{-7}', '\\infty')
    """
    if isinstance(value, int):
        return str(value)
    if value in (float("inf"), float("-inf")):
        return r"\infty" if value > 0 else r"-\infty"
    mantissa, _, exponent = f"{value:.6g}".partition("e")
    if not exponent:
        return mantissa
    power = f"10^{{{int(exponent)}}}"
    return {"1": power, "-1": f"-{power}"}.get(mantissa, rf"{mantissa} \cdot {power}")


def name(given: str) -> str:
    r"""A name of a recipe as LaTeX.

    Example:
        >>> name("small_2")
        '\\text{small\\_2}'
    """
    return rf"\text{{{given.replace('_', chr(92) + '_')}}}"


def plain(latex: str) -> str:
    r"""A LaTeX formula as one line of plain text.

    Example:
        >>> plain(r"A_i = \frac{r_i - \operatorname{mean}(r_g)}{\operatorname{std}(r_g) + 10^{-6}}")
        'A_i = (r_i - mean(r_g)) / (std(r_g) + 10^-6)'
        >>> plain(r"e^{\sum_{u \le t} b_{iu}} \cdot A_i")
        'e^(Σ_(u ≤ t) b_iu) · A_i'
    """
    text = _converter().latex_to_text(latex.replace(r"\tfrac", r"\frac"))
    script = re.compile(rf"([_^]?)\s*{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
    while script.search(text):
        text = script.sub(_without_braces, text)
    for pattern, better in TIDY:
        text = re.sub(pattern, better, text)
    return text.strip()


def plain_text(text: str) -> str:
    r"""Prose with `$formulas$` in it (a docstring), the formulas as plain text and the prose as it is.

    Example:
        >>> plain_text(r"Center rewards: $r_i - \bar r$.")
        'Center rewards: r_i - r̅.'
        >>> plain_text(r"So: $$x = 1$$ in $[0, 1]$.")
        'So: x = 1 in [0, 1].'
    """
    pieces = re.split(r"\${1,2}([^$]+)\${1,2}", text)
    return "".join(plain(piece) if number % 2 else piece for number, piece in enumerate(pieces))


def _without_braces(match: re.Match[str]) -> str:
    """A braced group: after `_` or `^` in round brackets unless it is one word or number, elsewhere as it is."""
    mark, inside = match[1], match[2].strip()
    return f"{mark}({inside})" if mark and not re.fullmatch(r"-?[^\W_]+", inside) else f"{mark}{inside}"


class _Plain(LatexNodes2Text):
    """pylatexenc's conversion, which drops braces, with the braces marked instead."""

    def group_node_to_text(self, node: Any) -> str:
        return OPEN + self.nodelist_to_text(node.nodelist) + CLOSE

    def macro_node_to_text(self, node: Any) -> str:
        if node.macroname != "frac":
            return str(super().macro_node_to_text(node))
        over, under = (self.nodelist_to_text([part]) for part in node.nodeargd.argnlist)
        return f"{_bracketed(over)} / {_bracketed(under)} "


@cache
def _converter() -> _Plain:
    macros = [MacroTextSpec(key, f" {sign} ") for key, sign in SPACED.items()]
    macros += [MacroTextSpec(key, f"{key} ") for key in NAMES]
    macros += [MacroTextSpec(key, sign) for key, sign in OTHERS.items()]
    macros.append(MacroTextSpec("sum", "Σ"))
    known = get_default_latex_context_db()
    known.add_context_category("grpo_kit", prepend=True, macros=macros)
    return _Plain(latex_context=known, math_mode="text", strict_latex_spaces=True)


def _bracketed(text: str) -> str:
    inside = text.removeprefix(OPEN).removesuffix(CLOSE)
    return inside if re.fullmatch(r"[\w.|]+", inside) else f"({inside})"
