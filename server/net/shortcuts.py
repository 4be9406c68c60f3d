"""The requests of one connection that skip its queue: they run in the callback that received them.

frame -> shortcut -> answer            sent at the end of the callback
             |    `-> disk -> answer   acks=all: sent once it is durable
             | not one of these, and no Fetch
         first step -> answer          most requests need only one: sent at the end of the callback
             | waits for something
         the connection's task runs the rest; requests that follow are queued

They are also queued if the connection's slice of this turn is over, or if the peer has not taken a large
answer. A wake-up of the task costs a small request a tenth of its time. A Fetch usually waits for
records, which requests behind it in the same turn may bring: it is always queued.

The first step runs in no task, so nothing that it calls may ask for the current one, as
`asyncio.timeout` does. A test lists the modules that may.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.wire.frame import FrameBuffer
from server.net.replies import Answer, Replies, is_small
from server.net.send_queue import Part
from server.net.shared import Shortcut
from server.runtime.turns import Pace, Turns, continued
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.net.connection import Connection

ROUND_TOGETHER_MIN = 32
"""After a turn of the loop with requests from so many sockets, one sync for all requests of the turn
is better than one that starts with the first request: with 64 connections it saves an eighth of the
processor time. With 16, the disk would be idle too long."""


@loop_thread
class Shortcuts:
    """Runs the requests of one connection that need no queue."""

    __slots__ = (
        "_all_durable",
        "_connection",
        "_frames",
        "_has_taken",
        "_loop",
        "_pace",
        "_replies",
        "_shortcut",
        "_turn",
        "_turns",
        "_waiting",
        "_waits_for_round",
    )

    def __init__(
        self,
        shortcut: Shortcut[Any],
        connection: Connection,
        frames: FrameBuffer,
        replies: Replies,
        turns: Turns,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        # Constant after construction
        self._shortcut = shortcut
        self._connection = connection
        self._frames = frames
        self._replies = replies
        self._turns = turns
        self._loop = loop
        # State
        self._pace = Pace(turns)
        self._turn = -1
        """The turn of the loop in which `_pace` has begun."""
        self._has_taken = self._waits_for_round = False
        """Whether requests were taken since the last `send`, and whether one waits for the disk."""
        self._waiting = 0
        """Answers that wait for the disk. The end of the last one resolves the next value."""
        self._all_durable: asyncio.Future[None] | None = None

    def take(self, frame: bytearray) -> bytearray | None:
        """Run this request and those behind it that need no queue, within one slice of this turn of the
        loop. No request of the connection runs or is queued. Call `send` afterwards.

        Returns the first one that has to be queued; None if there is none.
        """
        turn = self._turns.received(self._loop)
        if turn != self._turn:
            self._turn = turn
            self._pace.begin()
        elif self._pace.is_over:
            return frame
        while True:
            done = self._shortcut.run(frame, self._connection)
            if done is None and self._shortcut.waits_for_others(frame):
                return frame
            self._has_taken = True
            answer = self._connection.count_request(frame)
            self._replies.expect(answer)
            if done is None:
                self._begin(frame, answer)
            else:
                self._complete(done, answer)
            following = self._frames.next_frame()
            # Behind a large answer, requests wait until the peer has taken it.
            if following is None or not is_small(answer.parts) or self._pace.is_over:
                return following
            if done is None and not self._connection.is_free:
                return following
            frame = following

    def _complete(self, done: Any, answer: Answer) -> None:
        """Answer a request that the shortcut has run, or let it wait for the disk."""
        parts = self._shortcut.complete_now(done)
        if parts is not None:
            self._replies.fill(answer, parts)
        else:
            self._waits_for_round = True
            self._waiting += 1
            self._shortcut.when_durable(done, partial(self._answer_later, answer))

    def _begin(self, frame: bytearray, answer: Answer) -> None:
        """Run the first step of any other request, and let the connection's task run the rest."""
        running = self._connection.run(frame, answer, self._replies)
        try:
            waiting_for = running.send(None)
        except StopIteration:
            return
        if waiting_for is not None:
            # Only a task may leave this set, which it clears at once: until the connection's task waits,
            # another request may wait for the same future.
            waiting_for._asyncio_future_blocking = False
        self._connection.continue_with(_continued(running, waiting_for), answer)

    def send(self) -> bool:
        """Send the answers to what was taken, and start the sync that others wait for. In a busy turn
        of the loop it starts at the end of the turn, for all requests of the turn.

        Returns whether anything was taken; the connection then has counted its memory.
        """
        if not self._has_taken:
            return False
        self._has_taken = False
        if self._waits_for_round:
            self._waits_for_round = False
            if self._turns.receives_before < ROUND_TOGETHER_MIN:
                self._shortcut.start_round()
        self._replies.send_ready()
        return True

    async def end(self) -> None:
        """Wait for the answers that wait for the disk, and send them. No request follows."""
        if self._waiting:
            self._all_durable = self._loop.create_future()
            await self._all_durable
        # Not at the end of this turn of the loop: that would be too late for the last ones.
        self._replies.send_ready()

    def _answer_later(self, answer: Answer, part: Part) -> None:
        self._waiting -= 1
        self._replies.fill(answer, [part])
        self._replies.send_soon()  # The same sync may complete more replies in this turn of the loop.
        last = self._all_durable
        if last is not None and not self._waiting and not last.done():
            last.set_result(None)


@types.coroutine
def _continued(running: Coroutine[Any, Any, None], waiting_for: Any) -> Generator[Any, Any, None]:
    """Await a coroutine that has begun and waits for a future, or for the next turn if that is None."""
    if waiting_for is not None:
        # A task takes only a future that says so, as if it had been awaited just now.
        waiting_for._asyncio_future_blocking = True
    yield from continued(running, waiting_for)
