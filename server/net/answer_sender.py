"""Decides which thread sends a small answer: the loop's, at once, or the send thread.

Half of a small request's time is the system call that sends its answer. The send thread makes it while
the loop runs the next request, but to wake the thread takes as long as to send one answer. So it pays
only while many connections get answers in the same turn of the loop; the previous turn tells whether
they do.

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
from server.runtime.tasks import call_soon
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
        "_answers", "_asleep", "_is_closed", "_is_waking", "_loop", "_thread", "_together_min", "_turn",
        "_turns", "answers_before",
    )  # fmt: skip

    def __init__(
        self, turns: Turns, *, loop: asyncio.AbstractEventLoop, together_min: int = TOGETHER_MIN
    ) -> None:
        """With `together_min` 0, the thread sends every answer that is not late."""
        # Constant after construction
        self._turns = turns
        self._loop = loop
        self._together_min = together_min
        # State: the thread starts when it is first worth it. _asleep answers were put since it was
        # last woken; if there are any, it will be woken at the end of the turn.
        self._thread: SendThread | None = None
        self._is_closed = False
        self._asleep = 0
        self._is_waking = False
        self._turn = -1
        self._answers = 0
        self.answers_before = 0
        """How many small answers the last turn had before this one."""

    def hand_over(
        self, outbox: Sending, descriptor: int, answer: bytes | bytearray, *, is_late: bool
    ) -> int | None:
        """Let the thread send an answer to this socket, if that is worth it.

        Returns a ticket, which the caller withdraws before it sends anything else on the socket and
        before the socket is closed; or None: the caller sends.
        """
        turn = self._turns.number(self._loop)
        if turn != self._turn:
            self._begin_turn(turn)
        self._answers += 1
        if self.answers_before < self._together_min or is_late or self._thread is None:
            return None
        ticket = self._thread.put(outbox, descriptor, answer)
        if ticket is not None:
            self._asleep += 1
            if self._asleep >= max(self._together_min, self.answers_before // 2):
                self._wake()
            elif not self._is_waking:
                self._is_waking = True
                call_soon("waking the send thread", self._wake_at_end)
        return ticket

    def withdraw(self, ticket: int) -> bytes:
        """Take an answer back. Returns it, if the thread has not begun to send it. If it has, the
        outbox has got back what the kernel did not take."""
        if self._thread is None:
            return b""  # It sent everything before it stopped.
        answer = self._thread.withdraw(ticket)
        self._return_unsent()
        return answer

    def close(self) -> None:
        """Send what the thread has, and stop it. From now on the callers of `hand_over` send."""
        self._is_closed = True
        if self._thread is not None:
            self._loop.remove_reader(self._thread.event)
            self._thread.close()
            self._thread = None

    def _begin_turn(self, turn: int) -> None:
        self._turn = turn
        self.answers_before, self._answers = self._answers, 0
        if self._thread is not None:
            self._return_unsent()
        elif self.answers_before >= self._together_min and not self._is_closed:
            self._start()

    def _start(self) -> None:
        try:
            self._thread = SendThread(SLOTS)
        except (OSError, RuntimeError) as error:
            self._is_closed = True
            _log.warning("the event loop sends all answers, which is slower: %s", error)
            return
        self._loop.add_reader(self._thread.event, self._on_event)

    def _wake(self) -> None:
        self._asleep = 0
        if self._thread is not None:
            self._thread.wake()

    def _wake_at_end(self) -> None:
        self._is_waking = False
        self._wake()

    def _on_event(self) -> None:
        if self._thread is not None:
            os.eventfd_read(self._thread.event)
            self._return_unsent()

    def _return_unsent(self) -> None:
        """Give the outboxes what the kernel did not take of their answers."""
        if self._thread is not None:
            for outbox, rest, error in self._thread.unsent():
                outbox.not_sent(rest, error)
