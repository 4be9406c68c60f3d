"""The send queue of a TLS connection, over a transport that pauses when the test says so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from metrics.server_probe import ServerProbe
from server.net import tls_outbox
from server.net.limits import AnswerMemory
from server.net.send_queue import Part, buffered_size
from server.net.tls_outbox import PIECE_BYTES, TURN_BYTES_MAX, TlsOutbox
from server.runtime.cold_reads import ColdReads
from tests.harness.connection_server import until


@dataclass
class FileRegion:
    """A region of a real file that counts its releases."""

    fileno: int
    position: int
    size: int
    releases: int = 0

    def release(self) -> None:
        self.releases += 1


@dataclass
class Transport:
    """Records what is written; asks to pause after each write while `is_slow`."""

    outbox: TlsOutbox | None = None
    written: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    is_slow: bool = False
    is_gone: bool = False

    def is_closing(self) -> bool:
        return self.is_gone

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.sizes.append(len(data))
        if self.is_slow:
            assert self.outbox is not None
            self.outbox.pause()


@dataclass
class World:
    transport: Transport
    outbox: TlsOutbox
    memory: AnswerMemory
    cold_reads: ColdReads
    sent: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def write(self, *parts: Part) -> None:
        self.memory.hold(buffered_size(parts))
        self.outbox.write(parts)


@pytest.fixture
async def world() -> World:
    transport = Transport()
    memory = AnswerMemory(bytes_max=1 << 30)
    cold_reads = ColdReads(ServerProbe())
    sent: list[int] = []
    errors: list[Exception] = []
    outbox = TlsOutbox(
        cast("asyncio.Transport", transport),
        loop=asyncio.get_running_loop(),
        memory=memory,
        bytes_max=1000,
        on_sent=sent.append,
        on_error=errors.append,
        cold_reads=cold_reads,
    )
    transport.outbox = outbox
    return World(transport, outbox, memory, cold_reads, sent, errors)


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    content = os.urandom(3 << 20)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    with path.open("rb") as file:
        yield file.fileno(), content


async def test_buffers_and_regions_leave_in_order_in_bounded_pieces(
    world: World, segment: tuple[int, bytes]
) -> None:
    fileno, content = segment
    region = FileRegion(fileno, 7, 2 << 20)
    big = os.urandom(300_000)

    world.write(b"one", b"two", region, big, b"three")
    await world.outbox.drained()

    assert world.transport.written == b"onetwo" + content[7 : 7 + (2 << 20)] + big + b"three"
    assert world.transport.sizes[0] == len(b"onetwo")
    assert max(world.transport.sizes) == PIECE_BYTES
    assert region.releases == 1
    assert (world.outbox.pending_bytes, world.memory.held_bytes) == (0, 0)
    assert sum(world.sent) == len(world.transport.written)


async def test_a_turn_of_the_loop_sends_a_bounded_amount(
    world: World, segment: tuple[int, bytes]
) -> None:
    world.write(FileRegion(segment[0], 0, 3 << 20))

    assert len(world.transport.written) == TURN_BYTES_MAX
    await world.outbox.drained()
    assert world.transport.written == segment[1]


async def test_while_the_peer_reads_nothing_one_piece_waits_and_stays_counted(
    world: World, segment: tuple[int, bytes]
) -> None:
    world.transport.is_slow = True
    region = FileRegion(segment[0], 0, 3 << 20)
    world.write(region, bytes(10))
    world.write(b"later")

    assert world.transport.sizes == [PIECE_BYTES]
    assert world.outbox.pending_bytes == (3 << 20) + 15
    assert world.memory.held_bytes == PIECE_BYTES + 15
    assert world.sent == []

    while world.outbox.pending_bytes:
        world.outbox.resume()
        await asyncio.sleep(0)
    assert world.transport.written == segment[1] + bytes(10) + b"later"
    assert world.memory.held_bytes == 0
    assert region.releases == 1


async def test_a_close_gives_back_what_waits(world: World, segment: tuple[int, bytes]) -> None:
    world.transport.is_slow = True
    region = FileRegion(segment[0], 0, 1 << 20)
    world.write(region, bytes(10))
    drained = asyncio.ensure_future(world.outbox.drained())
    await asyncio.sleep(0)

    world.outbox.close()
    world.outbox.resume()
    world.write(b"dropped")

    await drained
    assert region.releases == 1
    assert (world.outbox.pending_bytes, world.memory.held_bytes) == (0, 0)
    assert world.transport.sizes == [PIECE_BYTES]


async def test_bytes_that_are_not_cached_are_read_in_a_thread(
    world: World, segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_outbox, "_read_cached", lambda _: None)
    region = FileRegion(segment[0], 5, 1 << 20)

    world.write(b"first", region, b"last")
    assert world.transport.written == b"first"
    await world.outbox.drained()

    assert world.transport.written == b"first" + segment[1][5 : 5 + (1 << 20)] + b"last"
    assert region.releases == 1
    world.cold_reads.close()


async def test_a_close_during_a_read_keeps_the_file_pinned_until_the_read_ends(
    world: World, segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_outbox, "_read_cached", lambda _: None)
    region, other = FileRegion(segment[0], 0, 1 << 20), FileRegion(segment[0], 0, 1)
    world.write(region, other)

    world.outbox.close()

    assert (region.releases, other.releases) == (0, 1)
    await until(lambda: region.releases == 1)
    assert world.transport.written == b""
    assert world.memory.held_bytes == 0
    world.cold_reads.close()


@pytest.mark.parametrize("is_cached", [True, False])
async def test_a_file_that_ends_too_soon_closes_the_connection(
    world: World, segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    if not is_cached:
        monkeypatch.setattr(tls_outbox, "_read_cached", lambda _: None)
    region = FileRegion(segment[0], (3 << 20) - 10, 20)

    world.write(region)

    await until(lambda: bool(world.errors))
    assert "segment file ends 10 bytes before the region to send" in str(world.errors[0])
    assert region.releases == 1
    assert (world.outbox.pending_bytes, world.memory.held_bytes) == (0, 0)
    world.cold_reads.close()
