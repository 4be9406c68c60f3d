"""Requests that skip the queue of a connection, with a stand-in for what runs them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from server.net.connection import Connection
from server.net.limits import RequestMemory
from server.net.send_queue import Part
from server.net.send_thread import SendThread
from server.net.shared import Reply
from server.net.shortcuts import ROUND_TOGETHER_MIN
from server.runtime import turns
from tests.harness.connection_server import echo, framed, serving, until

if TYPE_CHECKING:
    from server.net.send_thread import Sending


class Steered:
    """Takes requests that begin with `!`, answers those with `!now` at once, and the others when a test
    says so."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.waiting: list[tuple[bytes, Callable[[bytes | bytearray], None]]] = []
        self.rounds = 0

    def run(self, frame: bytearray, connection: Connection) -> bytes | None:
        if not frame.startswith(b"!"):
            return None
        self.taken.append(bytes(frame))
        return bytes(frame)

    def waits_for_others(self, frame: bytearray) -> bool:
        return False

    def complete_now(self, done: bytes) -> list[Part] | None:
        return [bytearray(framed(done))] if done.startswith(b"!now") else None

    def when_durable(self, done: bytes, then: Callable[[bytes | bytearray], None]) -> None:
        self.waiting.append((done, then))

    def start_round(self) -> None:
        self.rounds += 1

    def end_round(self) -> None:
        """Answer what waits."""
        waiting, self.waiting = self.waiting, []
        for done, then in waiting:
            then(framed(done))


async def slow_echo(frame: bytearray, connection: Connection) -> Reply:
    await asyncio.sleep(0)
    return await echo(frame, connection)


