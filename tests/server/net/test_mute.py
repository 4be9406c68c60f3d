"""A muted connection reads nothing and starts no request; all others do."""

from __future__ import annotations

import asyncio
import struct

import pytest

from server.net.connection import SMALL_HELD_BYTES, Connection
from server.net.mute import Mute
from server.net.shared import Reply
from tests.harness.connection_server import framed, serving, until

LONG_S = 3600.0


class Paused:
    """A dispatch function that pauses the connection of a request that says so."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.muted: list[Connection] = []

    async def __call__(self, frame: bytearray, connection: Connection) -> Reply:
        self.begun.append(bytes(frame[:5]))
        if frame.startswith(b"pause"):
            self.muted.append(connection)
            connection.throttle(LONG_S)
        return [framed(bytes(frame))]


async def test_the_answer_is_sent_at_once_and_the_next_request_waits() -> None:
    paused = Paused()
    async with serving(paused) as server:
        client, other = await server.connect(), await server.connect()
        client.send_bytes(framed(b"pause") + framed(b"next1"))
        assert await client.receive_frame() == b"pause"
        for _ in range(3):
            other.send_frame(b"other")
            assert await other.receive_frame() == b"other"
        assert paused.begun == [b"pause", b"other", b"other", b"other"]

        paused.muted[0]._mute.end()
        assert await client.receive_frame() == b"next1"


async def test_bytes_that_arrive_during_the_pause_stay_in_the_socket() -> None:
    paused = Paused()
    async with serving(paused) as server:
        client, other = await server.connect(), await server.connect()
        client.send_frame(b"pause")
        await client.receive_frame()
        received = server.shared.probe.bytes_received_total
        client.send_frame(b"later")
        other.send_frame(b"other")
        await other.receive_frame()
        assert server.shared.probe.bytes_received_total == received + len(framed(b"other"))

        paused.muted[0]._mute.end()
        assert await client.receive_frame() == b"later"


async def test_a_pause_ends_by_itself() -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        connection.throttle(0.05)
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        client.send_bytes(framed(b"a") * 3)
        for _ in range(3):
            await client.receive_frame()
        # More than one pause. The loop reads its clock once a turn, so two may seem a little shorter.
        assert loop.time() - began_s >= 0.08


async def test_a_stopping_broker_answers_the_requests_of_a_muted_connection() -> None:
    paused = Paused()
    async with serving(paused) as server:
        client = await server.connect()
        client.send_bytes(framed(b"pause") + framed(b"next1"))
        await client.receive_frame()
        await until(lambda: bool(paused.muted) and paused.muted[0]._mute.is_on)
        await server.listeners.stop(grace_s=5)
        assert await client.receive_frame() == b"next1"


async def test_a_muted_connection_that_holds_memory_counts_as_stalled() -> None:
    """Otherwise those who wait for memory would wait until the pause ends."""
    paused = Paused()
    async with serving(paused) as server:
        client = await server.connect()
        large = b"x" * (SMALL_HELD_BYTES + 1)
        client.send_bytes(framed(b"pause") + framed(large))
        await client.receive_frame()
        (muted,) = paused.muted
        await until(lambda: muted._held_bytes > SMALL_HELD_BYTES)
        assert muted.is_stalled_since(muted.last_active_s)
        muted._mute.end()
        assert await client.receive_frame() == large
        await until(lambda: not muted._held_bytes)
        assert not muted.is_stalled_since(muted.last_active_s)


async def test_a_muted_connection_does_not_keep_the_exemption_from_the_memory_bound() -> None:
    """It read beyond the bound; while it pauses, another one may."""
    paused = Paused()
    async with serving(paused, request_bytes_max=SMALL_HELD_BYTES) as server:
        client, other = await server.connect(), await server.connect()
        rest = struct.pack(">i", 1 << 19) + b"x" * (3 * SMALL_HELD_BYTES)
        client.send_bytes(framed(b"pause") + rest)
        await client.receive_frame()
        assert server.shared.memory.exempt is not paused.muted[0]
        large = b"y" * (3 * SMALL_HELD_BYTES)
        other.send_frame(large)
        assert await other.receive_frame() == large


async def test_a_longer_pause_replaces_a_shorter_one_and_not_the_other_way_round() -> None:
    ended: list[str] = []
    mute = Mute()
    mute.begin(LONG_S, lambda: ended.append("long"))
    until_s = mute._until_s
    mute.begin(1.0, lambda: ended.append("short"))
    assert mute._until_s == until_s
    mute.begin(2 * LONG_S, lambda: ended.append("longer"))
    assert mute._until_s > until_s + 1
    mute.end()
    mute.end()
    assert ended == ["longer"]
    assert not mute.is_on
    await mute.over()


@pytest.mark.parametrize("kept", [False, True])
async def test_a_lost_connection_is_not_muted(kept: bool) -> None:
    paused = Paused()
    async with serving(paused) as server:
        client = await server.connect()
        client.send_bytes(framed(b"pause") + (framed(b"pause") if kept else b""))
        await client.receive_frame()
        (muted,) = paused.muted
        muted.close("test")
        await until(lambda: muted._serve_task is None)
        assert not muted._mute.is_on
        assert len(paused.begun) == 1 + kept
