"""Connections over real sockets, with a dispatch function that each test supplies."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from metrics.server_probe import ServerProbe
from server.config.listeners.addresses import Address, Listener
from server.net.answer_sender import AnswerSender
from server.net.connection import Connection
from server.net.limits import AnswerMemory, ConnectionLimits, RequestMemory
from server.net.listener import Listeners, SocketOptions
from server.net.send_queue import Part
from server.net.shared import Reply, Shared, Shortcut
from server.net.sparing_log import SparingLog
from server.runtime.clock import SystemClock
from server.runtime.cold_reads import ColdReads
from server.runtime.turns import Turns
from tests.harness.raw_client import RawClient

Handle = Callable[[bytearray, Connection], Awaitable[Reply]]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def echo(frame: bytearray, connection: Connection) -> Reply:
    return [framed(bytes(frame))]


class NoShortcut:
    """Leaves every request to the test's dispatch function."""

    def run(self, frame: bytearray, connection: Connection) -> None: ...

    def waits_for_others(self, frame: bytearray) -> bool:
        return frame.startswith(b"queue")

    def complete_now(self, done: None) -> list[Part] | None:
        raise AssertionError("`run` does nothing")

    def when_durable(self, done: None, then: Callable[[bytes | bytearray], None]) -> None:
        raise AssertionError("`run` does nothing")

    def start_round(self) -> None:
        raise AssertionError("`run` does nothing")


@dataclass
class Server:
    """A listener on a free port with the test's dispatch function."""

    port: int
    shared: Shared
    listeners: Listeners
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self) -> RawClient:
        client = await RawClient.connect("127.0.0.1", self.port)
        self.clients.append(client)
        return client

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of open connections, and of protocol errors and refusals so far."""
        counts = self.shared.probe.listeners["PLAINTEXT"]
        return counts.unclosed, counts.protocol_errors, counts.refused


@asynccontextmanager
async def serving(
    handle: Handle,
    *,
    frame_bytes_max: int = 1 << 20,
    in_flight_requests_max: int = 64,
    request_bytes_max: int = -1,
    outbox_bytes_max: int = 1 << 20,
    answer_bytes_max: int = 1 << 30,
    connections_max: int = 100,
    connections_per_ip_max: int = 100,
    idle_ms: int = 0,
    shortcut: Shortcut[Any] | None = None,
) -> AsyncIterator[Server]:
    probe = ServerProbe()
    turns = Turns()
    shared = Shared(
        warnings=SparingLog(logging.getLogger("server.clients"), SystemClock()),
        dispatch=handle,  # type: ignore[arg-type]
        limits=ConnectionLimits(
            connections_max=connections_max, connections_per_ip_max=connections_per_ip_max
        ),
        memory=RequestMemory(bytes_max=request_bytes_max),
        answers=AnswerMemory(bytes_max=answer_bytes_max),
        sender=AnswerSender(turns, loop=asyncio.get_running_loop()),
        turns=turns,
        cold_reads=ColdReads(probe),
        probe=probe,
        connections=set(),
        frame_bytes_max=frame_bytes_max,
        in_flight_requests_max=in_flight_requests_max,
        outbox_bytes_max=outbox_bytes_max,
        shortcut=shortcut or NoShortcut(),
    )
    listeners = Listeners(shared, idle_ms=idle_ms, options=SocketOptions())
    address = Address(name="PLAINTEXT", host="127.0.0.1", port=0)
    opened = await listeners.open(Listener(bind=address, advertised=address))
    server = Server(opened.port, shared, listeners)
    try:
        yield server
    finally:
        await listeners.stop(grace_s=0)
        for client in server.clients:
            client.close()
        await until(lambda: not shared.connections)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that must become true soon."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
