"""Replies leave in the order of their requests, and those that are ready together in one call."""

from __future__ import annotations

import asyncio

import pytest

from server.net.limits import AnswerMemory
from server.net.replies import SENT_TOGETHER_BYTES_MAX, Answer, Replies, is_small
from server.net.send_queue import Part


class Outbox:
    """Notes what each call sends."""

    def __init__(self) -> None:
        self.sent: list[list[Part]] = []
        self.are_late: list[bool] = []

    def write(self, parts: list[Part], *, is_late: bool) -> None:
        self.sent.append(parts)
        self.are_late.append(is_late)


class Queue:
    """A queue of replies to requests of 10 bytes each."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.memory = AnswerMemory(bytes_max=1000)
        self.left: list[tuple[int, int]] = []
        self.replies = Replies(
            self.outbox,  # type: ignore[arg-type]
            self.memory,
            lambda *sent: self.left.append(sent),
            loop=asyncio.get_running_loop(),
        )

    def request(self) -> Answer:
        answer = Answer(10)
        self.replies.expect(answer)
        return answer


async def test_a_reply_waits_for_those_of_earlier_requests_and_then_leaves_with_them() -> None:
    queue = Queue()
    first, second, third = queue.request(), queue.request(), queue.request()

    queue.replies.fill(second, [b"2"])
    queue.replies.send_ready()
    assert queue.outbox.sent == []
    assert queue.left == [(0, 0)]

    queue.replies.fill(first, [b"1"])
    queue.replies.send_ready()
    assert queue.outbox.sent == [[b"1", b"2"]]
    assert queue.left[1:] == [(2, 20)]

    queue.replies.fill(third, [b"3"])
    queue.replies.send_ready()
    assert queue.outbox.sent[1:] == [[b"3"]]


async def test_a_request_without_a_reply_is_counted_and_delays_nobody() -> None:
    queue = Queue()
    silent, answered = queue.request(), queue.request()

    queue.replies.fill(silent, None)
    queue.replies.fill(answered, [b"x"])
    queue.replies.send_ready()

    assert queue.outbox.sent == [[b"x"]]
    assert queue.left == [(2, 20)]


async def test_replies_that_become_ready_in_one_turn_of_the_loop_share_one_call() -> None:
    queue = Queue()
    answers = [queue.request() for _ in range(3)]

    for answer in answers:
        queue.replies.fill(answer, [b"x"])
        queue.replies.send_soon()
    assert queue.outbox.sent == []
    await asyncio.sleep(0)

    assert queue.outbox.sent == [[b"x", b"x", b"x"]]
    assert queue.left == [(3, 30)]


async def test_replies_are_late_that_are_sent_at_the_end_of_the_turn() -> None:
    queue = Queue()
    answers = [queue.request() for _ in range(3)]

    queue.replies.fill(answers[0], [b"0"])
    queue.replies.send_soon()
    queue.replies.send_ready()
    queue.replies.fill(answers[1], [b"1"])
    await asyncio.sleep(0)
    queue.replies.fill(answers[2], [b"2"])
    queue.replies.send_ready()

    assert queue.outbox.sent == [[b"0"], [b"1"], [b"2"]]
    assert queue.outbox.are_late == [False, True, False]


async def test_a_reply_counts_as_memory_as_soon_as_it_is_ready() -> None:
    queue = Queue()
    queue.request()
    later = queue.request()

    queue.replies.fill(later, [b"x" * 100])

    assert queue.memory.held_bytes == 100


async def test_after_the_last_reply_the_connection_is_not_called_again() -> None:
    queue = Queue()

    queue.replies.close()
    queue.replies.send_ready()

    assert queue.left == []


@pytest.mark.parametrize(
    ("reply", "may_wait"),
    [
        (None, True),
        ([b"x" * SENT_TOGETHER_BYTES_MAX], True),
        ([b"x" * (SENT_TOGETHER_BYTES_MAX + 1)], False),
        ([b"x", b"y"], False),
    ],
)
def test_only_a_small_reply_may_wait_for_the_next_one(
    reply: list[Part] | None, may_wait: bool
) -> None:
    assert is_small(reply) is may_wait
