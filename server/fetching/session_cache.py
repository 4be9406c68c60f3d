"""The fetch sessions of a broker: found by their id, and bounded by their number and their partitions.

A new session needs a slot. If all are taken, it gets the slot of a session that was not used for two
minutes, or of a smaller one that exists for longer than that. Otherwise the client gets no session, and
its requests keep naming all their partitions. Source: Apache Kafka, FetchSessionCacheShard.java,
FetchManager.java. What differs from Kafka:

- One table instead of eight. A smaller session is searched among the `SEARCHED_MAX` least recently used.
- The partitions of all sessions together are bounded, too (`PARTITIONS_MAX`), and the names of topics:
  one that is too long for a topic ends the session.
- A client that asks for one partition gets no session: its requests would not be smaller, and they would
  not take the second path (`server/shortcut/fetch.py`).
- Only the principal that has begun a session may use it, and one request at a time.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from protocol.wire.error_codes import ErrorCode
from server.fetching.asked_partitions import AskedPartitions
from server.fetching.session import EPOCH_MAX, FetchSession, Viewpoint
from server.security.principal import Principal
from storage.threads import loop_thread

IDLE_SECONDS_MAX = 120.0
"""How long a session is safe from others that need its slot: since its last use from any, since its
creation from larger ones."""
PARTITIONS_MIN = 2
PARTITIONS_MAX = 100_000
"""The partitions of all sessions. One takes 400 bytes; the only one of a topic up to 1,000."""
SEARCHED_MAX = 1_000


@loop_thread
class FetchSessionCache:
    """The sessions that clients may continue."""

    __slots__ = ("_clock", "_sessions", "_slots_max", "evictions", "partitions_count")

    def __init__(self, *, slots_max: int, clock: Callable[[], float]) -> None:
        """
        Args:
            slots_max: the most sessions at a time; 0: none.
            clock: seconds, monotonic.
        """
        # Constant after construction
        self._slots_max = slots_max
        self._clock = clock
        # State: the least recently used session first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
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
    ) -> tuple[FetchSession | None, FetchSession | None]:
        """Returns a new session that owns these partitions, and the one that lost its slot for it, which
        the caller frees. The first is None if there is no room; both may be None."""
        now_s, size = self._clock(), len(asked)
        is_bounded = PARTITIONS_MIN <= size <= PARTITIONS_MAX and not asked.has_long_name
        if not self._slots_max or not is_bounded:
            return None, None
        evicted = None
        if len(self._sessions) >= self._slots_max or self._is_full(size):
            evicted = self._evictable(size, now_s)
            if evicted is None or self._is_full(size - evicted.size):
                return None, None
            self.close(evicted)
            self.evictions += 1
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
        return session, evicted

    def note_use(self, session: FetchSession) -> bool:
        """Count a use of an open session, and its present size. Returns whether there is room for it; if
        not, it is closed, and the caller frees it."""
        grown = len(session.asked) - session.size
        if (grown > 0 and self._is_full(grown)) or session.asked.has_long_name:
            self.close(session)
            return False
        session.size += grown
        self.partitions_count += grown
        session.used_s = self._clock()
        self._sessions.move_to_end(session.id)
        self._check_sums()
        return True

    def close_by_client(self, session_id: int, principal: Principal) -> FetchSession | None:
        """Close the session that a full request names, if it is the client's.

        Returns it; the caller frees it.
        """
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return None
        self.close(session)
        return session

    def close(self, session: FetchSession) -> None:
        """Remove an open session."""
        del self._sessions[session.id]
        session.is_closed = True
        session.drop_watch()
        self.partitions_count -= session.size
        self._check_sums()

    def _is_full(self, more: int) -> bool:
        return self.partitions_count + more > PARTITIONS_MAX

    def _evictable(self, size: int, now_s: float) -> FetchSession | None:
        """Returns the session that gives its slot to a new one of `size` partitions."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_s - oldest.used_s > IDLE_SECONDS_MAX:
            return oldest
        smallest = None
        for each in islice(self._sessions.values(), SEARCHED_MAX):
            is_smaller = each.size < (size if smallest is None else smallest.size)
            if is_smaller and now_s - each.created_s > IDLE_SECONDS_MAX:
                smallest = each
        return smallest

    def _new_id(self) -> int:
        """Returns a random id that no session has. A client cannot guess those of others."""
        while (found := secrets.randbelow(EPOCH_MAX) + 1) in self._sessions:
            pass
        return found

    def _check_sums(self) -> None:
        assert len(self._sessions) <= self._slots_max
        assert 0 <= self.partitions_count <= PARTITIONS_MAX
