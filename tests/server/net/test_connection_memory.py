"""The memory and descriptors of all connections together are bounded, and are released."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.net import listener as listening
from server.net.connection import SMALL_HELD_BYTES, Connection
from server.net.shared import Reply
from tests.harness.connection_server import Server, echo, framed, serving, until
from tests.harness.raw_client import RawClient

KIB, MIB = 1 << 10, 1 << 20


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def connected(server: Server, count: int) -> list[RawClient]:
    clients = [await server.connect() for _ in range(count)]
    await until(lambda: len(server.shared.connections) == count)
    return clients


@pytest.mark.parametrize("sent", ["nothing", "half a frame", "a frame", "frames not yet answered"])
async def test_a_closed_connection_is_freed_without_the_collector(sent: str) -> None:
    may_answer = asyncio.Event()

    async def answer_later(frame: bytearray, connection: Connection) -> Reply:
        await may_answer.wait()
        return await echo(frame, connection)

    async with serving(answer_later, frame_bytes_max=8 * MIB) as server:
        with collector_off():
            client = await server.connect()
            await until(lambda: bool(server.shared.connections))
            gone = weakref.ref(next(iter(server.shared.connections)))
            stream = framed(bytes(4 * MIB))
            if sent == "half a frame":
                client.send_bytes(stream[: 2 * MIB])
                await until(lambda: server.shared.memory.held_bytes >= 2 * MIB)
            elif sent == "frames not yet answered":
                client.send_bytes(stream + stream)
                await until(lambda: server.shared.memory.held_bytes >= 8 * MIB)
            elif sent == "a frame":
                may_answer.set()
                client.send_bytes(stream)
                await client.receive_frame()
            client.close()
            may_answer.set()

            await until(lambda: gone() is None)
            assert server.shared.memory.held_bytes == 0
            assert server.shared.answers.held_bytes == 0


async def test_an_answer_that_nobody_reads_is_freed_with_its_connection() -> None:
    async def much(frame: bytearray, connection: Connection) -> Reply:
        return [framed(bytes(64 * MIB))]

    async with serving(much) as server:
        client = await server.connect()
        client.send_bytes(framed(b"x"))
        await until(lambda: server.shared.answers.held_bytes > 32 * MIB)
        client.close()

        await until(lambda: server.shared.answers.held_bytes == 0)


async def test_an_idle_connection_has_one_descriptor() -> None:
    async with serving(echo) as server:
        before = open_descriptors()
        clients = await connected(server, 20)
        for client in clients:
            client.send_bytes(framed(b"x"))
            await client.receive_frame()

        assert open_descriptors() - before == 2 * 20  # one for the client, one for the broker


async def test_a_slow_reader_takes_a_second_descriptor_only_until_it_has_read() -> None:
    async def much(frame: bytearray, connection: Connection) -> Reply:
        return [framed(bytes(16 * MIB))]

    async with serving(much) as server:
        client = await server.connect()
        await until(lambda: bool(server.shared.connections))
        before = open_descriptors()
        client.send_bytes(framed(b"x"))
        await until(lambda: open_descriptors() == before + 1)
        await client.receive_frame()

        await until(lambda: open_descriptors() == before)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within the block, no descriptor can be opened or duplicated."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers = []
    try:
        while True:
            try:
                fillers.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


async def test_without_a_descriptor_left_a_slow_reader_still_gets_its_answer() -> None:
    async def much(frame: bytearray, connection: Connection) -> Reply:
        return [framed(b"x" * (16 * MIB))]

    async with serving(much) as server:
        client = await server.connect()
        await until(lambda: bool(server.shared.connections))
        with no_descriptor_left():
            client.send_bytes(framed(b"x"))
            assert await client.receive_frame() == b"x" * (16 * MIB)


async def test_counts_of_connections_survive_a_lack_of_descriptors() -> None:
    async with serving(echo) as server:
        (client,) = await connected(server, 1)
        with no_descriptor_left():
            client.send_bytes(framed(b"x"))
            assert await client.receive_frame() == b"x"
        more = [await server.connect() for _ in range(3)]
        await until(lambda: len(server.shared.connections) == 4)
        for each in (client, *more):
            each.close()

        await until(lambda: server.counts[0] == 0)
        assert server.shared.limits.count == 0


async def test_frames_on_their_way_count_against_the_bound_on_requests() -> None:
    bound = 4 * MIB
    async with serving(echo, request_bytes_max=bound, frame_bytes_max=8 * MIB) as server:
        clients = await connected(server, 8)
        begun = struct.pack(">i", 2 * MIB) + bytes(MIB)
        for client in clients:
            client.send_bytes(begun)
        memory = server.shared.memory
        await until(lambda: memory.is_short)

        # Each reading connection may find one more buffer in its socket; one may read beyond the bound.
        assert memory.held_bytes <= bound + 2 * MIB + 8 * 256 * KIB

        for client in clients:
            client.send_bytes(bytes(MIB))
        for client in clients:
            assert len(await client.receive_frame()) == 2 * MIB
        await until(lambda: memory.held_bytes == 0)


async def test_a_small_request_is_served_while_memory_for_large_ones_is_used_up() -> None:
    async with serving(echo, request_bytes_max=MIB, frame_bytes_max=8 * MIB) as server:
        large = await connected(server, 4)
        for client in large:
            client.send_bytes(struct.pack(">i", 4 * MIB) + bytes(2 * MIB))
        await until(lambda: server.shared.memory.is_short)

        small = await server.connect()
        small.send_bytes(framed(bytes(SMALL_HELD_BYTES // 2)))

        assert len(await small.receive_frame()) == SMALL_HELD_BYTES // 2


async def test_a_request_larger_than_the_bound_is_served_alone() -> None:
    async with serving(echo, request_bytes_max=MIB, frame_bytes_max=16 * MIB) as server:
        clients = await connected(server, 3)
        for client in clients:
            client.send_bytes(framed(bytes(8 * MIB)))

        for client in clients:
            assert len(await client.receive_frame()) == 8 * MIB


async def test_peers_that_hold_memory_and_move_nothing_are_closed_when_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "STALL_SECONDS", 0.2)
    async with serving(echo, request_bytes_max=2 * MIB, frame_bytes_max=16 * MIB) as server:
        stalled = await connected(server, 3)
        for client in stalled:
            client.send_bytes(struct.pack(">i", 4 * MIB) + bytes(MIB))
        await until(lambda: server.shared.memory.held_bytes >= 2 * MIB)
        honest = await server.connect()
        honest.send_bytes(framed(bytes(3 * MIB)))

        assert len(await honest.receive_frame()) == 3 * MIB


async def test_requests_in_a_queue_share_the_loop_with_other_connections() -> None:
    """A connection that sends fifty requests at once does not get all its answers first."""
    order: list[bytes] = []

    async def work(frame: bytearray, connection: Connection) -> Reply:
        end = asyncio.get_running_loop().time() + 0.002
        while asyncio.get_running_loop().time() < end:
            pass
        order.append(bytes(frame[:1]))
        return await echo(frame, connection)

    async with serving(work) as server:
        greedy, honest = await connected(server, 2)
        greedy.send_bytes(framed(b"greedy") * 50)
        await until(lambda: bool(order))
        honest.send_bytes(framed(b"honest"))
        await honest.receive_frame()

        assert order.index(b"h") < 25
