"""The send queue of a connection: order, partial writes, regions, errors; on a real uvloop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from server.net.answer_sender import AnswerSender
from server.net.limits import AnswerMemory
from server.net.outbox import Outbox
from server.net.send_queue import Part, buffered_size
from server.runtime.turns import Turns

PATIENCE_SECONDS = 300.0


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
class Peer:
    """Both ends of a TCP connection: ours is a transport with an outbox, the peer's a raw socket."""

    theirs: socket.socket
    transport: asyncio.Transport
    outbox: Outbox
    memory: AnswerMemory
    sent: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    is_sent_by_thread: bool = False

    def write(self, parts: Sequence[Part]) -> None:
        """Count the buffers in, as a connection does, and write."""
        self.memory.hold(buffered_size(parts))
        self.outbox.write(parts)

    async def receive(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        received = bytearray()
        while len(received) < size:
            chunk = await loop.sock_recv(self.theirs, 1 << 20)
            if not chunk:
                break
            received += chunk
        return bytes(received)


@pytest.fixture(params=["loop", "thread"])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    """Its small answers are sent by the loop, or by the send thread."""
    loop = asyncio.get_running_loop()
    together_min = 0 if request.param == "thread" else 100
    sender = AnswerSender(Turns(), loop=loop, together_min=together_min)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    theirs.setblocking(False)
    ours.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    sent: list[int] = []
    errors: list[Exception] = []
    memory = AnswerMemory(bytes_max=1 << 30)
    outbox = Outbox(
        transport,
        loop=loop,
        memory=memory,
        bytes_max=1000,
        on_sent=sent.append,
        on_error=errors.append,
        sender=sender,
    )
    yield Peer(theirs, transport, outbox, memory, sent, errors, request.param == "thread")
    outbox.close()
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)
    sender.close()


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    content = os.urandom(3 << 20)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor, content
    os.close(descriptor)


async def test_buffers_and_regions_arrive_in_the_order_they_were_written(
    peer: Peer, segment: tuple[int, bytes]
) -> None:
    fileno, content = segment
    first, second = FileRegion(fileno, 7, 100_000), FileRegion(fileno, 0, 11)

    peer.write([b"head", memoryview(b"er"), first, b"middle", second])
    peer.write([bytearray(b"tail")])

    expected = b"header" + content[7:100_007] + b"middle" + content[:11] + b"tail"
    assert await peer.receive(len(expected)) == expected
    assert (first.releases, second.releases) == (1, 1)
    assert sum(peer.sent) == len(expected)


async def test_more_than_the_socket_takes_is_sent_when_the_reader_catches_up(
    peer: Peer, segment: tuple[int, bytes]
) -> None:
    fileno, content = segment
    regions: list[FileRegion] = [FileRegion(fileno, 0, len(content)) for _ in range(4)]
    big = os.urandom(5 << 20)
    parts: list[Part] = [big, *regions, b"end"]

    peer.write(parts)

    assert peer.outbox.pending_bytes > 0
    expected = big + content * 4 + b"end"
    assert await peer.receive(len(expected)) == expected
    await peer.outbox.drained()
    assert peer.outbox.pending_bytes == 0
    assert [region.releases for region in regions] == [1, 1, 1, 1]


async def test_more_buffers_than_one_call_takes_are_all_sent(peer: Peer) -> None:
    buffers: list[Part] = [b"%04d" % i for i in range(3000)]

    peer.write(buffers)

    assert await peer.receive(12_000) == b"".join(b"%04d" % i for i in range(3000))


async def test_an_answer_that_goes_out_in_part_is_followed_by_the_next_one(peer: Peer) -> None:
    first, second = os.urandom(16 << 20), b"second"

    peer.write([first])
    assert 0 < peer.outbox.pending_bytes == peer.memory.held_bytes < len(first)
    peer.write([second])

    expected = first + second
    assert await peer.receive(len(expected)) == expected
    await peer.outbox.drained()
    assert (peer.memory.held_bytes, sum(peer.sent)) == (0, len(expected))


async def test_a_small_answer_to_a_peer_that_is_gone_holds_nothing(peer: Peer) -> None:
    peer.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.transport.pause_reading()  # otherwise the transport notices first, and closes by itself
    peer.theirs.close()

    peer.write([b"answer"])
    peer.write([b"after it"])

    assert [type(error) for error in peer.errors] == [ConnectionResetError]
    # The thread's answer is counted when the thread gets it.
    counted = [len(b"answer")] if peer.is_sent_by_thread else []
    assert (peer.memory.held_bytes, peer.outbox.pending_bytes, peer.sent) == (0, 0, counted)


async def test_nothing_is_sent_once_the_transport_closes(peer: Peer) -> None:
    """Its descriptor's number may be another connection's by then."""
    peer.transport.abort()

    peer.write([b"answer"])

    assert (peer.sent, peer.errors) == ([], [])
    peer.outbox.close()
    assert peer.memory.held_bytes == 0


async def test_room_waits_while_the_peer_does_not_read(peer: Peer) -> None:
    await asyncio.wait_for(peer.outbox.room(), PATIENCE_SECONDS)
    peer.write([bytes(16 << 20)])
    room = asyncio.ensure_future(peer.outbox.room())
    await asyncio.sleep(0.02)
    assert not room.done()

    await peer.receive(16 << 20)

    await asyncio.wait_for(room, PATIENCE_SECONDS)


async def test_closing_releases_what_is_unsent_and_ends_the_waits(
    peer: Peer, segment: tuple[int, bytes]
) -> None:
    fileno, content = segment
    region = FileRegion(fileno, 0, len(content))
    peer.write([bytes(16 << 20), region])
    waits = [
        asyncio.ensure_future(peer.outbox.room()),
        asyncio.ensure_future(peer.outbox.drained()),
    ]
    await asyncio.sleep(0)

    peer.outbox.close()
    peer.outbox.close()

    await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_SECONDS)
    assert region.releases == 1
    late = FileRegion(fileno, 0, 1)
    peer.write([late, b"x"])
    assert late.releases == 1
    assert peer.outbox.pending_bytes == 0


async def test_a_peer_that_is_gone_is_reported_once(peer: Peer) -> None:
    peer.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.transport.pause_reading()  # otherwise the transport notices first, and closes by itself
    peer.write([bytes(16 << 20)])

    peer.theirs.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not peer.errors:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.02)

    assert len(peer.errors) == 1
    assert isinstance(peer.errors[0], ConnectionError)
    assert peer.outbox.pending_bytes == 0


async def test_a_region_shorter_than_promised_breaks_the_connection(
    peer: Peer, segment: tuple[int, bytes]
) -> None:
    fileno, content = segment
    region = FileRegion(fileno, len(content) - 10, 20)

    peer.write([region])

    assert [str(error) for error in peer.errors] == [
        "segment file ends 10 bytes before the region to send"
    ]
    assert region.releases == 1


async def test_an_empty_region_is_released_at_once(peer: Peer) -> None:
    region = FileRegion(-1, 0, 0)

    peer.write([region, b"", b"x"])

    assert region.releases == 1
    assert await peer.receive(1) == b"x"
