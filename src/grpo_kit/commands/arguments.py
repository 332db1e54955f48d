"""The arguments of every command that reads a recipe."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from grpo_kit.commands import complete


def _complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete.settings(ctx.params.get("recipe"), incomplete)


RECIPE = typer.Argument(
    metavar="RECIPE", help="A recipe file, or the name of a shipped one.", autocompletion=complete.recipes
)
RecipeName = Annotated[str, RECIPE]
OptionalRecipe = Annotated[str | None, RECIPE]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Put one value over the recipe's; may be repeated.",
        autocompletion=_complete_settings,
    ),
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Let the recipe name Python functions (module:function).")
]


def find_code(allowed: bool) -> None:
    """Where the recipe may name functions, let those of modules in the working folder be found."""
    if allowed and (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
