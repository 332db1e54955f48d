"""Units are labels behind a value: known ones that differ make answers differ, and nothing is ever converted."""

import re

UNITS = {
    spelling: short
    for short, spellings in {
        "mm": "mm millimeter millimetre",
        "cm": "cm centimeter centimetre",
        "m": "m meter metre",
        "km": "km kilometer kilometre",
        "in": "in inch inche",
        "ft": "ft foot feet",
        "mile": "mile mi",
        "g": "g gram",
        "kg": "kg kilogram",
        "sec": "s sec second",
        "min": "min minute",
        "hour": "h hr hour",
        "day": "day",
        "dollar": "dollar usd",
        "cent": "cent",
        "degree": "degree deg",
        "rad": "rad radian",
        "%": "percent",
    }.items()
    for spelling in spellings.split()
}
"""Spellings (without a plural's s, lower case) of units that are known to differ from each other."""
KNOWN = set(UNITS.values())
_UNIT = re.compile(
    r"(?P<value>.*[\w})])\s*(?P<unit>"
    r"\^\{ ?\\circ ?\} ?(?:\\text\{ ?[CF] ?\}|[CF])?|\\%|"
    r"(?:\\text\{[^{}]*\}(?:\^\{?-?\d\}?)?(?:/|\\cdot ?)?)+|"
    r"(?<=[\d}]) ?[a-zA-Z]{2,}(?:[ /]+[a-zA-Z]+)*(?:\^\{?-?\d\}?)?)"
)


def split_unit(text: str) -> tuple[str, str]:
    r"""A value in normal form and the unit behind it; the unit is empty where there is none.

    Units are upright (`\text{cm}`), a degree or a percent sign, or plain words behind a plain number.

    Example:
        >>> split_unit(r"35 \text{cm}^{2}"), split_unit("18 apples"), split_unit("2x")
        (('35', 'cm^2'), ('18', 'apples'), ('2x', ''))
    """
    match = _UNIT.fullmatch(text)
    if match is None:
        return text, ""
    plain = match["unit"].lstrip()[0].isalpha()
    if plain and not re.fullmatch(r"[-+]?[\d.,/ ]*\d", match["value"]):
        return text, ""
    return match["value"], unit_name(match["unit"])


def differ(unit: str, other: str) -> bool:
    """Whether two units are known to be different; a missing one, a percent sign or an unknown word differs from none.

    Example:
        >>> differ("m", "cm"), differ("m", ""), differ("apples", "fruit")
        (True, False, False)
    """
    units = {unit, other}
    return len(units) == 2 and not units & {"", "%"} and bool(units & KNOWN)


def unit_name(text: str) -> str:
    r"""A unit in one spelling.

    Example:
        >>> unit_name(r"\text{ centimeters}^{2}"), unit_name(r"\%")
        ('cm^2', '%')
    """
    plain = re.sub(r"\\text\{([^{}]*)\}", r"\1", text).replace("\\%", "%")
    plain = plain.replace("^{\\circ}", "degree ").replace("{", "").replace("}", "").strip().rstrip(".")
    words = re.sub(r"\bsquare (\w+)|\bsq\.? (\w+)", lambda m: (m[1] or m[2]) + "^2", plain)
    words = re.sub(r"\bcubic (\w+)", r"\1^3", words)
    return re.sub(r"[A-Za-z]+", lambda match: UNITS.get(match[0].lower().removesuffix("s"), match[0]), words).strip()
