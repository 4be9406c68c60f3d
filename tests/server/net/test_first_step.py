"""A request that meets no other one begins in the callback that received it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.net.connection import CloseConnection, Connection
from server.net.send_queue import Part
from server.net.shared import Reply
from server.runtime import turns
from tests.harness.connection_server import framed, serving, until
from tests.harness.raw_client import RawClient

LARGE = 1 << 16


def numbers_of_tasks(seen: list[bool]) -> Callable[[bytearray, Connection], Awaitable[Reply]]:
    """Returns a handler that notes whether each of its two steps runs in a task."""

    async def handle(frame: bytearray, _: Connection) -> Reply:
        seen.append(asyncio.current_task() is not None)
        if frame == b"two steps":
            await asyncio.sleep(0)
            seen.append(asyncio.current_task() is not None)
        return [framed(bytes(frame))]

    return handle


async def test_the_connections_task_runs_only_what_waits() -> None:
    seen: list[bool] = []
    async with serving(numbers_of_tasks(seen)) as server:
        client = await server.connect()
        for request, in_tasks in (
            (b"one step", [False]),
            (b"two steps", [False, True]),
            (b"queue it, because it usually waits", [True]),
        ):
            seen.clear()
            client.send_bytes(framed(request))
            assert await client.receive_frame() == request
            assert seen == in_tasks


async def test_a_request_behind_one_that_waits_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_SECONDS", 60.0)
    seen: list[bool] = []
    async with serving(numbers_of_tasks(seen)) as server:
        client = await server.connect()
        client.send_bytes(framed(b"one step") + framed(b"two steps") + framed(b"behind"))
        for request in (b"one step", b"two steps", b"behind"):
            assert await client.receive_frame() == request
    assert seen == [False, False, True, True]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [CloseConnection("a reason"), ValueError("a mistake")])
async def test_an_error_closes_the_connection_in_either_step(error: Exception, waits: bool) -> None:
    async def handle(frame: bytearray, _: Connection) -> Reply:
        if frame == b"good":
            return [framed(b"good")]
        if waits:
            await asyncio.sleep(0)
        raise error

    async with serving(handle) as server:
        client, other = await server.connect(), await server.connect()
        client.send_bytes(framed(b"bad"))
        assert await client.is_closed()
        other.send_bytes(framed(b"good"))
        assert await other.receive_frame() == b"good"
        await until(lambda: server.shared.memory.held_bytes == 0)


async def test_a_request_sees_the_exception_of_what_it_waited_for() -> None:
    awaited: list[asyncio.Future[None]] = []

    async def handle(_: bytearray, __: Connection) -> Reply:
        awaited.append(asyncio.get_running_loop().create_future())
        try:
            await awaited[0]
        except KeyError:
            return [framed(b"seen")]
        raise AssertionError("nothing was raised")

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"request"))
        await until(lambda: bool(awaited))
        await asyncio.sleep(0)
        awaited[0].set_exception(KeyError("missing"))
        assert await client.receive_frame() == b"seen"


async def test_requests_of_two_connections_may_wait_for_the_same_future() -> None:
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting: list[bytes] = []

    async def handle(frame: bytearray, _: Connection) -> Reply:
        waiting.append(bytes(frame))
        if len(waiting) == 2:
            asyncio.get_running_loop().call_later(0.001, shared.set_result, None)
        await shared
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        clients = [await server.connect() for _ in range(2)]
        await until(lambda: len(server.shared.connections) == 2)
        connections = list(server.shared.connections)
        await until(lambda: all(each.is_free for each in connections))
        for number, connection in enumerate(connections):
            data = framed(b"request %d" % number)
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
        assert sorted([await client.receive_frame() for client in clients]) == [
            b"request 0",
            b"request 1",
        ]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_whose_future_was_cancelled_closes_the_connection_and_holds_nothing(
    waits: bool,
) -> None:
    async def handle(_: bytearray, __: Connection) -> Reply:
        if waits:
            await asyncio.sleep(0)
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled
        return None

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"request"))
        assert await client.is_closed()
        await until(lambda: server.shared.memory.held_bytes == 0)


async def test_a_pause_begins_with_the_next_request() -> None:
    begun: list[bytes] = []

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        begun.append(bytes(frame))
        if frame == b"too much":
            connection.throttle(60)
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"too much") + framed(b"next"))
        assert await client.receive_frame() == b"too much"
        (connection,) = server.shared.connections
        for _ in range(10):
            await asyncio.sleep(0)
        assert begun == [b"too much"]
        connection._mute.end()
        assert await client.receive_frame() == b"next"


async def test_behind_a_large_answer_the_next_request_waits_until_the_peer_takes_it() -> None:
    begun: list[bytes] = []

    async def handle(frame: bytearray, _: Connection) -> Reply:
        begun.append(bytes(frame))
        return [framed(bytes(64 << 20) if frame == b"large" else bytes(frame))]

    async with serving(handle, outbox_bytes_max=1) as server:
        client = await RawClient.connect("127.0.0.1", server.port, limit=1000)
        server.clients.append(client)
        client.send_bytes(framed(b"large") + framed(b"next"))
        await until(lambda: b"large" in begun)
        for _ in range(10):
            await asyncio.sleep(0)
        assert begun == [b"large"]
        assert len(await client.receive_frame()) == 64 << 20
        assert await client.receive_frame() == b"next"


async def test_a_connection_that_is_finished_by_its_first_step_answers_and_closes() -> None:
    async def handle(_: bytearray, connection: Connection) -> Reply:
        connection.finish()
        return [framed(b"refused")]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"login") + framed(b"dropped"))
        assert await client.receive_frame() == b"refused"
        assert await client.is_closed()


async def test_a_stop_waits_for_a_request_that_has_begun() -> None:
    gate, begun = asyncio.Event(), list[bytes]()

    async def handle(frame: bytearray, _: Connection) -> Reply:
        begun.append(bytes(frame))
        await gate.wait()
        return [framed(bytes(frame))]

    async with serving(handle) as server:
        client = await server.connect()
        client.send_bytes(framed(b"begun"))
        await until(lambda: bool(begun))
        (connection,) = server.shared.connections
        stopping = asyncio.create_task(connection.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.set()
        assert await client.receive_frame() == b"begun"
        await stopping


KINDS = (
    "at once", "waits", "waits twice", "later", "later and waits", "none", "large", "slice", "throttle",
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=30),
    seed=st.integers(min_value=0, max_value=1 << 32),
)
def test_requests_of_every_kind_start_one_after_the_other_and_are_answered_in_order(
    kinds: list[str], seed: int
) -> None:
    asyncio.run(play(kinds, random.Random(seed)))


async def play(kinds: list[str], choices: random.Random) -> None:
    """Send requests, however they are cut into pieces, and compare what happens with the model."""
    events: list[tuple[str, int]] = []

    async def handle(frame: bytearray, connection: Connection) -> Reply:
        number, kind = int(frame[:4]), frame[4:].decode()
        events.append(("begin", number))
        for _ in range(kind.count("waits") + kind.count("twice")):
            await asyncio.sleep(0)
        if kind == "slice":
            assert connection._shortcuts is not None
            connection._pace._until_s = connection._shortcuts._pace._until_s = 0
        elif kind == "throttle":
            connection.throttle(0.001)
        events.append(("end", number))
        answer: list[Part] = [framed(bytes(frame) + bytes(LARGE if kind == "large" else 0))]
        if not kind.startswith("later"):
            return None if kind == "none" else answer

        async def later() -> list[Part] | None:
            await asyncio.sleep(0)
            return answer

        return later()

    async with serving(handle) as server:
        client = await server.connect()
        requests = [b"%04d%s" % (number, kind.encode()) for number, kind in enumerate(kinds)]
        stream = memoryview(b"".join(map(framed, requests)))
        while stream:
            size = choices.randint(1, 60)
            client.send_bytes(bytes(stream[:size]))
            stream = stream[size:]
            if choices.random() < 0.3:
                await asyncio.sleep(0)
        for request in requests:
            if not request.endswith(b"none"):
                answer = await client.receive_frame()
                assert answer[: len(request)] == request
        await until(lambda: len(events) == 2 * len(requests))
        assert events == [
            (event, number) for number in range(len(requests)) for event in ("begin", "end")
        ]
        await until(lambda: server.shared.memory.held_bytes == 0)
        assert server.shared.answers.held_bytes == 0
