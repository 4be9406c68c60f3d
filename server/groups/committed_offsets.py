"""What one group has committed, and when that expires. Pure.

A commit is a record of `__consumer_offsets` first, and is here once that is durable (`applied`): what is
told to a client never goes back.

An offset expires (KIP-211) `offsets.retention.minutes` after
    the group has become empty          a group of a protocol, without members
    it was committed                    a group that only commits; and in a stable group of consumers,
                                        where none of them is subscribed to the topic any more
or when its commit said that it would (OffsetCommit v2-v4). While members are there, no other does.

Source: Apache Kafka, OffsetMetadataManager.java, OffsetExpirationConditionImpl.java, ClassicGroup.java.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from protocol.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.offset_commits import CommittedOffset

NO_TIMESTAMP = -1

TOMBSTONES_MAX = 1_000
"""In one batch; a group may have committed for more partitions than a batch takes."""

OffsetsByTopic = dict[str, dict[int, CommittedOffset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetExpiry:
    """Which of a group's offsets may expire now, and what their age is counted from."""

    empty_since_ms: int | None = None
    """When the group became empty; None: each offset counts from its commit."""
    subscribed: frozenset[str] = frozenset()
    """The topics of which no offset expires."""


class CommittedOffsets:
    """One group's offsets by topic and partition. Changed by the coordinator alone."""

    __slots__ = ("_by_topic",)

    def __init__(self, by_topic: OffsetsByTopic | None = None) -> None:
        """Take over what a start has read; topics without partitions are left out."""
        self._by_topic: OffsetsByTopic = {
            topic: partitions for topic, partitions in (by_topic or {}).items() if partitions
        }

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def by_topic(self) -> OffsetsByTopic:
        """All of them. Not to be changed."""
        return self._by_topic

    def keys(self) -> Iterator[tuple[str, int]]:
        """Every topic and partition."""
        return (
            (topic, partition)
            for topic, partitions in self._by_topic.items()
            for partition in partitions
        )

    def applied(self, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Follow records that are durable in the log from `first_offset` on; others than offsets' are
        passed over. What stands later in the log holds, whoever learns first that it is durable."""
        for record_offset, record in enumerate(records, first_offset):
            if isinstance(record.key, OffsetCommitKey):
                assert record.value is None or isinstance(record.value, OffsetCommitValue)
                self._apply(record.key, record.value, record_offset)

    def _apply(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int
    ) -> None:
        known = self.get(key.topic, key.partition)
        if known is not None and known.record_offset > record_offset:
            return
        if value is not None:
            committed = _committed(value, record_offset)
            self._by_topic.setdefault(key.topic, {})[key.partition] = committed
        elif known is not None:
            partitions = self._by_topic[key.topic]
            del partitions[key.partition]
            if not partitions:
                del self._by_topic[key.topic]

    def expired(
        self, expiry: OffsetExpiry, *, now_ms: int, retention_ms: int
    ) -> list[tuple[str, int]]:
        """The topics and partitions whose offsets have expired."""
        return [
            (topic, partition)
            for topic, partitions in self._by_topic.items()
            if topic not in expiry.subscribed
            for partition, committed in partitions.items()
            if _is_expired(committed, expiry.empty_since_ms, now_ms, retention_ms)
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


def tombstone_batches(
    group_id: str, keys: Iterable[tuple[str, int]]
) -> Iterator[tuple[GroupRecord, ...]]:
    """The records that delete a group's offsets of these topics and partitions, a batch at a time."""
    records = (
        GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
        for topic, partition in keys
    )
    while batch := tuple(itertools.islice(records, TOMBSTONES_MAX)):
        yield batch
