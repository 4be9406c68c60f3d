"""Decides which thread sends a small answer: the loop's, at once, or the send thread.

A third of a small request's time is the system call that sends its answer. The send thread makes it
while the loop runs the next request, but to wake the thread takes as long as to send one answer. So it
pays only while many sockets bring requests in the same turn of the loop; the previous turn tells whether
they do.

    few requests in the previous turn    the loop sends
    a late answer                        the loop sends: it has nothing else to do in this turn
    else                                 the thread sends; it wakes after half as many answers as the
                                         previous turn had requests, and at the end of the turn

Waking it for each answer would cost more than it gains, and at the end of the turn alone, the loop and
the thread would take turns.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from server.net.send_thread import SendThread
from server.runtime.tasks import call_soon, guarded
from server.runtime.turns import Turns
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.net.send_thread import Sending

_log = logging.getLogger("server.net.answer_sender")

TOGETHER_MIN = 4
"""After a turn with fewer requests, the loop sends the answers."""

SLOTS = 1024
"""How many answers the thread may have. They take a mebibyte in all, and do not count as memory for
answers."""


@loop_thread
class AnswerSender:
    """The send thread of a broker, and when it has something to send."""

    __slots__ = ("_loop", "_put_since_wake", "_thread", "_together_min", "_turns", "_wakes_at_end")

    def __init__(
        self, turns: Turns, *, loop: asyncio.AbstractEventLoop, together_min: int = TOGETHER_MIN
    ) -> None:
        """Start the thread. With `together_min` 0, it sends every answer that is not late."""
        # Constant after construction
        self._turns = turns
        self._loop = loop
        self._together_min = together_min
        # State: without a thread, the loop sends everything. If answers were put in this turn, the
        # thread wakes at its end.
        self._thread = _started_thread()
        self._put_since_wake = 0
        self._wakes_at_end = False
        if self._thread is not None:
            loop.add_reader(self._thread.event, self._on_event)

    def hand_over(
        self, outbox: Sending, descriptor: int, answer: bytes | bytearray, *, is_late: bool
    ) -> int | None:
        """Let the thread send an answer to this socket, if that is worth it.

        Returns a ticket, which the caller withdraws before it sends anything else on the socket and
        before the socket is closed; or None: the caller sends.
        """
        # Nearly every answer passes here.
        requests = self._turns.receives_before
        if is_late or requests < self._together_min or self._thread is None:
            return None
        ticket = self._thread.put(outbox, descriptor, answer)
        if ticket is not None:
            self._put_since_wake += 1
            if self._put_since_wake >= max(self._together_min, requests // 2):
                self._wake()
            if not self._wakes_at_end:
                self._wakes_at_end = True
                call_soon("waking the send thread", self._wake_at_end)
        return ticket

    def withdraw(self, ticket: int) -> bytes:
        """Take an answer back. Returns it, if the thread has not begun to send it. If it has, the
        outbox has got back what the kernel did not take."""
        if self._thread is None:
            return b""  # `close` has sent it, or returned what the kernel did not take.
        answer = self._thread.withdraw(ticket)
        _return_unsent(self._thread)
        return answer

    def close(self) -> None:
        """Send what the thread has, and stop it. From now on the callers of `hand_over` send."""
        if self._thread is not None:
            self._loop.remove_reader(self._thread.event)
            self._thread.close()
            _return_unsent(self._thread)
            self._thread = None

    def _wake(self) -> None:
        self._put_since_wake = 0
        if self._thread is not None:
            self._thread.wake()

    def _wake_at_end(self) -> None:
        self._wakes_at_end = False
        self._wake()
        if self._thread is not None:
            # Frees the slots of the answers that are sent already, of earlier turns above all.
            _return_unsent(self._thread)

    def _on_event(self) -> None:
        if self._thread is not None:
            os.eventfd_read(self._thread.event)
            _return_unsent(self._thread)


def _started_thread() -> SendThread | None:
    try:
        return SendThread(SLOTS)
    except (OSError, RuntimeError, MemoryError) as error:
        _log.warning("the event loop sends all answers, which is slower: %s", error)
        return None


def _return_unsent(thread: SendThread) -> None:
    """Give the outboxes what the kernel did not take of their answers."""
    for outbox, rest, error in thread.unsent():
        with guarded("an answer that was not sent"):
            outbox.not_sent(rest, error)
