"""A group's offsets in open transactions; each counts only once its transaction has a marker. Pure.

Several producers may have an offset for one partition, and one producer for several partitions. Offsets
are added when they are appended. A marker comes later in the log, so it always finds them: the
order in which the broker learns that records are durable does not matter.

Source: Apache Kafka, OffsetMetadataManager.java (`pendingTransactionalOffsets`, `openTransactions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.records.offset_commits import CommittedOffset

Place = tuple[str, int]
"""A topic and a partition."""


class PendingOffsets:
    """Pending offsets by producer, topic and partition. Only the group's `CommittedOffsets`
    changes it."""

    __slots__ = ("_by_producer", "_producers_of")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, CommittedOffset]] = {}
        self._producers_of: dict[Place, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, place: Place) -> bool:
        return place in self._producers_of

    def __iter__(self) -> Iterator[Place]:
        """Iterate over the places with a pending offset."""
        return iter(self._producers_of)

    def producers(self) -> Iterator[int]:
        """Returns the ids of the producers that have pending offsets."""
        return iter(self._by_producer)

    def places_of(self, producer_id: int) -> list[Place]:
        """Returns the places with a pending offset of a producer."""
        return list(self._by_producer.get(producer_id, ()))

    def add(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        """Hold an offset until its producer's transaction ends; it replaces an earlier one."""
        self._by_producer.setdefault(producer_id, {})[place] = committed
        self._producers_of.setdefault(place, set()).add(producer_id)

    def end(self, producer_id: int) -> dict[Place, CommittedOffset]:
        """Remove and return the pending offsets of a transaction that ends."""
        ended = self._by_producer.pop(producer_id, {})
        for place in ended:
            self._leave(place, producer_id)
        return ended

    def forget(self, place: Place, *, before: int) -> None:
        """Remove the pending offsets that are before a tombstone at the log offset `before`."""
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
