"""`grpo-kit init NAME`: a shipped recipe, copied to be edited."""

import re
from pathlib import Path

from grpo_kit.shipped import shipped_recipe, shipped_recipes

DEFAULT = "grpo"


def new_recipe(name: str, source: str | None) -> tuple[Path, str]:
    """Write NAME.toml from a recipe; the file, and the name of what was copied.

    The source is, where none is given, the shipped recipe of that name, else `grpo`. ValueError where the file exists
    or the source does not.
    """
    file = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", file.stem) or not name:
        raise ValueError(f"'{name}' cannot name a recipe. Use the letters a to z, digits, '.', '_' and '-'.")
    given = source or (file.stem if file.stem in shipped_recipes() else DEFAULT)
    text = _find(given).read_text(encoding="utf-8")
    if file.exists():
        raise ValueError(f"{file} exists already; nothing was written. Give another name.")
    renamed = re.sub(r'^name = "[^"]*"', f'name = "{file.stem}"', text, count=1, flags=re.MULTILINE)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(renamed)
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {error.strerror}. Give another name.") from None
    return file, given


def _find(name: str) -> Path:
    found = Path(name) if Path(name).is_file() else shipped_recipe(name)
    if found is None:
        raise ValueError(f"--from {name}: there is no such recipe file. Shipped: {', '.join(shipped_recipes())}.")
    return found
