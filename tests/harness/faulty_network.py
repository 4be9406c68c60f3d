"""Relays TCP connections to a port of this machine, and fails as networks do, when a test asks for it.

    client  <-->  `FaultyNetwork.port`  <-->  the target's port

Troubles begin and end in the test's thread; the relay has an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from tests.harness.broker_process import free_ports

PIECE_BYTES = 1 << 16
LATE_PIECE_BYTES = 1 << 14
LATE_SECONDS_MAX = 0.05
START_SECONDS_MAX = 30.0
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: the peer gets a reset, and nothing that is still to be sent."""


class Trouble(enum.Enum):
    """How a network fails."""

    DELAY = enum.auto()
    """Bytes pass in small pieces, each of them late."""
    STALL = enum.auto()
    """Nothing passes until the trouble ends; then everything does."""
    HALF_CLOSE = enum.auto()
    """One direction of a connection ends in the middle of a frame, while the other stays open."""
    RESET = enum.auto()
    """Connections break in the middle of a frame, and new ones break at once."""
    LOSS = enum.auto()
    """Connections that send something go silent for ever, without a sign to either side."""


class FaultyNetwork:
    """The way from clients to one port."""

    def __init__(self, target_port: int, choices: random.Random) -> None:
        # Constant after construction
        (self.port,) = free_ports(1)
        self._target_port = target_port
        self._choices = choices
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self._is_ready = threading.Event()
        # State
        self.met: Counter[Trouble] = Counter()
        """How many pieces each trouble has met."""
        self._trouble: Trouble | None = None
        self._is_over = asyncio.Event()
        self._ends = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(START_SECONDS_MAX), "the relay does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(START_SECONDS_MAX)

    @contextmanager
    def trouble(self, kind: Trouble) -> Iterator[None]:
        """Fail in this way within the context."""
        self._is_over.clear()
        self._trouble = kind
        try:
            yield
        finally:
            self._trouble = None
            self._loop.call_soon_threadsafe(self._is_over.set)

    # ---------------------------------------------------------------- in the relay's thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self._is_ready.set()
        await self._ends.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        except asyncio.CancelledError:
            pass  # The test is over.
        finally:
            self._tasks.discard(task)
            reset(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._trouble is Trouble.RESET:
            self.met[Trouble.RESET] += 1
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            return
        connection = _Connection(self, writer, there[1])
        try:
            await asyncio.gather(
                connection.pump(reader, there[1]), connection.pump(there[0], writer)
            )
        finally:
            reset(there[1])

    def strikes(self) -> Trouble | None:
        """Returns the trouble that the next piece meets, if any."""
        trouble = self._trouble
        if trouble is Trouble.HALF_CLOSE and self._choices.random() < 0.5:
            return None  # So that it meets either direction.
        if trouble is not None:
            self.met[trouble] += 1
        return trouble

    def cut(self, piece: bytes) -> bytes:
        """Returns the beginning of a piece."""
        return piece[: self._choices.randrange(len(piece))]

    async def send_late(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Send a piece in parts, each late."""
        for start in range(0, len(piece), LATE_PIECE_BYTES):
            await asyncio.sleep(self._choices.uniform(0, LATE_SECONDS_MAX))
            writer.write(piece[start : start + LATE_PIECE_BYTES])
            await writer.drain()

    async def until_over(self) -> None:
        """Wait until the trouble ends."""
        await self._is_over.wait()


class _Connection:
    """A client's connection and the one to the target."""

    def __init__(
        self, network: FaultyNetwork, client: asyncio.StreamWriter, target: asyncio.StreamWriter
    ) -> None:
        self._network = network
        self._ends = (client, target)
        self._is_lost = False

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one direction until its end."""
        is_open = True
        try:
            while piece := await reader.read(PIECE_BYTES):
                if is_open and not self._is_lost:
                    is_open = await self._relay(piece, writer)
        except OSError:
            self._reset()
        if not self._is_lost:
            with suppress(OSError):
                writer.write_eof()

    async def _relay(self, piece: bytes, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the direction stays open."""
        match self._network.strikes():
            case None:
                writer.write(piece)
            case Trouble.DELAY:
                await self._network.send_late(writer, piece)
            case Trouble.STALL:
                await self._network.until_over()
                writer.write(piece)
            case Trouble.HALF_CLOSE:
                writer.write(self._network.cut(piece))
                writer.write_eof()
                return False
            case Trouble.RESET:
                writer.write(self._network.cut(piece))
                self._reset()
                return False
            case Trouble.LOSS:
                self._is_lost = True
        await writer.drain()
        return True

    def _reset(self) -> None:
        for end in self._ends:
            reset(end)


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection: its peer gets a reset."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    writer.transport.abort()
