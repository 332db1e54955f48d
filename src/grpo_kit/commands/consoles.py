"""What a command prints on."""

import sys

from rich.console import Console


def any_console() -> Console:
    """The console of a command; without a terminal it is wide enough to read, and has no colors."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def quiet_console() -> Console:
    """The console of a command; the libraries' own progress bars and notices are off."""
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    return Console()
