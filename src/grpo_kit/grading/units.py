"""Units are labels behind a value: known ones that differ make answers differ, and nothing is ever converted."""

import re

UNITS = {
    spelling: short
    for short, spellings in {
        "mm": "mm millimeter millimetre",
        "inch": "in inch inche",
        "yard": "yd yard",
        "acre": "acre",
        "liter": "l liter litre",
        "ml": "ml milliliter millilitre",
        "gallon": "gal gallon",
        "cup": "cup",
        "lb": "lb pound",
        "oz": "oz ounce",
        "mg": "mg milligram",
        "joule": "j joule",
        "kj": "kj kilojoule",
        "newton": "n newton",
        "watt": "w watt",
        "kw": "kw kilowatt",
        "volt": "v volt",
        "hz": "hz hertz",
        "pa": "pa pascal",
        "ms": "millisecond",
        "mile/hour": "mph",
        "km/hour": "kph",
        "week": "week",
        "month": "month",
        "year": "yr year",
        "euro": "euro eur",
        "sterling": "sterling gbp",
        "celsius": "c celsius",
        "fahrenheit": "f fahrenheit",
        "kelvin": "kelvin",
        "cm": "cm centimeter centimetre",
        "m": "m meter metre",
        "km": "km kilometer kilometre",
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
KNOWN = {word for short in UNITS.values() for word in short.split("/")}
MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
NO_UNITS = {
    *("is", "are", "was", "not", "no", "wrong", "incorrect", "right", "correct", "maybe", "least", "most", "than"),
    *("more", "less", "about", "or", "but", "because", "if", "to", "squared", "cubed", "factorial", "dozen", "half"),
    *("halves", "third", "thirds", "quarter", "quarters", "fifths", "percentage"),
}
"""Words that say something about a number before them."""
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_PLAIN_NUMBER = re.compile(r"[-+]?[\d.,/ ]*\d(?:[eE]-?\d+|\\frac\{\d+\}\{\d+\}| ?\\times10\^\{-?\d+\})?")
_UNIT = re.compile(
    r"(?P<value>.*?[\w})!])\s*(?P<unit>"
    r"\\frac\{\\text\{[^{}]*\}\}\{\\text\{[^{}]*\}\}|"
    r"\\(?:Omega|mu ?\\text\{[^{}]*\})|"
    r"\^\{ ?\\circ ?\} ?(?:\\text\{ ?[CF] ?\}|[CF])?|\\%|"
    r"(?:\\text\{[^{}]*\}(?:\^\{?-?\d\}?)?(?:/|\\cdot ?)?)+|"
    r"(?<=[\d}]) ?[a-zA-Z]+/[a-zA-Z]+(?:\^\{?\d\}?)?|(?<=[\d}]) ?[a-zA-Z]{2,}(?:[ /]+[a-zA-Z]+)*(?:\^\{?-?\d\}?)?)"
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
    value, unit = match["value"], unit_name(match["unit"])
    plain = match["unit"].lstrip()[0].isalpha()
    if (plain and not _PLAIN_NUMBER.fullmatch(value)) or NO_UNITS & set(unit.lower().split()) or _ANGLE.search(value):
        return text, ""
    if (power := MULTIPLIERS.get(unit.lower().split(" ")[0])) is not None:
        return f"{value}\\times10^{{{power}}}", unit.partition(" ")[2]
    return value, unit


def _spelled(match: re.Match[str]) -> str:
    word = match[0].lower()
    return UNITS.get(word) or UNITS.get(word.removesuffix("s")) or match[0]


def differ(unit: str, other: str) -> bool:
    """Whether two units are known to be different; a missing one or an unknown word differs from none.

    Example:
        >>> differ("m", "cm"), differ("m", ""), differ("apples", "fruit")
        (True, False, False)
    """
    if unit == other or not unit or not other:
        return False
    words = re.findall(r"[a-zA-Z%]+", unit), re.findall(r"[a-zA-Z%]+", other)
    return all(set(found) <= KNOWN for found in words)


def unit_name(text: str) -> str:
    r"""A unit in one spelling.

    Example:
        >>> unit_name(r"\text{ centimeters}^{2}"), unit_name(r"\%")
        ('cm^2', '%')
    """
    plain = re.sub(r"\\frac\{(.*?\})\}\{(.*?\})\}", r"\1/\2", text)
    plain = re.sub(r"\\text\{([^{}]*)\}", r"\1", plain).replace("\\%", "%")
    plain = plain.replace("^{\\circ}", "degree ").replace("{", "").replace("}", "").strip().rstrip(".")
    words = re.sub(r"\bsquare (\w+)|\bsq\.? (\w+)", lambda m: (m[1] or m[2]) + "^2", plain)
    words = re.sub(r"\bcubic (\w+)", r"\1^3", words)
    return re.sub(r"[A-Za-z]+", _spelled, words).strip()
