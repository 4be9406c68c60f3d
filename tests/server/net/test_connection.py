"""A connection over real sockets, with a stand-in for the dispatcher."""

from __future__ import annotations

import asyncio
import struct

import pytest

from protocol.wire.errors import DecodeError
from server.net.connection import CloseConnection, Connection
from server.net.outbox import Outbox
from server.net.replies import SENT_TOGETHER_BYTES_MAX
from server.net.send_queue import Part
from server.net.shared import Reply
from server.runtime import turns
from tests.harness.connection_server import echo, framed, serving, until
from tests.harness.raw_client import RawClient


async def test_requests_are_answered_at_any_chunk_boundary() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        for byte in framed(b"one") + framed(b"two"):
            client.send_bytes(bytes([byte]))
            await asyncio.sleep(0.001)

        assert await client.receive_frame() == b"one"
        assert await client.receive_frame() == b"two"


async def test_many_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo, in_flight_requests_max=4) as server:
        client = await server.connect()
        payloads = [b"%06d" % i * (i % 50 + 1) for i in range(2000)]
        client.send_bytes(b"".join(map(framed, payloads)))

        assert [await client.receive_frame() for _ in payloads] == payloads


async def test_a_reply_that_comes_later_does_not_hold_up_the_next_request_but_its_reply() -> None:
    begun: list[bytes] = []
    gate = asyncio.Event()

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        begun.append(bytes(frame))
        if frame != b"slow":
            return [framed(bytes(frame))]

        async def later() -> list[Part] | None:
            await gate.wait()
            return [framed(b"slow")]

        return later()

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"slow") + framed(b"quick"))
        await until(lambda: begun == [b"slow", b"quick"])
        first = asyncio.ensure_future(client.receive_frame())
        await asyncio.sleep(0.02)
        assert not first.done()

        gate.set()

        assert await first == b"slow"
        assert await client.receive_frame() == b"quick"


async def test_replies_that_become_ready_at_the_same_time_leave_in_one_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like answers that waited for one sync: a send for each would cost as much as its request."""
    begun: list[bytes] = []
    gate = asyncio.Event()

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        begun.append(bytes(frame))

        async def later() -> list[Part] | None:
            await gate.wait()
            return [framed(bytes(frame))]

        return later()

    sends = counted_sends(monkeypatch)
    async with serving(handle) as server:
        client = await server.connect()
        wanted = [b"first", b"second", b"third"]
        client.send_bytes(b"".join(map(framed, wanted)))
        await until(lambda: begun == wanted)

        gate.set()

        assert [await client.receive_frame() for _ in wanted] == wanted
    assert len(sends) == 1


def counted_sends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each send adds the bytes that it is to send.

    However slow the machine is: no slice of the loop ends in between.
    """
    monkeypatch.setattr(turns, "SLICE_SECONDS", 60.0)
    sends: list[int] = []
    send_buffers, send_alone = Outbox._send_buffers, Outbox._send_alone

    def count(outbox: Outbox) -> None:
        sends.append(outbox.pending_bytes)
        send_buffers(outbox)

    def count_alone(outbox: Outbox, answer: bytes | bytearray, *, is_late: bool) -> None:
        sends.append(len(answer))
        send_alone(outbox, answer, is_late=is_late)

    monkeypatch.setattr(Outbox, "_send_buffers", count)
    monkeypatch.setattr(Outbox, "_send_alone", count_alone)
    return sends


async def test_small_replies_to_requests_that_came_together_leave_in_one_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sends = counted_sends(monkeypatch)
    async with serving(echo) as server:
        client = await server.connect()
        wanted = [b"first", b"second", b"third"]
        client.send_bytes(b"".join(map(framed, wanted)))

        assert [await client.receive_frame() for _ in wanted] == wanted
    assert len(sends) == 1


async def test_small_reply_does_not_wait_for_a_request_behind_it_that_waits() -> None:
    gate = asyncio.Event()

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        if frame == b"slow":
            await gate.wait()
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"quick") + framed(b"slow"))

        assert await client.receive_frame() == b"quick"

        gate.set()
        assert await client.receive_frame() == b"slow"


async def test_large_reply_is_sent_before_the_next_request_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sends = counted_sends(monkeypatch)
    sent_before: list[int] = []

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        sent_before.append(len(sends))
        return [framed(bytes(SENT_TOGETHER_BYTES_MAX))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"first") + framed(b"second"))
        await client.receive_frame()
        await client.receive_frame()
    assert sent_before == [0, 1]


async def test_a_request_starts_only_when_its_predecessor_has_returned() -> None:
    running = 0
    most = 0

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"x") * 20)
        for _ in range(20):
            await client.receive_frame()
    assert most == 1


