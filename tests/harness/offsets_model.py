"""Defines committed offsets over the log, and generates random logs.

Of a partition's records after its last tombstone, the last one counts that is in no transaction or in a
committed one. The partition is unstable while one of these records is in a transaction without a
marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

Place = tuple[str, int]
"""A group, and a partition of the one topic that all groups read."""

PRODUCERS = (1000, 1001, 1002)
GROUPS = ("a", "b")
PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets of a group, committed together; the offset is the log offset of the first."""

    group: str
    partitions: tuple[int, ...]
    producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class Tombstones:
    """A deletion of offsets of a group, together."""

    group: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction."""

    producer_id: int
    is_commit: bool


Event = Commit | Tombstones | Marker


@dataclass(frozen=True, slots=True)
class _Record:
    place: Place
    at: int
    producer_id: int | None
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsModel:
    """A log; each event is one batch."""

    events: tuple[Event, ...] = ()

    def then(self, event: Event) -> OffsetsModel:
        return OffsetsModel((*self.events, event))

    @property
    def end_offset(self) -> int:
        return sum(map(_size, self.events))

    def held(self) -> dict[Place, int]:
        """Returns the log offset of the valid record of each place."""
        return {
            record.place: record.at
            for record in self._living()
            if record.producer_id is None or self._outcome(record) is True
        }

    def unstable(self) -> set[Place]:
        return {
            record.place
            for record in self._living()
            if record.producer_id is not None and self._outcome(record) is None
        }

    def _living(self) -> list[_Record]:
        """Returns the records without a later tombstone."""
        records = self._records()
        deleted = {record.place: record.at for record in records if record.is_tombstone}
        return [record for record in records if record.at > deleted.get(record.place, -1)]

    def _records(self) -> list[_Record]:
        found, at = [], 0
        for event in self.events:
            if not isinstance(event, Marker):
                found += _records_of(event, at)
            at += _size(event)
        return found

    def _outcome(self, record: _Record) -> bool | None:
        """Returns the outcome in the next marker of the record's producer; None if there is none."""
        at = 0
        for event in self.events:
            is_its_marker = isinstance(event, Marker) and event.producer_id == record.producer_id
            if is_its_marker and at > record.at:
                assert isinstance(event, Marker)
                return event.is_commit
            at += _size(event)
        return None


def _records_of(event: Commit | Tombstones, at: int) -> list[_Record]:
    is_tombstone = isinstance(event, Tombstones)
    producer_id = event.producer_id if isinstance(event, Commit) else None
    return [
        _Record((event.group, partition), at + number, producer_id, is_tombstone)
        for number, partition in enumerate(event.partitions)
    ]


def _size(event: Event) -> int:
    return 1 if isinstance(event, Marker) else len(event.partitions)


def events(
    groups: Sequence[str] = GROUPS, producers: Sequence[int] = PRODUCERS
) -> st.SearchStrategy[Event]:
    """Returns a strategy for any event."""
    partitions = st.sets(st.integers(0, PARTITIONS - 1), min_size=1).map(tuple)
    producer = st.sampled_from(producers)
    return st.one_of(
        st.builds(Commit, st.sampled_from(groups), partitions, st.none() | producer),
        st.builds(Tombstones, st.sampled_from(groups), partitions),
        st.builds(Marker, producer, st.booleans()),
    )
