"""A user's mistakes, those on the command line itself among them: plain lines on the error stream."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from grpo_kit.terminal import visible


class PlainErrors(TyperGroup):
    """A group of commands that says what is wrong with its arguments in a line, without a box; exit code 2."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; see the class."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except typer.Abort:
            sys.exit(1)
        except Exception as error:
            if not isinstance(error, USAGE):
                raise
            sys.exit(_report(error))
        sys.exit(code if isinstance(code, int) else 0)


# typer brings its own copy of click, so that its classes are found from one that it exports.
USAGE = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _report(error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = visible(error.format_message().strip())
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    elif context is not None:
        typer.echo(
            f"{message if message.endswith('?') else message.rstrip('.') + '.'} See: {context.command_path} --help",
            err=True,
        )
    else:
        typer.echo(message, err=True)
    return error.exit_code


@contextmanager
def mistakes() -> Iterator[None]:
    """A user's mistake (ValueError) becomes its message and exit code 1, Ctrl-C 130; the rest is a bug of ours."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except ValueError as error:
        typer.echo(visible(str(error)), err=True)
        raise typer.Exit(1) from None
