"""A group's offsets in open transactions: none of them holds before its transaction's marker. Pure.

Several producers may have an offset for one partition, and a producer several partitions. An offset is
here from its append on, so that a marker, which stands behind it, finds it whoever is told first what
is durable.

Source: Apache Kafka, OffsetMetadataManager.java (`pendingTransactionalOffsets`, `openTransactions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.offset_commits import CommittedOffset

Place = tuple[str, int]
"""A topic and a partition."""


class PendingOffsets:
    """By producer and by topic and partition. Changed by the group's `CommittedOffsets` alone."""

    __slots__ = ("_by_producer", "_producers_of")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, CommittedOffset]] = {}
        self._producers_of: dict[Place, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, place: Place) -> bool:
        return place in self._producers_of

    def __iter__(self) -> Iterator[Place]:
        """The places that any transaction has an offset for."""
        return iter(self._producers_of)

    def producers(self) -> Iterator[int]:
        """Whose transactions they are."""
        return iter(self._by_producer)

    def add(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        """Let an offset wait for the end of its producer's transaction; the last one counts."""
        self._by_producer.setdefault(producer_id, {})[place] = committed
        self._producers_of.setdefault(place, set()).add(producer_id)

    def end(self, producer_id: int) -> dict[Place, CommittedOffset]:
        """Take out all that waited for a transaction that ends."""
        ended = self._by_producer.pop(producer_id, {})
        for place in ended:
            self._leave(place, producer_id)
        return ended

    def forget(self, place: Place, *, before: int) -> None:
        """Take out what stands in the log before a tombstone at the offset `before`."""
        for producer_id in tuple(self._producers_of.get(place, ())):
            offsets = self._by_producer[producer_id]
            if offsets[place].record_offset < before:
                del offsets[place]
                self._leave(place, producer_id)
                if not offsets:
                    del self._by_producer[producer_id]

    def _leave(self, place: Place, producer_id: int) -> None:
        producers = self._producers_of[place]
        producers.remove(producer_id)
        if not producers:
            del self._producers_of[place]
