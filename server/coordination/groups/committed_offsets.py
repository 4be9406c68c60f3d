"""The offsets that one group has committed, and their expiry. Pure.

A commit is appended to `__consumer_offsets` first and appears here once it is durable (`apply`), so
that an offset that a client has fetched is never taken back. A commit in a transaction is pending until
the transaction ends (`end_transaction`). Of several commits for one partition, the one that is last
in the log counts.

An offset expires (KIP-211) `offsets.retention.minutes` after
    the group became empty     for a group with a protocol and without members
    its commit                 for a group that only commits; and in a stable group of consumers for
                               topics without subscribers
or at the time that its commit named (OffsetCommit v2-v4). No other offset expires while the group has
members. An offset stays as long as a transaction has a pending offset for its partition.

Source: Apache Kafka, OffsetMetadataManager.java, OffsetExpirationConditionImpl.java, ClassicGroup.java.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.records.offset_commits import CommittedOffset
from server.coordination.groups.pending_offsets import PendingOffsets, Place

NO_TIMESTAMP = -1

TOMBSTONES_MAX = 1_000
"""Tombstones per batch: a group may have committed more partitions than fit into one batch."""

OffsetsByTopic = dict[str, dict[int, CommittedOffset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetExpiry:
    """Which of a group's offsets may expire now, and when their retention starts."""

    empty_since_ms: int | None = None
    """When the group became empty; None: the retention of each offset starts at its commit."""
    subscribed: frozenset[str] = frozenset()
    """Topics whose offsets do not expire."""


class CommittedOffsets:
    """One group's offsets by topic and partition. Only the coordinator changes it."""

    __slots__ = ("_by_topic", "_pending")

    def __init__(
        self,
        by_topic: OffsetsByTopic | None = None,
        pending: Mapping[int, OffsetsByTopic] | None = None,
    ) -> None:
        """Start from the offsets that a load has read; topics without partitions are dropped.

        Args:
            pending: the offsets of open transactions, by producer id.
        """
        self._by_topic: OffsetsByTopic = {
            topic: partitions for topic, partitions in (by_topic or {}).items() if partitions
        }
        self._pending = PendingOffsets()
        for producer_id, topics in (pending or {}).items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    self._pending.add(producer_id, (topic, partition), committed)

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __bool__(self) -> bool:
        """Returns whether the group has any committed or pending offset."""
        return bool(self._by_topic) or bool(self._pending)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def by_topic(self) -> OffsetsByTopic:
        """Returns all committed offsets. The caller must not change them."""
        return self._by_topic

    def has(self, topic: str, partition: int) -> bool:
        """Returns whether the partition has a committed or pending offset."""
        return self.get(topic, partition) is not None or self.is_unstable(topic, partition)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Returns whether an open transaction may still change the committed offset."""
        return (topic, partition) in self._pending

    def places(self) -> list[Place]:
        """Returns every topic and partition with a committed or pending offset."""
        held = [(topic, each) for topic, found in self._by_topic.items() for each in found]
        return [*held, *(place for place in self._pending if self.get(*place) is None)]

    def places_of(self, topics: AbstractSet[str]) -> set[Place]:
        """Returns the topics and partitions with an offset, restricted to `topics`."""
        waiting = {(topic, partition) for topic, partition in self._pending if topic in topics}
        return waiting | {
            (topic, partition)
            for topic in self._by_topic.keys() & topics
            for partition in self._by_topic[topic]
        }

    def producers(self) -> Iterator[int]:
        """Returns the producers whose open transactions have offsets of the group."""
        return self._pending.producers()

    # Commits in transactions.

    def add_pending(
        self, producer_id: int, records: Sequence[GroupRecord], first_offset: int
    ) -> None:
        """Hold commits until their transaction ends. They are in the log from `first_offset` on and
        need not be durable yet: the marker that makes them count comes later in the log."""
        for record_offset, record in enumerate(records, first_offset):
            assert isinstance(record.value, OffsetCommitValue)
            committed = _committed(record.value, record_offset)
            self._pending.add(producer_id, place_of(record), committed)

    def pending_places(self, producer_id: int) -> list[Place]:
        """Returns the places whose offsets the end of the producer's transaction may change."""
        return self._pending.places_of(producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the producer's pending offsets. Its marker is durable."""
        for (topic, partition), committed in self._pending.end(producer_id).items():
            if is_commit:
                self._set(topic, partition, committed)

    # Other commits.

    def apply(self, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Apply records that are durable in the log from `first_offset` on. Records of other types are
        skipped. Calls may come out of order: the record with the highest offset wins."""
        for record_offset, record in enumerate(records, first_offset):
            if isinstance(record.key, OffsetCommitKey):
                assert record.value is None or isinstance(record.value, OffsetCommitValue)
                self._apply(record.key, record.value, record_offset)

    def _apply(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int
    ) -> None:
        if value is not None:
            self._set(key.topic, key.partition, _committed(value, record_offset))
        else:
            self._pending.forget((key.topic, key.partition), before=record_offset)
            self._drop(key.topic, key.partition, before=record_offset)

    def _set(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        known = self.get(topic, partition)
        if known is None or known.record_offset <= committed.record_offset:
            self._by_topic.setdefault(topic, {})[partition] = committed

    def _drop(self, topic: str, partition: int, *, before: int) -> None:
        known = self.get(topic, partition)
        if known is None or known.record_offset > before:
            return
        partitions = self._by_topic[topic]
        del partitions[partition]
        if not partitions:
            del self._by_topic[topic]

    def expired(self, expiry: OffsetExpiry, *, now_ms: int, retention_ms: int) -> list[Place]:
        """Returns the topics and partitions whose offsets have expired."""
        return [
            (topic, partition)
            for topic, partitions in self._by_topic.items()
            if topic not in expiry.subscribed
            for partition, committed in partitions.items()
            if _is_expired(committed, expiry.empty_since_ms, now_ms, retention_ms)
            and not self.is_unstable(topic, partition)
        ]


def _is_expired(
    committed: CommittedOffset, empty_since_ms: int | None, now_ms: int, retention_ms: int
) -> bool:
    if committed.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp
    since_ms = committed.commit_timestamp if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms


def _committed(value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
    return CommittedOffset(
        offset=value.offset,
        commit_timestamp=value.commit_timestamp,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        expire_timestamp=value.expire_timestamp,
        topic_id=value.topic_id,
        record_offset=record_offset,
    )


def place_of(record: GroupRecord) -> Place:
    """Returns the topic and partition of a committed offset."""
    assert isinstance(record.key, OffsetCommitKey)
    return record.key.topic, record.key.partition


def tombstone_batches(group_id: str, places: Iterable[Place]) -> Iterator[tuple[GroupRecord, ...]]:
    """Yields the tombstones for a group's offsets of these topics and partitions, batch by batch."""
    records = (
        GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
        for topic, partition in places
    )
    while batch := tuple(itertools.islice(records, TOMBSTONES_MAX)):
        yield batch
