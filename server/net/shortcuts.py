"""The requests of one connection that skip its queue: they run in the callback that received them.

frame -> shortcut -> answer          acks=1: sent at the end of the callback
             |    `-> disk -> answer acks=all: sent once it is durable
             | not one of these, or the slice of the loop is over
             the queue, with all requests that follow
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Protocol, cast

from protocol.wire.frame import FrameBuffer
from server.net.replies import Answer, Replies
from server.net.send_queue import Part
from server.net.shared import Shortcut
from server.runtime.turns import Pace
from storage.threads import loop_thread


class Counting(Protocol):
    """The connection, which counts its requests."""

    def count_request(self, frame: bytearray) -> Answer:
        """Count a request that is received and not answered. Returns its place among the answers."""


@loop_thread
class Shortcuts:
    """Runs the requests of one connection that need no queue."""

    __slots__ = (
        "_all_durable",
        "_connection",
        "_frames",
        "_loop",
        "_pace",
        "_replies",
        "_shortcut",
        "_waiting",
    )

    def __init__(
        self,
        shortcut: Shortcut[Any],
        connection: Counting,
        frames: FrameBuffer,
        replies: Replies,
        pace: Pace,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        # Constant after construction
        self._shortcut = shortcut
        self._connection: Any = connection
        self._frames = frames
        self._replies = replies
        self._pace = pace
        self._loop = loop
        # State: answers that wait for the disk, and what the end of the last one resolves.
        self._waiting = 0
        self._all_durable: asyncio.Future[None] | None = None

    def take(self, frame: bytearray) -> bytearray | None:
        """Run this request and those behind it that need no queue, within one slice of the loop. No
        request of the connection runs or is queued.

        Returns the first one that has to be queued; None if there is none.
        """
        waits, following = False, cast("bytearray | None", frame)
        self._pace.begin()
        while following is not None and not self._pace.is_over:
            done = self._shortcut.append(following, self._connection)
            if done is None:
                break
            answer = self._connection.count_request(following)
            self._replies.expect(answer)
            parts = self._shortcut.answer_of(done)
            if parts is not None:
                self._replies.fill(answer, [parts])
            else:
                waits = True
                self._waiting += 1
                self._shortcut.when_durable(done, partial(self._answer_later, answer))
            following = self._frames.next_frame()
        if waits:
            self._shortcut.start_round()
        self._replies.send_ready()
        return following

    async def end(self) -> None:
        """Wait for the answers that wait for the disk, and send them. No request follows."""
        if self._waiting:
            self._all_durable = self._loop.create_future()
            await self._all_durable
        # Not at the end of this turn of the loop: that would be too late for the last ones.
        self._replies.send_ready()

    def _answer_later(self, answer: Answer, parts: Part) -> None:
        self._waiting -= 1
        self._replies.fill(answer, [parts])
        self._replies.send_soon()  # The same sync may complete more replies in this turn of the loop.
        if self._all_durable is not None and not self._waiting:
            self._all_durable.set_result(None)
