"""The send thread, with a stand-in for the system's `send` that says what the kernel takes, and when."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from server.net.send_thread import ANSWER_BYTES_MAX, SendThread
from tests.harness.kernel_send import PATIENCE_SECONDS, KernelSend


@dataclass(eq=False)
class Owner:
    name: str = ""

    def not_sent(self, rest: bytes, error: int) -> None:
        raise AssertionError("the thread only names its owners")


OWNER = Owner()


@pytest.fixture
def kernel() -> KernelSend:
    return KernelSend()


@pytest.fixture
def thread(kernel: KernelSend) -> Iterator[SendThread]:
    thread = SendThread(8, kernel.address)
    yield thread
    kernel.may_take.set()
    thread.close()


def put(thread: SendThread, answer: bytes, descriptor: int = 7, owner: Owner = OWNER) -> int:
    ticket = thread.put(owner, descriptor, answer)
    assert ticket is not None
    return ticket


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.0005)


def is_event_set(thread: SendThread) -> bool:
    return bool(select.select([thread.event], [], [], 0)[0])


def test_answers_are_sent_in_order_once_the_thread_is_woken(
    thread: SendThread, kernel: KernelSend
) -> None:
    tickets = [put(thread, b"%d" % number, descriptor=number) for number in range(8)]
    assert kernel.taken == []

    thread.wake()

    until(lambda: len(kernel.taken) == 8)
    assert kernel.taken == [(number, b"%d" % number) for number in range(8)]
    assert [thread.withdraw(ticket) for ticket in tickets] == [b""] * 8
    assert thread.unsent() == []
    assert not is_event_set(thread)


def test_a_bytearray_is_copied(thread: SendThread, kernel: KernelSend) -> None:
    answer = bytearray(b"answer")
    ticket = thread.put(OWNER, 7, answer)
    answer[:] = b"reused"

    thread.wake()

    assert ticket is not None
    until(lambda: kernel.taken != [])
    assert kernel.taken == [(7, b"answer")]


def test_a_full_ring_takes_answers_again_once_the_results_are_known(
    thread: SendThread, kernel: KernelSend
) -> None:
    for number in range(30):
        until(lambda: (thread.unsent(), thread.put(OWNER, 7, b"%d" % number))[1] is not None)  # noqa: B023
        if number >= 7:
            thread.wake()
    until(lambda: len(kernel.taken) == 30)

    assert [answer for _, answer in kernel.taken] == [b"%d" % number for number in range(30)]


def test_answers_that_do_not_fit_are_left_to_the_caller(thread: SendThread) -> None:
    assert thread.put(OWNER, 7, b"") is None
    assert thread.put(OWNER, 7, bytes(ANSWER_BYTES_MAX + 1)) is None
    for _ in range(thread.slots):
        put(thread, bytes(ANSWER_BYTES_MAX))
    assert thread.put(OWNER, 7, b"one more") is None


def test_what_was_not_sent_comes_back_with_its_owner_and_the_error(
    thread: SendThread, kernel: KernelSend
) -> None:
    kernel.results.extend([3, -errno.ECONNRESET, 6, -errno.EAGAIN, 0])
    owners = [Owner(name) for name in "abcde"]
    tickets = [put(thread, b"answer", owner=owner) for owner in owners]

    thread.wake()

    until(lambda: not kernel.results)
    assert thread.withdraw(tickets[-1]) == b""
    assert is_event_set(thread)
    assert thread.unsent() == [
        (owners[0], b"wer", 0),
        (owners[1], b"answer", errno.ECONNRESET),
        (owners[3], b"answer", errno.EAGAIN),
        (owners[4], b"answer", 0),
    ]
    assert thread.unsent() == []


def test_an_answer_that_is_withdrawn_in_time_is_not_sent(
    thread: SendThread, kernel: KernelSend
) -> None:
    put(thread, b"first")
    second = put(thread, b"second", descriptor=9)
    put(thread, b"third")

    assert thread.withdraw(second) == b"second"

    thread.wake()
    until(lambda: len(kernel.taken) == 2)
    assert kernel.taken == [(7, b"first"), (7, b"third")]
    assert thread.unsent() == []


def test_withdrawing_waits_for_an_answer_that_is_being_sent(
    thread: SendThread, kernel: KernelSend
) -> None:
    """Afterwards its descriptor may be closed."""
    kernel.may_take.clear()
    kernel.results.append(2)
    ticket = put(thread, b"answer")
    behind = put(thread, b"behind")
    thread.wake()
    assert kernel.has_begun.wait(PATIENCE_SECONDS)
    release = threading.Timer(0.02, kernel.may_take.set)
    release.start()

    assert thread.withdraw(ticket) == b""

    assert kernel.taken[0] == (7, b"an")
    assert thread.unsent()[0] == (OWNER, b"swer", 0)
    thread.withdraw(behind)
    release.join()


def test_closing_sends_what_was_put(thread: SendThread, kernel: KernelSend) -> None:
    for number in range(5):
        put(thread, b"%d" % number)

    thread.close()
    thread.close()

    assert [answer for _, answer in kernel.taken] == [b"0", b"1", b"2", b"3", b"4"]
    assert not any(each.name == "send" for each in threading.enumerate())


def test_a_descriptor_that_is_no_socket_is_an_error() -> None:
    """With the system's own `send`."""
    thread = SendThread(8)
    read, write = os.pipe()
    try:
        put(thread, b"answer", descriptor=write)
        thread.wake()
        until(lambda: is_event_set(thread))
        assert thread.unsent() == [(OWNER, b"answer", errno.ENOTSOCK)]
    finally:
        thread.close()
        os.close(read)
        os.close(write)


def test_a_full_socket_does_not_hold_the_thread() -> None:
    thread = SendThread(8)
    ours, theirs = socket.socketpair()
    others, receiver = socket.socketpair()
    try:
        ours.setblocking(False)
        with suppress(BlockingIOError):
            while ours.send(bytes(4096)):
                pass
        ours.setblocking(True)
        put(thread, b"answer", descriptor=ours.fileno())
        put(thread, b"next", descriptor=others.fileno())
        thread.wake()
        assert receiver.recv(10) == b"next"
        until(lambda: is_event_set(thread))
        assert thread.unsent() == [(OWNER, b"answer", errno.EAGAIN)]
    finally:
        thread.close()
        for each in (ours, theirs, others, receiver):
            each.close()
