"""How many connections the HTTP endpoint keeps, and for how long it waits for a request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from metrics import http_connections
from metrics.http_connections import HttpConnections

PATIENCE_SECONDS = 300.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Served:
    """A server whose handler waits until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.begun = asyncio.Event()
        self.released.set()
        self.body = b"answer"
        self.port = 0
        server = web.Server(self._handle, access_log=None)
        self.connections = HttpConnections(server)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections.begin(request)
        try:
            self.begun.set()
            await self.released.wait()
            return web.Response(body=self.body)
        finally:
            self.connections.end(request)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    served = Served()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(served.connections.accept, "127.0.0.1", 0)
    served.port = listening.sockets[0].getsockname()[1]
    yield served
    served.connections.stop()
    listening.close()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(http_connections, "SWEEP_SECONDS", 0.01)
    async with serving() as one:
        yield one


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the connection is closed."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST[:-1]])
async def test_a_request_that_is_not_sent_whole_loses_its_connection(
    served: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.05)
    reader, writer = await served.connect()

    writer.write(sent)

    assert await ended(reader) == b""
    writer.close()


async def test_a_connection_that_opens_long_after_it_was_accepted_is_closed_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy loop may sweep between the two steps, and must not lose sight of the connection."""
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    protocol = served.connections.accept()
    served.connections._close_silent()

    await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, theirs)

    reader, writer = await asyncio.open_connection(sock=ours)
    assert await ended(reader) == b""
    writer.close()


async def test_a_request_that_is_being_answered_keeps_its_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.01)
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.01)
    served.released.clear()
    busy, busy_writer = await served.connect()
    busy_writer.write(REQUEST)
    await served.begun.wait()
    silent, silent_writer = await served.connect()

    assert await ended(silent) == b""
    served.released.set()

    assert (await ended(busy)).startswith(b"HTTP/1.1 200")
    busy_writer.close()
    silent_writer.close()


async def test_a_peer_that_does_not_read_its_answer_loses_its_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.05)
    served.body = bytes(64 << 20)
    reader, writer = await served.connect()
    writer.write(REQUEST)
    await served.begun.wait()

    async with asyncio.timeout(PATIENCE_SECONDS):
        while served.connections.open_count:  # noqa: ASYNC110 - the sweep sets no event
            await asyncio.sleep(0.01)

    assert len(await ended(reader)) < len(served.body)
    writer.close()


async def test_beyond_the_bound_a_new_connection_takes_the_place_of_the_longest_idle(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "CONNECTIONS_MAX", 2)
    first, first_writer = await served.connect()
    second, second_writer = await served.connect()
    second_writer.write(REQUEST)
    await second.readuntil(b"answer")

    third, third_writer = await served.connect()
    third_writer.write(REQUEST)

    await third.readuntil(b"answer")
    assert await ended(first) == b""
    second_writer.write(REQUEST)
    await second.readuntil(b"answer")
    for writer in (first_writer, second_writer, third_writer):
        writer.close()


async def test_while_all_connections_are_being_answered_a_new_one_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "CONNECTIONS_MAX", 1)
    served.released.clear()
    busy, busy_writer = await served.connect()
    busy_writer.write(REQUEST)
    await served.begun.wait()

    refused, refused_writer = await served.connect()

    assert await ended(refused) == b""
    served.released.set()
    await busy.readuntil(b"answer")
    busy_writer.close()
    refused_writer.close()