async def test_answers_leave_in_the_order_of_their_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SLICE_SECONDS", 60.0)
    steered = Steered()
    sent = [b"!now 1", b"!wait 2", b"!now 3", b"slow 4", b"!now 5"]
    async with serving(slow_echo, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(b"".join(map(framed, sent)))
        assert await client.receive_frame() == b"!now 1"
        await until(lambda: len(steered.waiting) == 1)
        steered.end_round()
        assert [await client.receive_frame() for _ in sent[1:]] == sent[1:]
    assert steered.taken == sent[:3], "the last one is behind one that waits"
    assert steered.rounds == 1


async def test_many_connections_get_their_own_answers_in_order() -> None:
    """The send thread sends them: turns of the loop have many answers."""
    given: list[int | None] = []

    class RecordingSendThread(SendThread):
        def put(self, owner: Sending, descriptor: int, answer: bytes | bytearray) -> int | None:
            ticket = super().put(owner, descriptor, answer)
            given.append(ticket)
            return ticket

    with mock.patch("server.net.answer_sender.SendThread", RecordingSendThread):
        await play_many_connections()
    assert len([ticket for ticket in given if ticket is not None]) > 500
    assert not any(each.name == "send" for each in threading.enumerate()), "the listeners stop it"


async def play_many_connections() -> None:
    async with serving(echo, shortcut=Steered()) as server:
        clients = [await server.connect() for _ in range(40)]
        for turn in range(25):
            sent = [b"!now %d of client %d" % (turn, number) for number in range(len(clients))]
            for client, request in zip(clients, sent, strict=True):
                client.send_bytes(framed(request))
            assert [await client.receive_frame() for client in clients] == sent


async def test_in_a_busy_turn_the_sync_waits_for_the_end_of_the_turn() -> None:
    steered = Steered()
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        for requests, rounds in ((ROUND_TOGETHER_MIN, 0), (ROUND_TOGETHER_MIN - 1, 1)):
            server.shared.turns.receives_before = requests
            client.send_bytes(framed(b"!wait"))
            await until(lambda: len(steered.waiting) == 1)
            assert steered.rounds == rounds
            steered.end_round()
            assert await client.receive_frame() == b"!wait"


async def test_a_request_does_not_overtake_one_that_runs() -> None:
    steered, gate = Steered(), asyncio.Event()
    begun: list[bytes] = []

    async def handle(frame: bytearray, _: Connection) -> Reply:
        begun.append(bytes(frame))
        await gate.wait()
        return [framed(bytes(frame))]

    async with serving(handle, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(framed(b"slow"))
        await until(lambda: begun == [b"slow"])
        client.send_bytes(framed(b"!now"))
        gate.set()
        assert await client.receive_frame() == b"slow"
        assert await client.receive_frame() == b"!now"
    assert steered.taken == []


async def test_a_request_that_ends_with_its_first_step_lets_the_next_one_skip_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SLICE_SECONDS", 60.0)
    steered = Steered()
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(framed(b"echo") + framed(b"!now"))
        assert [await client.receive_frame() for _ in range(2)] == [b"echo", b"!now"]
    assert steered.taken == [b"!now"]


async def test_what_does_not_fit_into_a_slice_of_the_loop_is_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steered = Steered()
    monkeypatch.setattr(turns, "SLICE_SECONDS", -1.0)
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(framed(b"!now 1") + framed(b"!now 2"))
        assert [await client.receive_frame() for _ in range(2)] == [b"!now 1", b"!now 2"]
    assert steered.taken == [b"!now 1"]


async def test_a_socket_that_is_read_often_in_a_turn_of_the_loop_gets_one_slice() -> None:
    """The loop reads up to 32 times, as long as there is more."""
    steered, now_s = Steered(), 0.0
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        await until(lambda: len(server.shared.connections) == 1)
        (connection,) = server.shared.connections
        await until(lambda: connection.is_free)
        assert connection._shortcuts is not None
        connection._shortcuts._pace = turns.Pace(server.shared.turns, clock=lambda: now_s)
        for number in range(3):
            now_s += turns.SLICE_SECONDS * 0.6
            data = framed(b"!now %d" % number)
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
        assert steered.taken == [b"!now 0", b"!now 1"]
        assert [await client.receive_frame() for _ in range(3)] == [
            b"!now %d" % number for number in range(3)
        ]
        client.send_bytes(framed(b"!now 3"))
        assert await client.receive_frame() == b"!now 3"
    assert len(steered.taken) == 3


async def test_a_large_frame_that_is_queued_counts_all_the_time() -> None:
    """Otherwise the connections that wait for memory would get its share at this moment."""
    steered, seen = Steered(), list[int]()
    gate = asyncio.Event()

    async def handle(frame: bytearray, _: Connection) -> Reply:
        await gate.wait()
        return [framed(b"done")]

    async with serving(handle, shortcut=steered, request_bytes_max=1 << 20) as server:
        give_back = server.shared.memory.give_back
        with pytest.MonkeyPatch.context() as patch:

            def noting(_: RequestMemory, size: int) -> None:
                seen.append(size)
                give_back(size)

            patch.setattr(RequestMemory, "give_back", noting)
            client = await server.connect()
            client.send_bytes(framed(bytes(1 << 19)))
            await until(lambda: server.shared.memory.held_bytes >= 1 << 19)
            (connection,) = server.shared.connections
            await until(lambda: not connection.is_free)
        gate.set()
        assert await client.receive_frame() == b"done"
    assert not [size for size in seen if size >= 1 << 19], "it was given back before its answer"


async def test_a_stop_waits_for_answers_that_wait_for_the_disk() -> None:
    steered = Steered()
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(framed(b"!wait"))
        await until(lambda: len(steered.waiting) == 1)
        (connection,) = server.shared.connections
        stopping = asyncio.create_task(connection.stop())
        await asyncio.sleep(0)
        steered.end_round()
        await stopping
        assert await client.receive_frame() == b"!wait"
        assert await client.is_closed()


async def test_a_lost_connection_is_freed_once_its_answers_are_known() -> None:
    steered = Steered()
    async with serving(echo, shortcut=steered) as server:
        client = await server.connect()
        client.send_bytes(framed(b"!wait") + framed(b"!now"))
        await until(lambda: len(steered.taken) == 2)
        (connection,) = server.shared.connections
        seen = weakref.ref(connection)
        del connection
        client.abort()
        await until(lambda: not server.shared.connections)
        gc.disable()
        try:
            steered.end_round()
            await until(lambda: seen() is None)
        finally:
            gc.enable()
        assert server.shared.memory.held_bytes == 0
        assert server.shared.answers.held_bytes == 0
