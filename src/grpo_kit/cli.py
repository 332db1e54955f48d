"""The command line: `grpo-kit run RECIPE`, `grpo-kit check RECIPE`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe file, or the name of a shipped one.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="Put one value over the recipe's; may be repeated.")
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Let the recipe name Python functions (module:function).")
]


@app.callback()
def main() -> None:
    """Post-train language models: one recipe file, one loop, any number of policies."""


@app.command()
def run(
    recipe: RecipeName,
    set_: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create; runs/<recipe>-<time> by default.")] = None,
    allow_code: AllowCode = False,
) -> None:
    """Train what the recipe describes and leave a run folder behind."""
    from grpo_kit.config import find_recipe
    from grpo_kit.run.session import refuse_existing, start
    from grpo_kit.run.setup import open_recipe

    console = _quiet_console()
    _find_code(allow_code)
    try:
        refuse_existing(out)
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        session = start(described, inputs, find_recipe(recipe).read_text(encoding="utf-8"), out=out, console=console)
        raise typer.Exit(session.run())
    except ValueError as error:
        _fail(error)


@app.command()
def check(recipe: RecipeName, set_: Settings = None, allow_code: AllowCode = False) -> None:
    """Read the recipe, its tokenizers and its data, and list every mistake at once."""
    from grpo_kit.run.session import describe
    from grpo_kit.run.setup import open_recipe

    console = _quiet_console()
    _find_code(allow_code)
    try:
        _, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        for line in describe(inputs):
            console.print(line, highlight=False, soft_wrap=True)
        console.print(f"{recipe}: no mistakes", highlight=False, soft_wrap=True)
    except ValueError as error:
        _fail(error)


def _find_code(allowed: bool) -> None:
    """Where the recipe may name functions, let those of modules in the working folder be found."""
    if allowed and (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)


def _quiet_console() -> Console:
    """The console of a command; the libraries' own progress bars and notices are off."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return Console()


def _fail(error: Exception) -> None:
    typer.echo(str(error), err=True)
    raise typer.Exit(1)
