"""The fetch sessions of a broker: found by their id, and bounded by their number and their partitions.

A new session needs a slot, and room for its partitions. If there is none, sessions give way that were
not used for two minutes, then one smaller session that exists for longer than that. Otherwise the client
gets no session, and its requests keep naming all their partitions. Source: Apache Kafka,
FetchSessionCacheShard.java, FetchManager.java. What differs from Kafka:

- One table instead of eight. A smaller session is searched among the `SEARCHED_MAX` least recently used.
- The partitions of all sessions together are bounded, too (`PARTITIONS_MAX`), and the names of topics. A
  session that grows beyond the bound, or names a topic with a name that is too long, ends.
- A session that was not used for two minutes ends even if nobody needs its slot: it may refer to logs of
  topics that are gone.
- A client that asks for one partition gets no session: its requests would not be smaller, and they would
  not take the second path (`server/shortcut/fetch.py`).
- Only the principal that has begun a session may use it, and one request at a time.
- The sessions of followers have no precedence: only consumers begin sessions here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from protocol.wire.error_codes import ErrorCode
from server.fetching.asked_partitions import AskedPartitions
from server.fetching.session import EPOCH_MAX, FetchSession, Viewpoint
from server.runtime.tasks import call_later, spawn
from server.runtime.turns import Pace, Turns
from server.security.principal import Principal
from storage.threads import loop_thread

IDLE_SECONDS_MAX = 120.0
"""How long a session is safe from others that need its slot: since its last use from any, since its
creation from larger ones."""
PARTITIONS_MIN = 2
PARTITIONS_MAX = 100_000
"""The partitions of all sessions. One takes 400 bytes, and 400 more in a watch; the only one of a topic
takes up to 600 more."""
SEARCHED_MAX = 1_000
EXPIRY_SECONDS = 30.0
"""The time between two looks for sessions that are not used."""
FREED_AT_ONCE_MAX = 64
"""Larger sessions are freed in slices."""


@loop_thread
class FetchSessionCache:
    """The sessions that clients may continue."""

    __slots__ = (
        "_clock",
        "_expiry",
        "_sessions",
        "_slots_max",
        "_turns",
        "evictions",
        "partitions_count",
    )

    def __init__(self, *, slots_max: int, clock: Callable[[], float], turns: Turns) -> None:
        """
        Args:
            slots_max: the most sessions at a time; 0: none.
            clock: seconds, monotonic.
        """
        # Constant after construction
        self._slots_max = slots_max
        self._clock = clock
        self._turns = turns
        # State: the least recently used session first. A timer runs while there are sessions.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._expiry: asyncio.TimerHandle | None = None
        self.partitions_count = 0
        """The sum of the sessions' sizes."""
        self.evictions = 0
        """How many sessions have lost their slot to others."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self, session_id: int, epoch: int, *, principal: Principal, has_ids: bool
    ) -> FetchSession | ErrorCode:
        """Returns the session that a request continues, or the error code of its answer.

        Args:
            epoch: the one that the request gives.
            has_ids: whether the request's version names topics by their ids.
        """
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch or session.is_in_use:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.has_ids != has_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def create(
        self, asked: AskedPartitions, *, principal: Principal, has_ids: bool, viewpoint: Viewpoint
    ) -> FetchSession | None:
        """Returns a new session that owns these partitions; None if there is no room."""
        now_s, size = self._clock(), len(asked)
        is_bounded = PARTITIONS_MIN <= size <= PARTITIONS_MAX and not asked.has_long_name
        if not self._slots_max or not is_bounded or not self._make_room(size, 1, now_s):
            return None
        session = FetchSession(
            self._new_id(),
            asked,
            principal=principal,
            has_ids=has_ids,
            now_s=now_s,
            viewpoint=viewpoint,
        )
        self._sessions[session.id] = session
        self.partitions_count += size
        self._check_sums()
        if self._expiry is None:
            self._expire_later()
        return session

    def note_use(self, session: FetchSession) -> bool:
        """Count a use of an open session, and its present size. Returns whether there is room for it; if
        not, it is closed."""
        grown = len(session.asked) - session.size
        now_s = self._clock()
        if (grown > 0 and not self._make_room(grown, 0, now_s)) or session.asked.has_long_name:
            self.close(session)
            return False
        session.size += grown
        self.partitions_count += grown
        session.used_s = now_s
        self._sessions.move_to_end(session.id)
        self._check_sums()
        return True

    def note_end_of_use(self, session: FetchSession) -> None:
        """Note that a request of an open session has ended, which may have waited for long."""
        session.used_s = self._clock()
        self._sessions.move_to_end(session.id)

    def close_by_client(self, session_id: int, principal: Principal) -> None:
        """Close the session that a full request names, if it is the client's."""
        session = self._sessions.get(session_id)
        if session is not None and session.principal == principal:
            self.close(session)

    def close(self, session: FetchSession) -> None:
        """Remove an open session, and free it. A request that still uses it does that at its end."""
        del self._sessions[session.id]
        session.is_closed = True
        session.drop_watch()
        self.partitions_count -= session.size
        self._check_sums()
        if session.size > FREED_AT_ONCE_MAX and not session.is_in_use:
            spawn(session.asked.free(Pace(self._turns)), "fetch session")

    def _has_room(self, size: int, slots: int) -> bool:
        is_free = len(self._sessions) + slots <= self._slots_max
        return is_free and self.partitions_count + size <= PARTITIONS_MAX

    def _make_room(self, size: int, slots: int, now_s: float) -> bool:
        """Let sessions give way for so many partitions and slots. Returns whether there is room."""
        while not self._has_room(size, slots) and (idle := self._idle(now_s)) is not None:
            self._evict(idle)
        if not self._has_room(size, slots) and slots:
            smaller = self._smaller(size, now_s)
            if smaller is not None and self._has_room(size - smaller.size, 0):
                self._evict(smaller)
        return self._has_room(size, slots)

    def _evict(self, session: FetchSession) -> None:
        self.close(session)
        self.evictions += 1

    def _idle(self, now_s: float) -> FetchSession | None:
        """Returns a session that was not used for long; None if there is none."""
        for each in self._sessions.values():
            if now_s - each.used_s <= IDLE_SECONDS_MAX:
                return None
            if not each.is_in_use:
                return each
        return None

    def _smaller(self, size: int, now_s: float) -> FetchSession | None:
        """Returns the smallest session that must give way to a new one of `size` partitions."""
        smallest = None
        for each in islice(self._sessions.values(), SEARCHED_MAX):
            is_smaller = each.size < (size if smallest is None else smallest.size)
            if is_smaller and now_s - each.created_s > IDLE_SECONDS_MAX:
                smallest = each
        return smallest

    def _expire_later(self) -> None:
        self._expiry = call_later(EXPIRY_SECONDS, "fetch sessions", self._expire)

    def _expire(self) -> None:
        """End the sessions that were not used for long."""
        self._expiry = None
        now_s = self._clock()
        while (idle := self._idle(now_s)) is not None:
            self.close(idle)
        if self._sessions:
            self._expire_later()

    def _new_id(self) -> int:
        """Returns a random id that no session has. A client cannot guess those of others."""
        while (found := secrets.randbelow(EPOCH_MAX) + 1) in self._sessions:
            pass
        return found

    def _check_sums(self) -> None:
        assert len(self._sessions) <= self._slots_max
        assert 0 <= self.partitions_count <= PARTITIONS_MAX
