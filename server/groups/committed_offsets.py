"""What one group has committed, and when that expires. Pure.

A commit is a record of `__consumer_offsets` first, and is here once that is durable (`applied`): what is
told to a client never goes back. One in a transaction is pending until the transaction has ended
(`transaction_ended`). Of all that holds that counts which stands last in the log.

An offset expires (KIP-211) `offsets.retention.minutes` after
    the group has become empty          a group of a protocol, without members
    it was committed                    a group that only commits; and in a stable group of consumers,
                                        where none of them is subscribed to the topic any more
or when its commit said that it would (OffsetCommit v2-v4). While members are there, no other does. A
partition that a transaction has a pending offset for keeps what it has.

Source: Apache Kafka, OffsetMetadataManager.java, OffsetExpirationConditionImpl.java, ClassicGroup.java.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from protocol.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.offset_commits import CommittedOffset
from server.groups.pending_offsets import PendingOffsets, Place

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

    __slots__ = ("_by_topic", "_pending")

    def __init__(
        self,
        by_topic: OffsetsByTopic | None = None,
        pending: Mapping[int, OffsetsByTopic] | None = None,
    ) -> None:
        """Take over what a start has read; topics without partitions are left out.

        Args:
            pending: what open transactions have, by their producers' ids.
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
        """Whether anything is committed, or waits for a transaction."""
        return bool(self._by_topic) or bool(self._pending)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def by_topic(self) -> OffsetsByTopic:
        """All of them. Not to be changed."""
        return self._by_topic

    def has(self, topic: str, partition: int) -> bool:
        """Whether anything is committed, or waits for a transaction."""
        return self.get(topic, partition) is not None or self.is_unstable(topic, partition)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether an open transaction may change what is committed."""
        return (topic, partition) in self._pending

    def places(self) -> list[Place]:
        """Every topic and partition, those that wait for transactions included."""
        held = [(topic, each) for topic, found in self._by_topic.items() for each in found]
        return [*held, *(place for place in self._pending if self.get(*place) is None)]

    def places_of(self, topics: AbstractSet[str]) -> set[Place]:
        """Those of some topics."""
        waiting = {(topic, partition) for topic, partition in self._pending if topic in topics}
        return waiting | {
            (topic, partition)
            for topic in self._by_topic.keys() & topics
            for partition in self._by_topic[topic]
        }

    def producers(self) -> Iterator[int]:
        """The producers whose open transactions have offsets of the group."""
        return self._pending.producers()

    # In transactions.

    def appended(self, producer_id: int, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Let commits wait for the end of a transaction. They are in the log from `first_offset` on,
        and need not be durable: the marker that counts them will be."""
        for record_offset, record in enumerate(records, first_offset):
            assert isinstance(record.key, OffsetCommitKey)
            assert isinstance(record.value, OffsetCommitValue)
            place = (record.key.topic, record.key.partition)
            self._pending.add(producer_id, place, _committed(record.value, record_offset))

    def transaction_ended(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker is durable: what waited for it holds, or is gone."""
        for (topic, partition), committed in self._pending.end(producer_id).items():
            if is_commit:
                self._hold(topic, partition, committed)

    # Otherwise.

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
        if value is not None:
            self._hold(key.topic, key.partition, _committed(value, record_offset))
        else:
            self._pending.forget((key.topic, key.partition), before=record_offset)
            self._drop(key.topic, key.partition, before=record_offset)

    def _hold(self, topic: str, partition: int, committed: CommittedOffset) -> None:
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
        """The topics and partitions whose offsets have expired."""
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


def tombstone_batches(group_id: str, places: Iterable[Place]) -> Iterator[tuple[GroupRecord, ...]]:
    """The records that delete a group's offsets of these topics and partitions, a batch at a time."""
    records = (
        GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
        for topic, partition in places
    )
    while batch := tuple(itertools.islice(records, TOMBSTONES_MAX)):
        yield batch
