"""Answers that the send thread sends: each peer gets its own, in order, even if other connections fail.

The stand-in for `send` writes to the real sockets, but takes what a test says.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast
from unittest import mock

import pytest
import uvloop
from hypothesis import event, given, settings
from hypothesis import strategies as st

from server.net.answer_sender import AnswerSender
from server.net.limits import AnswerMemory
from server.net.outbox import Outbox
from server.net.send_thread import SendThread
from server.runtime.turns import Turns
from tests.harness.connection_server import until
from tests.harness.examples import examples
from tests.harness.faulty_network import RESET_AT_CLOSE
from tests.harness.kernel_send import KernelSend


class Side(asyncio.Protocol):
    """The broker's side of a connection: closes its outbox as `Connection` does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_lost = False
        self.was_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.fileno = self.transport.get_extra_info("socket").fileno()
        self.outbox = Outbox(
            self.transport,
            loop=asyncio.get_running_loop(),
            memory=self._world.memory,
            bytes_max=1 << 20,
            on_sent=self._world.sent.append,
            on_error=lambda _: self.transport.abort(),
            sender=self._world.sender,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        os.fstat(self.fileno)
        self.was_open = True
        self.is_lost = True
        self.outbox.close()


@dataclass(eq=False)
class Peer:
    """One connection: the broker's side, the peer's socket, and what was written to it."""

    side: Side
    socket: socket.socket
    written: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    """Whether the connection ended before everything had to arrive."""

    def receive(self) -> bytes:
        """Returns everything that has arrived so far."""
        with suppress(BlockingIOError, ConnectionError):
            while not self.is_ended and (chunk := self.socket.recv(1 << 16)):
                self.received += chunk
        return bytes(self.received)

    async def complete(self) -> None:
        """Wait until everything has arrived, or the connection has ended."""
        await until(lambda: len(self.receive()) == len(self.written) or self.side.is_lost)


@dataclass(eq=False)
class World:
    """A broker's connections, and the kernel that takes their answers."""

    kernel: KernelSend
    sender: AnswerSender
    listening: socket.socket
    memory: AnswerMemory = field(default_factory=lambda: AnswerMemory(bytes_max=1 << 30))
    sent: list[int] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)

    def client(self) -> socket.socket:
        """Returns a socket whose connection is not accepted yet."""
        client = socket.create_connection(self.listening.getsockname())
        client.setblocking(False)
        return client

    async def connect(self, theirs: socket.socket | None = None) -> Peer:
        theirs = theirs or self.client()
        ours, _ = self.listening.accept()
        _, side = await asyncio.get_running_loop().connect_accepted_socket(lambda: Side(self), ours)
        peer = Peer(side, theirs)
        self.peers.append(peer)
        return peer

    def write(self, peer: Peer, answer: bytes, *, is_late: bool = False) -> None:
        self.memory.hold(len(answer))
        if not peer.side.is_lost and not peer.side.transport.is_closing():
            peer.written += answer
        peer.side.outbox.write([answer], is_late=is_late)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    kernel = KernelSend(delivers=True)
    loop = asyncio.get_running_loop()
    made = functools.partial(SendThread, send_address=kernel.address)
    with (
        mock.patch("server.net.answer_sender.SendThread", made),
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        sender = AnswerSender(Turns(), loop=loop, together_min=0)
        found = World(kernel, sender, listening)
        try:
            yield found
        finally:
            kernel.may_take.set()
            for peer in found.peers:
                peer.side.outbox.close()
                peer.side.transport.abort()
            await until(lambda: all(peer.side.is_lost for peer in found.peers))
            sender.close()
            for peer in found.peers:
                peer.socket.close()


async def begun(world: World) -> None:
    """Wait until the thread is in the middle of a send, where it stays."""
    await until(world.kernel.has_begun.is_set)


async def test_the_thread_sends_the_answers_of_many_connections() -> None:
    async with world() as broker:
        peers = [await broker.connect() for _ in range(20)]
        for number in range(5):
            for peer in peers:
                broker.write(peer, b"<%d>" % number)
            # Until then the thread may not have begun, and the next write takes the answers back.
            await until(lambda: len(broker.kernel.taken) == 20)
            broker.kernel.taken.clear()

        await until(lambda: {peer.receive() for peer in peers} == {b"<0><1><2><3><4>"})

        assert sum(broker.sent) == 20 * 15
        assert broker.memory.held_bytes == 0


async def test_an_answer_never_reaches_the_next_connection_with_the_same_descriptor() -> None:
    async with world() as broker:
        first, gone = await broker.connect(), await broker.connect()
        waiting = broker.client()
        broker.kernel.may_take.clear()
        broker.write(first, b"holds the thread")
        broker.write(gone, b"for the one that is gone")
        await begun(broker)

        gone.side.transport.abort()
        await until(lambda: gone.side.is_lost)
        await asyncio.sleep(0)  # The transport closes its descriptor behind `connection_lost`.
        newcomer = await broker.connect(waiting)
        assert newcomer.side.fileno == gone.side.fileno
        broker.kernel.may_take.set()
        broker.write(newcomer, b"for the newcomer")

        await until(lambda: len(newcomer.receive()) >= 16)
        assert newcomer.received == b"for the newcomer"


async def test_a_connection_that_ends_while_its_answer_is_sent_keeps_its_descriptor() -> None:
    async with world() as broker:
        peer = await broker.connect()
        broker.kernel.may_take.clear()
        broker.write(peer, b"answer")
        await begun(broker)
        asyncio.get_running_loop().run_in_executor(None, broker.kernel.may_take.set)

        peer.side.outbox.close()

        assert broker.kernel.taken == [(peer.side.fileno, b"answer")]


async def test_the_descriptor_is_open_in_connection_lost() -> None:
    """The outbox relies on it, however the connection ends."""
    async with world() as broker:
        reset, closed, aborted, finished = [await broker.connect() for _ in range(4)]
        reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        reset.socket.close()
        closed.socket.close()
        aborted.side.transport.abort()
        finished.side.transport.close()

        await until(lambda: all(peer.side.is_lost for peer in broker.peers))

        assert all(peer.side.was_open for peer in broker.peers)


async def test_a_peer_that_sends_nothing_more_gets_the_answer_that_was_handed_over() -> None:
    async with world() as broker:
        first, half_closed = await broker.connect(), await broker.connect()
        broker.kernel.may_take.clear()
        broker.write(first, b"holds the thread")
        broker.write(half_closed, b"answer")
        half_closed.socket.shutdown(socket.SHUT_WR)
        await until(lambda: half_closed.side.is_lost)

        await until(lambda: half_closed.receive() == b"answer")


@pytest.mark.parametrize("result", [0, 3, -errno.EAGAIN, -errno.EINTR])
async def test_what_the_kernel_does_not_take_from_the_thread_is_sent_by_the_loop(
    result: int,
) -> None:
    async with world() as broker:
        peer = await broker.connect()
        broker.kernel.results.append(result)
        broker.write(peer, b"answer")

        await until(lambda: peer.receive() == b"answer")
        broker.write(peer, b" and the next one")

        await until(lambda: peer.receive() == b"answer and the next one")
        assert (sum(broker.sent), broker.memory.held_bytes) == (23, 0)


async def test_an_answer_is_complete_before_the_connection_ends() -> None:
    async with world() as broker:
        peer = await broker.connect()
        broker.kernel.results.append(3)
        broker.write(peer, b"answer")

        await peer.side.outbox.drained()
        peer.side.outbox.close()
        peer.side.transport.close()

        await until(lambda: peer.receive() == b"answer")


async def test_an_answer_that_is_due_is_sent_though_another_comes_while_the_transport_closes() -> (
    None
):
    async with world() as broker:
        first, closing = await broker.connect(), await broker.connect()
        broker.kernel.may_take.clear()
        broker.write(first, b"holds the thread")
        broker.write(closing, b"due")
        closing.side.transport.abort()
        broker.write(closing, b"too late")

        await until(lambda: closing.side.is_lost)

        assert closing.receive() == b"due"


async def test_the_rest_of_an_answer_that_comes_back_while_the_outbox_closes_is_dropped() -> None:
    async with world() as broker:
        peer = await broker.connect()
        broker.kernel.results.append(3)
        broker.kernel.may_take.clear()
        broker.write(peer, b"answer")
        await begun(broker)
        asyncio.get_running_loop().run_in_executor(None, broker.kernel.may_take.set)

        peer.side.outbox.close()

        assert (peer.side.outbox.pending_bytes, broker.memory.held_bytes) == (0, 0)
        assert peer.receive() == b"answer"[:3]


async def test_an_error_of_the_thread_ends_the_connection() -> None:
    async with world() as broker:
        peer = await broker.connect()
        broker.kernel.results.append(-errno.ECONNRESET)
        broker.write(peer, b"answer")

        await until(lambda: peer.side.is_lost)

        assert (peer.side.outbox.pending_bytes, broker.memory.held_bytes) == (0, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 1100)),
        st.tuples(st.just("late"), st.integers(0, 3), st.integers(1, 50)),
        st.tuples(st.just("write a megabyte"), st.integers(0, 3), st.just(1 << 20)),
        st.tuples(st.just("turn"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("drain"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("hold"), st.just(0), st.just(0)),
        st.tuples(st.just("release"), st.just(0), st.just(0)),
        st.tuples(st.just("close"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("abort"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("reset"), st.integers(0, 3), st.integers(0, 2)),
    ),
    max_size=40,
)
RESULTS = st.lists(
    st.sampled_from([2000, 2000, 2000, 1, 7, 0, -errno.EAGAIN, -errno.EINTR, -errno.EPIPE]),
    max_size=20,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, RESULTS)
def test_every_peer_gets_its_own_answers_in_order_and_nothing_else(
    steps: list[tuple[str, int, int]], results: list[int]
) -> None:
    uvloop.run(run_history(steps, results))


async def run_history(steps: list[tuple[str, int, int]], results: list[int]) -> None:
    async with world() as broker:
        broker.kernel.results.extend(results)
        # The last one is for `hold`.
        open_ = [await broker.connect() for _ in range(5)]
        for number, (step, place, size) in enumerate(steps):
            await run_step(broker, open_, number, step, place, size)
            check_prefixes(broker)
        broker.kernel.may_take.set()
        for peer in open_:
            await peer.complete()
        check_prefixes(broker)
        complete = [peer for peer in open_ if not peer.side.is_lost]
        assert all(peer.received == peer.written for peer in complete)
        if len(complete) == len(broker.peers):
            assert sum(broker.sent) == sum(len(peer.written) for peer in complete)
        event(f"{len(broker.peers) - len(complete)} connections ended")
    assert broker.memory.held_bytes == 0


async def run_step(
    broker: World, open_: list[Peer], number: int, step: str, place: int, size: int
) -> None:
    peer = open_[place]
    match step:
        case "write" | "late" | "write a megabyte":
            answer = (b"%d:%d " % (broker.peers.index(peer), number)) * size
            broker.write(peer, answer[:size], is_late=step == "late")
        case "turn":
            for _ in range(place):
                await asyncio.sleep(0)
        case "drain":
            await drain(peer)
        case "hold" if broker.kernel.may_take.is_set():
            await hold(broker, open_[-1])
        case "release":
            broker.kernel.may_take.set()
        case "close" | "abort" | "reset":
            await end(peer, step)
            if size:
                broker.write(peer, b"too late", is_late=size > 1)
            open_[place] = await broker.connect()
        case _:  # Already held.
            pass


async def drain(peer: Peer) -> None:
    drained = asyncio.ensure_future(peer.side.outbox.drained())
    while not drained.done():
        peer.receive()
        await asyncio.sleep(0)


async def hold(broker: World, peer: Peer) -> None:
    """Stop the thread in the middle of an answer to this peer; the next ones stay behind it."""
    broker.write(peer, b"after this one,")
    await peer.complete()
    if not peer.side.is_lost:
        broker.kernel.has_begun.clear()
        broker.kernel.may_take.clear()
        broker.write(peer, b"hold")
        await begun(broker)


async def end(peer: Peer, how: str) -> None:
    if how == "close":
        peer.side.outbox.close()
        peer.side.transport.close()
    elif how == "abort":
        peer.side.transport.abort()
    else:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        peer.receive()
        peer.is_ended = True
        peer.socket.close()


def check_prefixes(broker: World) -> None:
    for peer in broker.peers:
        peer.receive()
        assert peer.written.startswith(peer.received)
