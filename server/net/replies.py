"""The replies of one connection: they leave in the order of their requests, several in one call.

A reply that is ready waits for those of earlier requests. A small one may also wait for the next one,
while more requests are queued: a send costs as much as parsing a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from server.net.limits import AnswerMemory
from server.net.send_queue import Part, SendQueue, buffered_size
from storage.threads import loop_thread

SENT_TOGETHER_BYTES_MAX = 1 << 10
"""The largest reply that waits for the next one, while more requests are queued."""


class Answer:
    """One request's slot in the queue of replies, filled when the reply is ready."""

    __slots__ = ("is_ready", "parts", "request_bytes")

    def __init__(self, request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self.is_ready = False
        self.parts: list[Part] | None = None


@loop_thread
class Replies:
    """The queue of replies between a connection's requests and its outbox."""

    __slots__ = (
        "_answers",
        "_is_sending_soon",
        "_loop",
        "_memory",
        "_on_sent",
        "_outbox",
        "expect",
    )

    def __init__(
        self,
        outbox: SendQueue,
        memory: AnswerMemory,
        on_sent: Callable[[int, int], None],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """
        Args:
            memory: counts the bytes of replies until they are sent.
            on_sent: called when replies have left for the outbox, with their number and the bytes of
                their requests; also if there were none.
        """
        # Constant after construction
        self._outbox = outbox
        self._memory = memory
        self._on_sent = on_sent
        self._loop = loop
        # State
        self._answers: deque[Answer] = deque()
        self._is_sending_soon = False
        self.expect: Callable[[Answer], None] = self._answers.append
        """Gives the request that starts now its place in the order."""

    def fill(self, answer: Answer, parts: list[Part] | None) -> None:
        """Store a reply until the earlier ones are sent; None if the request has none."""
        if parts:
            self._memory.hold(buffered_size(parts))
        answer.parts = parts
        answer.is_ready = True

    def send_soon(self) -> None:
        """Send the replies that are ready at the end of this turn of the loop, or before.

        Several replies then share one call.
        """
        if not self._is_sending_soon:
            self._is_sending_soon = True
            self._loop.call_soon(self.send_ready, True)

    def send_ready(self, is_late: bool = False) -> None:
        """Send the replies at the head of the queue that are ready.

        Args:
            is_late: this is the end of a turn of the loop.
        """
        if is_late:
            self._is_sending_soon = False
        parts: list[Part] = []
        count = request_bytes = 0
        while self._answers and self._answers[0].is_ready:
            first = self._answers.popleft()
            parts += first.parts or ()
            count += 1
            request_bytes += first.request_bytes
        if parts:
            self._outbox.write(parts, is_late=is_late)
        self._on_sent(count, request_bytes)

    def close(self) -> None:
        """Drop the references to the connection, whose last reply was sent."""
        self._on_sent = lambda *_: None


def is_small(reply: list[Part] | None) -> bool:
    """Returns whether a reply may wait, so that one call sends it with those of the next requests."""
    if reply is None:
        return True
    first = reply[0]
    if len(reply) > 1 or not isinstance(first, (bytes, bytearray)):
        return False
    return len(first) <= SENT_TOGETHER_BYTES_MAX
