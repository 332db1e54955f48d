"""JSON over HTTP to one server: an answer, a refusal in the server's words, or the finding that it is away."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx2

from grpo_kit.terminal import visible

T = TypeVar("T")
BUSY, BROKEN = (429, 502, 503, 504), 500
"""Statuses of a server that is away or has too much to do, and of one that failed at a request."""
CONNECT = 10.0
"""Seconds that a server has to take a connection."""
TRIES = 3
"""How often a request is sent that the server itself fails at."""


class AwayError(ConnectionError):
    """No answer that counts: the same request can be sent again."""


class BrokenError(AwayError):
    """The server failed at a request (status 500): it may be dying, or the request may be at fault."""


class RefusedError(ValueError):
    """An answer other than the one asked for.

    Attributes:
        status: of HTTP.
        said: the server's own words, in one line of printable characters.
    """

    def __init__(self, status: int, said: str) -> None:
        """Keep what the server said."""
        super().__init__(f"HTTP {status}: {said}" if said else f"HTTP {status}")
        self.status, self.said = status, said


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request: a path, and a body to post; without one it is a GET."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(kw_only=True, slots=True)
class Round(Generic[T]):
    """What came of requests that were sent together.

    Attributes:
        answers: by the request's place, all that came before anything went wrong.
        late: those that came after, from requests that were on their way.
        fault: the first thing that went wrong; no request was begun after it.
        broken: places of requests that the server itself failed at.
    """

    answers: dict[int, T] = field(default_factory=dict)
    late: dict[int, T] = field(default_factory=dict)
    fault: AwayError | None = None
    broken: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Where a server is and how to talk with it.

    Attributes:
        url: without a path.
        timeout: seconds that an answer may take.
        concurrency: requests at a time.
        key: sent as a bearer token; never printed.
    """

    url: str
    timeout: float
    concurrency: int
    key: str | None = field(default=None, repr=False)

    def ask(self, call: Call) -> Any:
        """The answer to one request, as JSON has it; None for an empty one. AwayError or RefusedError without one."""

        async def alone() -> Any:
            async with self._client() as client:
                return await _send(client, call)

        return _run(alone())

    def ask_all(self, calls: Mapping[int, Call], read: Callable[[int, Any], T]) -> Round[T]:
        """The answers to many requests, each as `read` reads it; what it raises counts as the request's own fault.

        RefusedError and other ValueErrors end the round at once.
        """
        return _run(self._all(calls, read))

    async def _all(self, calls: Mapping[int, Call], read: Callable[[int, Any], T]) -> Round[T]:
        found, gate = Round[T](), asyncio.Semaphore(self.concurrency)

        async def one(client: httpx2.AsyncClient, place: int, call: Call) -> None:
            async with gate:
                if found.fault is not None:
                    return
                try:
                    answer = read(place, await _send(client, call))
                except BrokenError as error:
                    found.fault = found.fault or error
                    found.broken.append(place)
                except AwayError as error:
                    found.fault = found.fault or error
                else:
                    (found.answers if found.fault is None else found.late)[place] = answer

        try:
            async with self._client() as client, asyncio.TaskGroup() as group:
                for place, call in calls.items():
                    group.create_task(one(client, place, call))
        except BaseExceptionGroup as errors:  # the first is the user's; the others were cancelled for it
            raise errors.exceptions[0] from None
        return found

    def _client(self) -> httpx2.AsyncClient:
        here = _is_here(self.url)
        return httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=httpx2.Timeout(self.timeout, connect=min(CONNECT, self.timeout), pool=None),
            limits=httpx2.Limits(max_connections=None),
            trust_env=not here,  # a proxy does not know what is on this machine
            verify=False if here and self.url.startswith("http:") else _certificates(),
        )


@cache
def _certificates() -> ssl.SSLContext:
    """Those that a server must show one of; reading them takes longer than a request."""
    return httpx2.create_ssl_context()


async def _send(client: httpx2.AsyncClient, call: Call) -> Any:
    try:
        if call.body is None:
            response = await client.get(call.path)
        else:
            response = await client.post(call.path, json=call.body)
    except httpx2.TimeoutException as error:
        raise AwayError(f"no answer in {_seconds(client, error)} seconds") from None
    except httpx2.TransportError as error:
        raise AwayError(printable(str(error)) or type(error).__name__) from None
    said = "" if response.is_success else _words(response)
    if response.status_code in BUSY:
        raise AwayError(f"HTTP {response.status_code}" + (f": {said}" if said else ""))
    if response.status_code == BROKEN:
        raise BrokenError(f"HTTP {response.status_code}" + (f": {said}" if said else ""))
    if not response.is_success:
        raise RefusedError(response.status_code, said)
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        raise RefusedError(response.status_code, f"no JSON: {printable(response.text)}") from None


def _seconds(client: httpx2.AsyncClient, error: httpx2.TimeoutException) -> str:
    connecting = isinstance(error, httpx2.ConnectTimeout)
    return f"{(client.timeout.connect if connecting else client.timeout.read) or 0:g}"


def _words(response: httpx2.Response) -> str:
    """The message of an error, wherever the answer has it."""
    try:
        found = response.json()
    except ValueError:
        return printable(response.text)
    for name in ("error", "message", "detail"):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
    return printable(found if isinstance(found, str) else str(found))


def printable(text: str, longest: int = 300) -> str:
    """A server's words as one line that no terminal takes for a command."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 3] + "..."


def address(url: str) -> str:
    """A server's address without a path; ValueError where it is none, or holds a secret."""
    parts = urlsplit(url)
    try:
        there = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:  # a port that is no number
        there = False
    if not there or parts.query or parts.fragment or parts.path.rstrip("/") not in ("", "/v1"):
        raise ValueError(f"'{printable(url)}' is no server's address; give one like http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "an address may hold no user or password: recipes are written into run folders. Give the name of an "
            "environment variable as api_key_variable"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in a thread of its own where this one runs a loop already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
