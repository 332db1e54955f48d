"""The recipes that come with the package; nothing heavy is imported to list them."""

import re
from importlib.resources import files
from pathlib import Path


def shipped_recipes() -> dict[str, Path]:
    """The file of each shipped recipe, by name, in order."""
    return {file.stem: file for file in sorted((Path(str(files("grpo_kit"))) / "recipes").glob("*.toml"))}


def shipped_recipe(name: str) -> Path | None:
    """The shipped recipe that `NAME`, `NAME.toml` or `recipes/NAME.toml` means; None where there is none."""
    path = Path(name)
    meant = path.parent in (Path("."), Path("recipes")) and path.suffix in ("", ".toml")
    return shipped_recipes().get(path.stem) if meant else None


def about(recipe: Path) -> str:
    """The first sentence of the comment that a recipe file starts with; empty without one."""
    head: list[str] = []
    for line in recipe.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        head.append(line.lstrip("# "))
    text = " ".join(head)
    return re.split(r"(?<=(?<!Dr)\.) ", text)[0]
