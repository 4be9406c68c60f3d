"""Connections over real sockets, with a dispatch that does what each test needs."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from metrics.server_probe import ServerProbe
from server.addresses import Address, Listener
from server.clock import SystemClock
from server.connection import Connection, Reply, Shared
from server.limits import AnswerMemory, ConnectionLimits, RequestMemory
from server.listener import Listeners, SocketOptions
from server.sparing_log import SparingLog
from server.turns import Turns
from tests.harness.raw_client import RawClient

Handle = Callable[[bytearray, Connection], Awaitable[Reply]]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def echo(frame: bytearray, connection: Connection) -> Reply:
    return [framed(bytes(frame))]


@dataclass
class Server:
    """A listener on a free port with a dispatch of the test's own."""

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
        """Connections that are open, and protocol errors and refusals so far."""
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
) -> AsyncIterator[Server]:
    shared = Shared(
        warnings=SparingLog(logging.getLogger("server.clients"), SystemClock()),
        dispatch=handle,  # type: ignore[arg-type]
        limits=ConnectionLimits(
            connections_max=connections_max, connections_per_ip_max=connections_per_ip_max
        ),
        memory=RequestMemory(bytes_max=request_bytes_max),
        answers=AnswerMemory(bytes_max=answer_bytes_max),
        turns=Turns(),
        probe=ServerProbe(),
        connections=set(),
        frame_bytes_max=frame_bytes_max,
        in_flight_requests_max=in_flight_requests_max,
        outbox_bytes_max=outbox_bytes_max,
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
    """Wait for what must come true soon."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
