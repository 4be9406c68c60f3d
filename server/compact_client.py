"""The client side of `server/compaction_routes.py`, for the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp

from server.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed

POLL_SECONDS = 0.2
CALL_SECONDS_MAX = 60.0
ROOT = "/v1/compaction"
TARGET = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")

Json = dict[str, Any]


class CallFailed(CommandFailed):
    """The broker refused, or nothing answered."""

    def __init__(self, exit_code: int, message: str, *, status: int = 0) -> None:
        super().__init__(exit_code, message)
        self.status = status


class CompactionClient:
    """Asks a broker about its cleaner."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: str | None = None,
    ) -> Json:
        """The JSON that a request is answered with; `path` begins behind the common root.

        Args:
            body: JSON that goes with it.

        Raises:
            CallFailed: it was refused, or no Kompakt broker answers there.
        """
        try:
            async with self._session.request(
                method, self._url + ROOT + path, params=query, data=body, headers=_type_of(body)
            ) as response:
                return _answer(self._url, response.status, await response.text())
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise CallFailed(EXIT_USAGE, f"{self._url} is not an HTTP URL (--url)") from error
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            raise CallFailed(EXIT_UNREACHABLE, _unreachable(self._url, error)) from error

    async def call_on(
        self, method: str, target: str, action: str, query: Mapping[str, str] | None = None
    ) -> Json:
        """As `call`, about TOPIC or TOPIC-PARTITION: a topic of that whole name comes first."""
        whole = f"/topics/{quote(target, safe='')}{action}"
        try:
            return await self.call(method, whole, query)
        except CallFailed as unknown:
            match = TARGET.fullmatch(target)
            if unknown.status != 404 or match is None:
                raise
            topic = quote(match["topic"], safe="")
            try:
                path = f"/topics/{topic}/partitions/{match['partition']}{action}"
                return await self.call(method, path, query)
            except CallFailed as error:
                said = str(error).partition(";")[0]
                is_topic_unknown = said == f"there is no topic {match['topic']}"
                raise unknown if is_topic_unknown else error from None

    async def finished(
        self, job: Json, *, on_look: Callable[[Json], None] = lambda _: None
    ) -> Json:
        """A job once it is over; `on_look` is told how far it is. Raises as `call`."""
        while not job["is_over"]:
            await asyncio.sleep(POLL_SECONDS)
            job = await self.call("GET", f"/jobs/{job['id']}")
            on_look(job)
        return job


@asynccontextmanager
async def connected(
    url: str, *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[CompactionClient]:
    """A client of the broker at `url`, whose every request has these headers."""
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        yield CompactionClient(session, url)


def _type_of(body: str | None) -> dict[str, str]:
    return {} if body is None else {"Content-Type": "application/json"}


def _answer(url: str, status: int, text: str) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise CallFailed(
            EXIT_UNREACHABLE,
            f"what answers at {url} is no Kompakt broker of this release (HTTP {status})",
        )
    if status >= 400:
        message = str(answer.get("error", text))
        raise CallFailed(EXIT_FAILED, message, status=status)
    return answer


def _unreachable(url: str, error: BaseException) -> str:
    return (
        f"no broker answers at {url} ({_why(error)}):"
        " is it running, and is that its http.listener? --url names another"
    )


def _why(error: BaseException) -> str:
    """The system's words where it has some: aiohttp's text of a refused connection is its own."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        # A name that nobody knows has a negative number and words of its own.
        return os.strerror(number) if number > 0 else error.os_error.strerror or str(error)
    return str(error) or type(error).__name__
