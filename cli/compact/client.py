"""The client of a broker's HTTP API, for the command line (`server/admin/compaction_routes.py`)."""

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

from cli.base.access import current
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from cli.compact.http_login import authorization
from server.admin.refusals import UNKNOWN_TOPIC

POLL_SECONDS = 0.2
CALL_SECONDS_MAX = 60.0
ROOT = "/v1/compaction"
STANDBY_ROOT = "/v1/standby"
NOT_MODIFIED = 304
TARGET = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")

Json = dict[str, Any]


class CallFailed(CommandFailed):
    """The broker refused a request, or did not answer."""

    def __init__(
        self,
        exit_code: int,
        message: str,
        *,
        status: int = 0,
        code: object = None,
        answer: Json | None = None,
    ) -> None:
        """
        Args:
            status: the HTTP status; 0 if there was no answer.
            code: the broker's reason for a refusal (`server/admin/refusals.py`), if it gave one.
            answer: the whole body of a refusal.
        """
        super().__init__(exit_code, message)
        self.status = status
        self.code = code
        self.answer = answer or {}


class CompactionClient:
    """Sends requests to the HTTP API of one broker: about the cleaner, unless it has another root."""

    def __init__(self, session: aiohttp.ClientSession, url: str, root: str = ROOT) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._root = root

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: str | None = None,
    ) -> Json:
        """Send a request and return the JSON of its response.

        Args:
            path: the part after the common root: `/v1/compaction`, unless `connected` got another.
            body: JSON to send.

        Raises:
            CallFailed: the broker refused it, or no Kompakt broker answers at the URL.
        """
        headers = {} if body is None else {"Content-Type": "application/json"}
        status, text, _ = await self._send(method, path, query, headers, body=body)
        return self._answer(status, text)

    async def get_unless(
        self, path: str, query: Mapping[str, str], etag: str | None = None
    ) -> tuple[Json, str | None] | None:
        """Send a GET, and return the JSON of its response with the ETag that it has, if any.

        A refusal with an ETag is a response, too: it says what is not there, until something is.

        Args:
            etag: that of an earlier response, which is not wanted again: then returns None.

        Raises:
            CallFailed: as in `call`.
        """
        headers = {} if etag is None else {"If-None-Match": etag}
        status, text, found = await self._send("GET", path, query, headers)
        if status == NOT_MODIFIED:
            return None
        try:
            return self._answer(status, text), found
        except CallFailed as refused:
            if found is None:
                raise
            return refused.answer, found

    async def call_on(
        self, method: str, target: str, action: str, query: Mapping[str, str] | None = None
    ) -> Json:
        """Send a request about TOPIC or TOPIC-PARTITION. Raises as `call`.

        `orders-1` is the topic of that name if it exists, else partition 1 of `orders`.
        """
        topic_path = f"/topics/{quote(target, safe='')}{action}"
        try:
            return await self.call(method, topic_path, query)
        except CallFailed as unknown:
            match = TARGET.fullmatch(target)
            if unknown.status != 404 or match is None:
                raise
            topic = quote(match["topic"], safe="")
            try:
                path = f"/topics/{topic}/partitions/{match['partition']}{action}"
                return await self.call(method, path, query)
            except CallFailed as error:
                # If `orders` does not exist either, the error about `orders-1`, which the user
                # typed, is the clearer one.
                raise unknown if error.code == UNKNOWN_TOPIC else error from None

    async def finished(
        self, job: Json, *, on_poll: Callable[[Json], None] = lambda _: None
    ) -> Json:
        """Poll a job until it is over and return its final state. Raises as `call`.

        `on_poll` receives the job's state after each poll.
        """
        while not job["is_over"]:
            await asyncio.sleep(POLL_SECONDS)
            job = await self.call("GET", f"/jobs/{job['id']}")
            on_poll(job)
        return job

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        *,
        body: str | None = None,
    ) -> tuple[int, str, str | None]:
        """Send a request and return the status, the text and the ETag of its response."""
        try:
            async with self._session.request(
                method,
                self._url + self._root + path,
                params=query,
                data=body,
                headers=headers,
            ) as response:
                return response.status, await response.text(), response.headers.get("ETag")
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise CallFailed(EXIT_USAGE, f"{self._url} is not an HTTP URL (--url)") from error
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            text = _unreachable(self._url, error, is_standby=self._is_standby)
            raise CallFailed(EXIT_UNREACHABLE, text) from error

    @property
    def _is_standby(self) -> bool:
        return self._root == STANDBY_ROOT

    def _answer(self, status: int, text: str) -> Json:
        return _answer(self._url, status, text, is_standby=self._is_standby)


@asynccontextmanager
async def connected(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    root: str = ROOT,
    seconds_max: float = CALL_SECONDS_MAX,
) -> AsyncIterator[CompactionClient]:
    """Yields a client of the broker at `url`, logged in with the access of the running command.

    Args:
        headers: sent with every request, in place of the login.
        root: the beginning of the paths that are called.
        seconds_max: how long a call may take.

    Raises:
        CommandFailed: the access cannot be used with this URL.
    """
    access = current()
    shown = authorization(access.login, url) if headers is None else headers
    timeout = aiohttp.ClientTimeout(total=seconds_max)
    connector = aiohttp.TCPConnector(ssl=True if access.tls is None else access.tls)
    async with aiohttp.ClientSession(
        timeout=timeout, headers=shown, connector=connector
    ) as session:
        yield CompactionClient(session, url, root)


def other_cluster_text(url: str) -> str:
    """Returns the clause that an answer is of no use, because it is about another cluster."""
    return f"the broker at {url} is another cluster's; choose it with --url"


def _answer(url: str, status: int, text: str, *, is_standby: bool) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        what = (
            "not a standby's: that is its --http, not the http.listener of a broker"
            if is_standby
            else "not a Kompakt broker of this release"
        )
        raise CallFailed(EXIT_UNREACHABLE, f"the server at {url} is {what} (HTTP {status})")
    if status >= 400:
        message = str(answer.get("error", text))
        raise CallFailed(
            EXIT_FAILED, message, status=status, code=answer.get("code"), answer=answer
        )
    return answer


def _unreachable(url: str, error: BaseException, *, is_standby: bool) -> str:
    who, where = ("standby", "--http") if is_standby else ("broker", "http.listener")
    return (
        f"no {who} answers at {url} ({_why(error)}):"
        f" is it running, and is that its {where}? Choose another with --url"
    )


def _why(error: BaseException) -> str:
    """Returns the system's error text, which is clearer than aiohttp's for a failed connection."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        # A failed name lookup (socket.gaierror) has a negative number, which os.strerror does not know.
        return os.strerror(number) if number > 0 else error.os_error.strerror or str(error)
    return str(error) or type(error).__name__
