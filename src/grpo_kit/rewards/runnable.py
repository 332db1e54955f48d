"""Texts that a verifier evaluates as Python or sympy: could one do more than compute?"""

import builtins
import re
import unicodedata

FUNCTIONS = {
    *("abs", "float", "int", "list", "max", "min", "pow", "round", "sum", "tuple"),
    *("Abs", "Max", "Min", "Mod", "Integer", "Float", "Rational", "sign", "floor", "ceiling", "gcd", "lcm"),
    *("sqrt", "cbrt", "root", "exp", "log", "ln", "factorial", "binomial", "Integral", "Piecewise"),
    *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch"),
    *("asin", "acos", "atan", "atan2", "acot", "asec", "acsc"),
    *("asinh", "acosh", "atanh", "acoth", "asech", "acsch"),
    *("erf", "erfc", "erfi", "gamma", "lowergamma", "uppergamma", "polylog", "Ei", "li", "Li", "Si", "Ci"),
    *("Shi", "Chi", "fresnels", "fresnelc", "LambertW"),
}
"""What may be called: functions of numbers. All that give a text are left out, since sympy evaluates texts again."""
_NAMES = re.compile(r"[^\W\d]\w*")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\(")
_BUILTIN = frozenset(name for name in dir(builtins) if callable(getattr(builtins, name))) | {"exit", "quit", "help"}
_REFUSED = re.compile(
    r"__|[\w)\]}'\"]\s*\.\s*[^\W\d]"  # an attribute
    r"|[)\]}'\"]\s*\("  # a call of what an expression gives
    r"|#|\\\s*[\r\n]"  # what could stand between a name and its bracket
    r"|\blambda\b|:="
)
_QUOTED_NUMBER = re.compile(r"'[-+\d. ]*'|\"[-+\d. ]*\"")


def is_runnable(text: str) -> bool:
    """Whether a text, evaluated, could do more than compute with numbers, lists and functions of numbers.

    So it could where it calls anything else, names a function of Python or an attribute, or holds a text.

    Example:
        >>> is_runnable("x**2/2 + sin(3*x) + C"), is_runnable("[['1', '0'], [0, 1]]")
        (False, False)
        >>> is_runnable("S(sstr(x))"), is_runnable("open"), is_runnable("(x).y"), is_runnable("'print'")
        (True, True, True, True)
    """
    return _does_more(text) or _does_more(unicodedata.normalize("NFKC", text))  # the second as Python reads names


def _does_more(text: str) -> bool:
    if set(_CALLED.findall(text)) - FUNCTIONS or set(_NAMES.findall(text)) & (_BUILTIN - FUNCTIONS):
        return True
    return _REFUSED.search(text) is not None or bool(set("'\"") & set(_QUOTED_NUMBER.sub("", text)))
