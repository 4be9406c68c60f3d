"""One fetch session: the partitions that a client asks for again and again (KIP-227).

    full request, epoch 0  -> session, epoch 1     names all partitions
    next request, epoch 1  -> session, epoch 2     names what has changed: new offsets, new partitions
    ...                                            2^31 - 1 is followed by 1
    request, epoch 0 or -1 -> no session           closes it; 0 begins another one

An answer within a session has the partitions with records, with an error, and those whose high watermark
or log start has changed. Source: Apache Kafka, FetchSession.java, FetchContext.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from server.fetching.asked_partitions import AskedPartitions, TopicKey
from server.fetching.watch import Watch
from server.runtime.tasks import call_later
from server.security.principal import Principal

NO_SESSION = 0
"""The id in requests and answers without a session."""
NEW_EPOCH = 0
"""A full request, which asks for a new session."""
FINAL_EPOCH = -1
"""A full request that asks for none."""
EPOCH_MAX = 0x7FFFFFFF
WATCH_SECONDS = 5.0
"""How long a session keeps its watch without a request. Appends to its logs wake it meanwhile."""


Viewpoint = tuple[int, str, str]
"""The revision of the ACLs, the client's address and the listener: what decides beside the logs what a
client finds in a partition. A deleted topic need not be in it, because its log is out of service."""


class FetchSession:
    """The state of one session. `FetchSessionCache` owns it; one request at a time uses it."""

    __slots__ = (
        "_watch",
        "_watch_end",
        "asked",
        "created_s",
        "epoch",
        "has_ids",
        "id",
        "is_closed",
        "is_in_use",
        "principal",
        "size",
        "used_s",
        "viewpoint",
    )

    def __init__(
        self,
        session_id: int,
        asked: AskedPartitions,
        *,
        principal: Principal,
        has_ids: bool,
        now_s: float,
        viewpoint: Viewpoint,
    ) -> None:
        # Constant after construction
        self.id = session_id
        self.principal = principal
        """Who has begun it. Nobody else may use it."""
        self.has_ids = has_ids
        """Whether its requests name topics by their ids."""
        self.created_s = now_s
        # State
        self.asked = asked
        self.epoch = NEW_EPOCH + 1
        """The epoch of the next request."""
        self.used_s = now_s
        self.size = len(asked)
        """How many partitions `FetchSessionCache` counts for it."""
        self.viewpoint = viewpoint
        """From which the partitions were read last."""
        self.is_in_use = False
        self.is_closed = False
        """Whether it has left `FetchSessionCache`. A request that still uses it frees it at its end."""
        self._watch: Watch | None = None
        """Set exactly while `_watch_end` is, which drops it."""
        self._watch_end: asyncio.TimerHandle | None = None

    def take_watch(self) -> Watch | None:
        """Returns the last request's watch, which the caller owns then; None if the session has none."""
        watch, self._watch = self._watch, None
        if self._watch_end is not None:
            self._watch_end.cancel()
            self._watch_end = None
        return watch

    def keep_watch(self, watch: Watch) -> None:
        """Keep a watch for the next request, if that comes soon."""
        watch.parked.suspend()
        self._watch = watch
        self._watch_end = call_later(WATCH_SECONDS, "fetch session", self.drop_watch)

    def forget(self, key: TopicKey, partitions: Sequence[int]) -> None:
        """Remove partitions of a topic, if they are there."""
        removed = self.asked.forget(key, partitions)
        if self._watch is not None:
            for asked in removed:
                self._watch.uncover(asked)

    def drop_watch(self) -> None:
        """Watch no log any longer: the session has ended, or no request has come for a while."""
        watch = self.take_watch()
        if watch is not None:
            watch.parked.leave()

    def advance(self) -> None:
        """Expect the next epoch."""
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else NEW_EPOCH + 1
