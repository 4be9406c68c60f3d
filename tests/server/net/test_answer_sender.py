"""Which thread sends an answer: that depends on how many requests the previous turn of the loop had."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest import mock

import pytest

from server.net.answer_sender import TOGETHER_MIN, AnswerSender
from server.runtime.turns import Turns
from tests.harness.connection_server import until

BUSY = 20


@dataclass(eq=False)
class FakeSendThread:
    """A send thread that remembers what it was given, and how much of it when it was woken."""

    event: int = field(default_factory=lambda: os.eventfd(0))
    put_count: int = 0
    woken_at: list[int] = field(default_factory=list)
    is_full: bool = False
    is_closed: bool = False
    results: list[tuple[Owner, bytes, int]] = field(default_factory=list)

    def put(self, owner: Owner, descriptor: int, answer: bytes) -> int | None:
        del owner, descriptor, answer
        if self.is_full:
            return None
        self.put_count += 1
        return self.put_count

    def wake(self) -> None:
        self.woken_at.append(self.put_count)

    def withdraw(self, ticket: int) -> bytes:
        return b"answer %d" % ticket

    def fail(self, owner: Owner, rest: bytes, error: int = 0) -> None:
        self.results.append((owner, rest, error))
        os.eventfd_write(self.event, 1)

    def unsent(self) -> list[tuple[Owner, bytes, int]]:
        results, self.results = self.results, []
        return results

    def close(self) -> None:
        self.is_closed = True


@dataclass(eq=False)
class Owner:
    returned: list[tuple[bytes, int]] = field(default_factory=list)

    def not_sent(self, rest: bytes, error: int) -> None:
        self.returned.append((rest, error))


@pytest.fixture
async def thread() -> AsyncIterator[FakeSendThread]:
    thread = FakeSendThread()
    with mock.patch("server.net.answer_sender.SendThread", return_value=thread):
        yield thread
    os.close(thread.event)


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
async def sender(thread: FakeSendThread, turns: Turns) -> AnswerSender:
    del thread
    return AnswerSender(turns, loop=asyncio.get_running_loop())


@dataclass
class Load:
    """Requests of many connections, which all have their answers in the same turn of the loop."""

    turns: Turns
    sender: AnswerSender

    async def turn(self, requests: int, *, is_late: bool = False) -> list[int | None]:
        """Let the sender decide about the answers of one turn. Returns their tickets."""
        tickets = []
        for _ in range(requests):
            self.turns.received(asyncio.get_running_loop())
            tickets.append(self.sender.hand_over(Owner(), 7, b"answer", is_late=is_late))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tickets


@pytest.fixture
def load(turns: Turns, sender: AnswerSender) -> Load:
    return Load(turns, sender)


async def test_the_loop_sends_while_turns_have_few_requests(
    load: Load, thread: FakeSendThread
) -> None:
    for _ in range(20):
        assert await load.turn(TOGETHER_MIN - 1) == [None] * (TOGETHER_MIN - 1)
    assert thread.put_count == 0


async def test_the_thread_sends_when_the_previous_turn_had_many_requests(
    load: Load, thread: FakeSendThread
) -> None:
    assert await load.turn(BUSY) == [None] * BUSY
    assert None not in await load.turn(BUSY)
    assert None not in await load.turn(1)
    assert await load.turn(1) == [None]
    assert thread.put_count == BUSY + 1


async def test_the_thread_wakes_after_half_as_many_answers_and_at_the_end_of_the_turn(
    load: Load, thread: FakeSendThread
) -> None:
    await load.turn(BUSY)

    await load.turn(BUSY + 7)
    await load.turn(3)

    half = BUSY // 2
    assert thread.woken_at == [half, 2 * half, BUSY + 7, BUSY + 10]


async def test_late_answers_are_sent_by_the_loop(load: Load, thread: FakeSendThread) -> None:
    await load.turn(BUSY)
    assert await load.turn(BUSY, is_late=True) == [None] * BUSY
    assert None not in await load.turn(BUSY), "it is the requests of a turn that count"
    assert thread.put_count == BUSY


async def test_the_loop_sends_what_the_thread_has_no_room_for(
    load: Load, thread: FakeSendThread
) -> None:
    await load.turn(BUSY)
    thread.is_full = True
    assert await load.turn(BUSY) == [None] * BUSY


async def test_the_outbox_gets_back_what_was_not_sent(load: Load, thread: FakeSendThread) -> None:
    await load.turn(BUSY)
    await load.turn(1)
    owner = Owner()
    thread.fail(owner, b"rest")

    await until(lambda: owner.returned == [(b"rest", 0)])


async def test_the_end_of_a_turn_frees_the_slots_of_answers_that_are_sent(
    load: Load, thread: FakeSendThread
) -> None:
    await load.turn(BUSY)
    owner = Owner()
    thread.results.append((owner, b"rest", 0))

    await load.turn(1)

    assert owner.returned == [(b"rest", 0)], "`unsent` frees the slots, too"


async def test_an_outbox_that_fails_costs_the_others_nothing(
    load: Load, thread: FakeSendThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    del load
    broken, other = Owner(), Owner()
    monkeypatch.setattr(broken, "not_sent", mock.Mock(side_effect=ValueError("broken")))
    thread.fail(broken, b"rest")
    thread.fail(other, b"other rest")

    await until(lambda: other.returned == [(b"other rest", 0)])


async def test_withdrawing_returns_what_others_could_not_send_too(
    load: Load, thread: FakeSendThread
) -> None:
    await load.turn(BUSY)
    (ticket,) = await load.turn(1)
    owner = Owner()
    thread.results.append((owner, b"rest", 32))

    assert ticket is not None
    assert load.sender.withdraw(ticket) == b"answer 1"

    assert owner.returned == [(b"rest", 32)]


async def test_a_closed_sender_leaves_the_answers_to_the_loop(
    load: Load, thread: FakeSendThread
) -> None:
    await load.turn(BUSY)
    (ticket,) = await load.turn(1)
    owner = Owner()
    thread.results.append((owner, b"rest", 0))

    load.sender.close()
    load.sender.close()

    assert thread.is_closed
    assert owner.returned == [(b"rest", 0)]
    assert ticket is not None
    assert load.sender.withdraw(ticket) == b""
    for _ in range(3):
        assert await load.turn(BUSY) == [None] * BUSY


async def test_without_a_thread_the_loop_sends_and_one_warning_says_so(
    turns: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    full = mock.Mock(side_effect=OSError(24, "Too many open files"))
    with mock.patch("server.net.answer_sender.SendThread", full), caplog.at_level(logging.WARNING):
        load = Load(turns, AnswerSender(turns, loop=asyncio.get_running_loop()))
        for _ in range(3):
            assert await load.turn(BUSY) == [None] * BUSY
        load.sender.close()

    assert caplog.messages == [
        "the event loop sends all answers, which is slower: [Errno 24] Too many open files"
    ]
