"""Decides which thread sends a small answer: the loop's, at once, or the send thread.

A third of a small request's time is the system call that sends its answer. The send thread makes it
while the loop runs the next request, but to wake the thread takes as long as to send one answer. So it
pays only while many connections get answers in the same turn of the loop; the previous turn tells
whether they do.

    few answers in the previous turn     the loop sends
    a late answer                        the loop sends: it has nothing else to do in this turn
    else                                 the thread sends; it wakes after half as many answers as the
                                         previous turn had, and at the end of the turn

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
"""How many answers are worth waking the thread."""

SLOTS = 1024
"""How many answers the thread may have. They take a mebibyte in all, and do not count as memory for
answers."""


@loop_thread
class AnswerSender:
    """The send thread of a broker, and how many answers each turn of the loop has."""

    __slots__ = (
        "_answers", "_is_closed", "_loop", "_put_since_wake", "_thread", "_together_min", "_turn",
        "_turns", "_wakes_at_end", "answers_before",
    )  # fmt: skip

    def __init__(
        self, turns: Turns, *, loop: asyncio.AbstractEventLoop, together_min: int = TOGETHER_MIN
    ) -> None:
        """With `together_min` 0, the thread sends every answer that is not late."""
        # Constant after construction
        self._turns = turns
        self._loop = loop
        self._together_min = together_min
        # State: the thread starts when it is first worth it. If answers were put since it was last
        # woken, it wakes at the end of the turn.
        self._thread: SendThread | None = None
        self._is_closed = False
        self._put_since_wake = 0
        self._wakes_at_end = False
        self._turn = -1
        self._answers = 0
        self.answers_before = 0
        """How many answers the last turn with answers had, before this one. It may be long ago."""

    def hand_over(
        self, outbox: Sending, descriptor: int, answer: bytes | bytearray, *, is_late: bool
    ) -> int | None:
        """Let the thread send an answer to this socket, if that is worth it.

        Returns a ticket, which the caller withdraws before it sends anything else on the socket and
        before the socket is closed; or None: the caller sends.
        """
        # Nearly every answer passes here, so this is written without further calls.
        turn = self._turns.number(self._loop)
        if turn == self._turn:
            self._answers += 1
        else:
            self._turn = turn
            self.answers_before, self._answers = self._answers, 1
            if self._thread is not None:
                _return_unsent(self._thread)
        if self.answers_before < self._together_min or is_late or self._is_closed:
            return None
        return self._put(outbox, descriptor, answer)

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
        self._is_closed = True
        if self._thread is not None:
            self._loop.remove_reader(self._thread.event)
            self._thread.close()
            _return_unsent(self._thread)
            self._thread = None

    def _put(self, outbox: Sending, descriptor: int, answer: bytes | bytearray) -> int | None:
        if self._thread is None:
            self._thread = self._started()
            if self._thread is None:
                return None
        ticket = self._thread.put(outbox, descriptor, answer)
        if ticket is not None:
            self._put_since_wake += 1
            if self._put_since_wake >= max(self._together_min, self.answers_before // 2):
                self._wake()
            elif not self._wakes_at_end:
                self._wakes_at_end = True
                call_soon("waking the send thread", self._wake_at_end)
        return ticket

    def _started(self) -> SendThread | None:
        try:
            thread = SendThread(SLOTS)
        except (OSError, RuntimeError, MemoryError) as error:
            self._is_closed = True
            _log.warning("the event loop sends all answers, which is slower: %s", error)
            return None
        self._loop.add_reader(thread.event, self._on_event)
        return thread

    def _wake(self) -> None:
        self._put_since_wake = 0
        if self._thread is not None:
            self._thread.wake()

    def _wake_at_end(self) -> None:
        self._wakes_at_end = False
        self._wake()

    def _on_event(self) -> None:
        if self._thread is not None:
            os.eventfd_read(self._thread.event)
            _return_unsent(self._thread)


def _return_unsent(thread: SendThread) -> None:
    """Give the outboxes what the kernel did not take of their answers."""
    for outbox, rest, error in thread.unsent():
        with guarded("an answer that was not sent"):
            outbox.not_sent(rest, error)
