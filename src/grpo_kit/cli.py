"""The command line `grpo-kit`: its commands and options. What they do is imported when they run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grpo_kit import __version__
from grpo_kit.commands import complete
from grpo_kit.commands.plain_errors import PlainErrors

app = typer.Typer(
    cls=PlainErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete.settings(ctx.params.get("recipe"), incomplete)


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe file, or the name of a shipped one.", autocompletion=complete.recipes
    ),
]
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
    with _mistakes():
        refuse_existing(out)
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        session = start(described, inputs, find_recipe(recipe).read_text(encoding="utf-8"), out=out, console=console)
        raise typer.Exit(session.run())


@app.command()
def check(recipe: RecipeName, set_: Settings = None, allow_code: AllowCode = False) -> None:
    """Read the recipe, its tokenizers and its data, and list every mistake at once."""
    from grpo_kit.run.session import describe
    from grpo_kit.run.setup import open_recipe

    _quiet_console()
    _find_code(allow_code)
    with _mistakes():
        _, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        for line in describe(inputs):
            typer.echo(line)
        typer.echo(f"{recipe}: no mistakes")


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

    _quiet_console()
    _find_code(allow_code)
    with _mistakes():
        described, inputs = open_recipe(recipe, settings=set_ or [], allow_code=allow_code)
        page = as_markdown if markdown else as_text
        typer.echo(page(described.name, sections_of(described, inputs)), nl=False)


@app.command("eval")
def eval_(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A model (tiny:small, a folder, a hub name) or a run folder.",
            autocompletion=complete.run_folders,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_NAME",
            help="Questions: a file, a named set, or NAME=FILE; may be repeated. A run has its own questions.",
            autocompletion=complete.question_sets,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="A file's column for prompt or answer; may be repeated."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Which policy of a run.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Completions a question.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="0 (greedy) by default with one sample, else 1.")
    ] = None,
    top_p: Annotated[float, typer.Option(help="Nucleus mass kept.")] = 1.0,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest completion; 1024 by default, or what the model has room for.")
    ] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each set.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the samples.")] = 0,
    template: Annotated[str | None, typer.Option(help="The prompt, with {prompt} where the question goes.")] = None,
    system: Annotated[str | None, typer.Option(help="System message of a chat.")] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Chat by default where the tokenizer has a template.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends a completion; may be repeated.")] = None,
    few_shot: Annotated[Path | None, typer.Option(help="A JSONL file of worked examples to put in front.")] = None,
    shots: Annotated[int | None, typer.Option(min=1, help="How many of them; all by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Only a boxed answer counts.")] = False,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Completions decoded together.")] = 64,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="The run's own by default, else float32.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this JSON file.")] = None,
    completions: Annotated[
        Path | None, typer.Option(help="Write every completion with its verdict to this JSONL file.")
    ] = None,
) -> None:
    """Measure a model, or what a run trained, on questions with known answers."""
    from grpo_kit.evaluation.command import eval_command

    console = _quiet_console()
    with _mistakes():
        code = eval_command(
            model,
            data=data or [],
            columns=column or [],
            policy=policy,
            samples=samples,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            questions=questions,
            seed=seed,
            template=template,
            system=system,
            chat=chat,
            stop=stop or [],
            few_shot=few_shot,
            shots=shots,
            strict=strict,
            rows_per_batch=rows_per_batch,
            device=device,
            dtype=dtype,
            out=out,
            completions=completions,
            console=console,
        )
        raise typer.Exit(code)


@app.command()
def samples(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", autocompletion=complete.run_folders)],
    step: Annotated[int | None, typer.Option(help="Which step; the last one by default.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Completions shown at most.")] = 8,
    status: Annotated[str | None, typer.Option(help="Only completions with this status of some reward.")] = None,
) -> None:
    """Show completions of a run with their rewards and statuses."""
    from grpo_kit.commands.samples import show_samples

    with _mistakes():
        show_samples(run, _console(), step=step, limit=limit, status=status)


@app.command("list")
def list_(
    role: Annotated[
        str | None,
        typer.Argument(metavar="ROLE", help="One role, or `recipes`; all by default.", autocompletion=complete.roles),
    ] = None,
) -> None:
    """List the roles, the kinds of parts that fill them, and the shipped recipes."""
    from grpo_kit.commands.catalog import catalog

    with _mistakes():
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

    with _mistakes():
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

    with _mistakes():
        file, copied = new_recipe(name, source)
        typer.echo(f"{file} is a copy of the recipe {copied}. Edit it, then:")
        typer.echo(f"grpo-kit check {file}\ngrpo-kit run {file}")


@contextmanager
def _mistakes() -> Iterator[None]:
    """A user's mistake (ValueError) becomes its message and exit code 1; anything else is a bug with a traceback."""
    try:
        yield
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _find_code(allowed: bool) -> None:
    """Where the recipe may name functions, let those of modules in the working folder be found."""
    if allowed and (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)


def _console() -> Console:
    """The console of a command; without a terminal it is wide enough to read, and has no colors."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def _quiet_console() -> Console:
    """The console of a command; the libraries' own progress bars and notices are off."""
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    return Console()