async def test_reading_pauses_while_too_many_requests_are_in_flight() -> None:
    begun = 0
    gate = asyncio.Event()

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        nonlocal begun
        begun += 1

        async def later() -> list[Part] | None:
            await gate.wait()
            return [framed(b"done")]

        return later()

    async with serving(handle, in_flight_requests_max=3) as server:
        client = await server.connect()
        for _ in range(3):
            client.send_frame(b"x")
        await until(lambda: begun == 3)
        client.send_frame(b"x")
        await asyncio.sleep(0.03)
        assert begun == 3

        gate.set()

        for _ in range(4):
            assert await client.receive_frame() == b"done"


async def test_reading_pauses_while_all_requests_together_hold_too_many_bytes() -> None:
    begun: list[int] = []
    gate = asyncio.Event()

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        begun.append(connection.client_port)
        await gate.wait()
        return [framed(b"done")]

    async with serving(handle, request_bytes_max=1000) as server:
        clients = [await server.connect() for _ in range(3)]
        clients[0].send_frame(bytes(1000))
        await until(lambda: len(begun) == 1)
        for client in clients[1:]:
            client.send_frame(bytes(10))
            client.send_frame(bytes(10))
        await asyncio.sleep(0.03)
        assert server.shared.memory.held_bytes <= 1000 + 4 * 10

        gate.set()

        await clients[0].receive_frame()
        for client in clients[1:]:
            assert await client.receive_frame() == b"done"
            assert await client.receive_frame() == b"done"
        assert server.shared.memory.held_bytes == 0


async def test_a_client_that_does_not_read_is_asked_for_nothing_more() -> None:
    answered = 0

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        nonlocal answered
        answered += 1
        return [framed(bytes(1 << 20))]

    async with serving(handle, outbox_bytes_max=1 << 20) as server:
        client = await RawClient.connect("127.0.0.1", server.port, limit=1000)
        server.clients.append(client)
        client.send_bytes(framed(b"x") * 60)
        await until(lambda: answered > 0)
        await asyncio.sleep(0.1)
        (connection,) = server.shared.connections
        assert answered < 20
        assert connection._outbox is not None
        assert connection._outbox.pending_bytes < 3 << 20

        for _ in range(60):
            assert len(await client.receive_frame()) == 1 << 20
        assert answered == 60


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative_size"),
        pytest.param(struct.pack(">i", (2 << 30) - 1), id="size_of_2_gib"),
        pytest.param(struct.pack(">i", 1001) + b"x", id="one_byte_too_large"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    ],
)
async def test_a_stream_that_is_not_frames_closes_that_connection_only(data: bytes) -> None:
    async with serving(echo, frame_bytes_max=1000) as server:
        other, client = await server.connect(), await server.connect()
        client.send_bytes(data)

        assert await client.is_closed()
        await until(lambda: server.counts == (1, 1, 0))
        other.send_frame(bytes(1000))
        assert await other.receive_frame() == bytes(1000)


async def test_a_request_that_is_not_one_closes_the_connection() -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        raise DecodeError("nonsense")

    async with serving(handle) as server:
        client = await server.connect()
        client.send_frame(b"nonsense")
        assert await client.is_closed()
        await until(lambda: server.counts == (0, 1, 0))


async def test_an_unexpected_exception_closes_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        raise ZeroDivisionError

    async with serving(handle) as server:
        client = await server.connect()
        client.send_frame(b"x")
        assert await client.is_closed()
    assert "ZeroDivisionError" in caplog.text


async def test_a_request_without_a_reply_does_not_hold_up_the_next_reply() -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        return None if frame == b"acks=0" else [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"acks=0") + framed(b"next"))
        assert await client.receive_frame() == b"next"


async def test_a_handler_can_answer_by_closing() -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        raise CloseConnection("acks=0 produce failed")

    async with serving(handle) as server:
        client = await server.connect()
        client.send_frame(b"x")
        assert await client.is_closed()
        await until(lambda: server.counts == (0, 0, 0))


async def test_requests_received_before_the_client_left_are_carried_out() -> None:
    done: list[bytes] = []

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        await asyncio.sleep(0.001)
        done.append(bytes(frame))
        return [framed(b"x")]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(b"".join(framed(b"%d" % i) for i in range(20)))
        client.close()
        await until(lambda: len(done) == 20)
        await until(lambda: server.shared.memory.held_bytes == 0)


async def test_stopping_answers_what_was_received_and_then_closes() -> None:
    async def handle(frame: bytearray, connection: Connection) -> Reply:
        await asyncio.sleep(0.02)

        async def later() -> list[Part] | None:
            await asyncio.sleep(0.02)
            return [framed(bytes(frame))]

        return later()

    async with serving(handle) as server:
        client, idle = await server.connect(), await server.connect()
        client.send_bytes(framed(b"one") + framed(b"two"))
        await until(lambda: any(c._in_flight == 2 for c in server.shared.connections))

        await server.listeners.stop(grace_s=5)

        assert await client.receive_frame() == b"one"
        assert await client.receive_frame() == b"two"
        assert await client.is_closed()
        assert await idle.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect("127.0.0.1", server.port)
