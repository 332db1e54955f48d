"""The command line `grpo-kit`: its commands and options. What they do is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_kit import __version__
from grpo_kit.commands import complete
from grpo_kit.commands.arguments import AllowCode, OptionalRecipe, RecipeName, Settings, find_code
from grpo_kit.commands.comparing import compare
from grpo_kit.commands.consoles import any_console, quiet_console
from grpo_kit.commands.evaluating import evaluate
from grpo_kit.commands.plain_errors import PlainErrors, mistakes
from grpo_kit.commands.reporting import report

app = typer.Typer(
    cls=PlainErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"grpo-kit {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Post-train language models: one recipe file, one loop, any number of policies."""


@app.command()
def run(
    recipe: OptionalRecipe = None,
    set_: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create; runs/<recipe>-<time> by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to go on with, from its latest checkpoint.")] = None,
    allow_code: AllowCode = False,
) -> None:
    """Train what the recipe describes and leave a run folder behind, or go on with a run that ended early."""
    from grpo_kit.config import find_recipe
    from grpo_kit.run.resume import resume as go_on
    from grpo_kit.run.session import refuse_existing, start
    from grpo_kit.run.setup import open_recipe

    console = quiet_console()
    find_code(allow_code)
    with mistakes():
        if (recipe is None) == (resume is None):
            raise typer.BadParameter("give a recipe, or --resume with a run folder, and not both", param_hint="RECIPE")
        if resume is not None:
            if out is not None:
                raise ValueError("--out: a run that goes on stays in its folder. Remove it.")
            raise typer.Exit(go_on(resume, settings=set_ or [], allow_code=allow_code, console=console).run())
        assert recipe is not None
        refuse_existing(out)
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        session = start(described, inputs, find_recipe(recipe).read_text(encoding="utf-8"), out=out, console=console)
        raise typer.Exit(session.run())


@app.command()
def rollout(recipe: RecipeName, set_: Settings = None, allow_code: AllowCode = False) -> None:
    """Fill the buffer of a recipe whose sampler is `replay`, or what is missing of it."""
    from grpo_kit.commands.rollout import rollout as fill_buffer

    console = quiet_console()
    find_code(allow_code)
    with mistakes():
        raise typer.Exit(fill_buffer(recipe, settings=set_ or [], allow_code=allow_code, console=console))


@app.command()
def check(recipe: RecipeName, set_: Settings = None, allow_code: AllowCode = False) -> None:
    """Read the recipe, its tokenizers and its data, and list every mistake at once."""
    from grpo_kit.run.engines import refuse_absent
    from grpo_kit.run.session import describe
    from grpo_kit.run.setup import open_recipe
    from grpo_kit.terminal import visible

    quiet_console()
    find_code(allow_code)
    with mistakes():
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        refuse_absent(described)
        for line in describe(inputs):
            typer.echo(visible(line))
        typer.echo(visible(f"{recipe}: no mistakes"))


@app.command()
def explain(
    recipe: RecipeName,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown with LaTeX formulas.")] = False,
    set_: Settings = None,
    allow_code: AllowCode = False,
) -> None:
    """Say what a recipe would do: objectives as formulas, options, signals, model calls, memory."""
    from grpo_kit.explain import explain as sections_of
    from grpo_kit.explain.page import as_markdown, as_text
    from grpo_kit.run.setup import open_recipe

    quiet_console()
    find_code(allow_code)
    with mistakes():
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        page = as_markdown if markdown else as_text
        typer.echo(page(described.name, sections_of(described, inputs)), nl=False)


app.command("eval")(evaluate)


@app.command()
def overlap(
    recipe: RecipeName,
    student: Annotated[str | None, typer.Option(help="The policy that samples by default.")] = None,
    teacher: Annotated[str | None, typer.Option(help="The one that the student's learner reads by default.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="The first so many of the recipe's data.")] = 256,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Likeliest tokens compared; 64, or a quarter of a small vocabulary.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Overlap from which OPD is recommended; 0.75, a convention.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the rollouts; the recipe's by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for overlap.json and overlap.png.")] = None,
    set_: Settings = None,
    allow_code: AllowCode = False,
) -> None:
    """Measure how far the initial student proposes what its teacher would: live or offline rollouts?"""
    from grpo_kit.overlap.command import Wanted, overlap_command

    console = quiet_console()
    find_code(allow_code)
    with mistakes():
        asked = {"student": student, "teacher": teacher, "top_k": top_k, "threshold": threshold, "seed": seed}
        given = {name: value for name, value in asked.items() if value is not None}
        wanted = Wanted(
            recipe=recipe, prompts=prompts, out=out, settings=tuple(set_ or ()), allow_code=allow_code, **given
        )
        raise typer.Exit(overlap_command(wanted, console))


app.command()(compare)


@app.command()
def samples(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", autocompletion=complete.run_folders)],
    step: Annotated[int | None, typer.Option(help="Which step; the last one by default.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Completions shown at most.")] = 8,
    status: Annotated[str | None, typer.Option(help="Only completions with this status of some reward.")] = None,
) -> None:
    """Show completions of a run with their rewards and statuses."""
    from grpo_kit.commands.samples import show_samples

    with mistakes():
        show_samples(run, any_console(), step=step, limit=limit, status=status)


app.command()(report)


@app.command("list")
def list_(
    role: Annotated[
        str | None,
        typer.Argument(metavar="ROLE", help="One role, or `recipes`; all by default.", autocompletion=complete.roles),
    ] = None,
) -> None:
    """List the roles, the kinds of parts that fill them, and the shipped recipes."""
    from grpo_kit.commands.catalog import catalog

    with mistakes():
        typer.echo(catalog(role))


@app.command()
def show(
    kind: Annotated[
        str,
        typer.Argument(metavar="ROLE.KIND", help="For example advantages.group_mean.", autocompletion=complete.kinds),
    ],
) -> None:
    """Describe one kind of part: its formula, its keys, and a table to paste into a recipe."""
    from grpo_kit.commands.describe import describe

    with mistakes():
        typer.echo(describe(kind), nl=False)


@app.command()
def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new file is NAME.toml.", autocompletion=complete.shipped)
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RECIPE",
            help="What to copy; by default the shipped recipe called NAME, else grpo.",
            autocompletion=complete.recipes,
        ),
    ] = None,
) -> None:
    """Copy a recipe into the working folder, to edit it."""
    from grpo_kit.commands.new_recipe import new_recipe

    with mistakes():
        file, copied = new_recipe(name, source)
        typer.echo(f"{file} is a copy of the recipe {copied}. Edit it, then:")
        typer.echo(f"grpo-kit check {file}\ngrpo-kit run {file}")
