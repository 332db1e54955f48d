"""Whether the Hugging Face hub can be reached, found out in seconds rather than by its libraries' minutes of tries."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

import datasets.config
import huggingface_hub.constants

PATIENCE, REMEMBERED = 5.0, 60.0
"""Seconds that the hub has to take a connection, and for which its answer counts."""


@contextmanager
def from_hub(*, local: bool = False) -> Iterator[str | None]:
    """Why the hub cannot be reached, or None; inside, the libraries then look no further than their cache.

    What is `local` needs no hub.
    """
    fault = None if local else _recently()
    before = [(module, module.HF_HUB_OFFLINE) for module in (datasets.config, huggingface_hub.constants)]
    try:
        for module, _ in before:
            module.HF_HUB_OFFLINE = fault is not None or module.HF_HUB_OFFLINE  # pyright: ignore[reportAttributeAccessIssue]
        yield fault
    finally:
        for module, value in before:
            module.HF_HUB_OFFLINE = value  # pyright: ignore[reportAttributeAccessIssue]


_asked: list[tuple[float, str | None]] = []


def _recently() -> str | None:
    """What `unreachable` said within the last minute, or says now."""
    if datasets.config.HF_HUB_OFFLINE:
        return unreachable()
    if not _asked or time.monotonic() - _asked[-1][0] > REMEMBERED:
        _asked[:] = [(time.monotonic(), unreachable())]
    return _asked[-1][1]


def unreachable() -> str | None:
    """Why the hub cannot be reached, found out in at most `PATIENCE` seconds; None where it can, or a proxy decides.

    `huggingface_hub` by itself tries again for half a minute to several minutes.
    """
    if datasets.config.HF_HUB_OFFLINE:
        return "offline mode is on, by HF_HUB_OFFLINE or HF_DATASETS_OFFLINE"
    address = urlsplit(datasets.config.HF_ENDPOINT)
    if getproxies().keys() & {address.scheme, "all"}:
        return None
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    problems: list[str] = [f"no answer from {host} in {PATIENCE:g} seconds"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), PATIENCE).close()
            problems.clear()
        except OSError as error:
            problems.insert(0, f"{host}: {error.strerror or error}")

    thread = threading.Thread(target=connect, daemon=True)  # looking a name up has no time limit of its own
    thread.start()
    thread.join(PATIENCE)
    return next(iter(list(problems)), None)
