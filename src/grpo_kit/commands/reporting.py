"""The command `grpo-kit report` on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_kit.commands import complete
from grpo_kit.commands.consoles import any_console
from grpo_kit.commands.plain_errors import mistakes


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, or folders made by grpo-kit compare.",
            autocompletion=complete.run_folders,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="By default report.html in the RUN; with several, in the working folder."
        ),
    ] = None,
) -> None:
    """Draw runs into one HTML file: curves with seed bands, and every token with its signals."""
    from grpo_kit.report.command import report_command

    with mistakes():
        report_command(runs, out, any_console())
