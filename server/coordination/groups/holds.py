"""Which tombstones the groups of `compaction.hold.groups` hold, by their committed offsets.

A slot is the committed offset of such a group in a partition: all below it is read. The cleaner keeps
tombstones and transaction markers at and above the least slot of a partition, so a group that lags never
misses a deletion, also if it reads the view of a topic. While a partition of `__consumer_offsets` is not
loaded, a slot may be unknown, and everything is held.

    commit, durable -> applied -> is it new, or lower than before?
                                    -> planned passes may not swap; the answer waits for a running swap

Its commit time says whether a slot is alive: a commit that does not move a slot, though its log has more
to read, keeps the time of the slot before it. So the time is that of the last progress, and it survives
restarts. A slot without progress for `compaction.hold.max.ms` is invalidated: it is written once more
with the time `INVALIDATED_MS`, and holds nothing once that is durable. The next commit of an ordinary
group makes it a slot again. A link of mirrors must start over instead, because its mirror may lack
deletions: it may only commit at or below the log start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache

from cleaner.rules.hold import NO_HOLD, HeldLog, Hold
from protocol.internal_topics.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.records.offset_commits import CommittedOffset
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holders import HoldersByPlace
from server.coordination.groups.pending_offsets import Place
from server.views.readable_topics import ReadableTopics
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.coordination.groups")

LINK_GROUP_PREFIX = "__mirror."
"""The groups of links, which commit how far their mirrors are."""

INVALIDATED_MS = 0
"""The commit time of a slot that was invalidated."""

LINK_ALIVE_MS = 2 * 3_600_000
"""A link commits each slot once an hour (`server/replication/slots.py`), so one that has committed
nothing for this long is gone, and its slots may be deleted."""

Slot = tuple[Place, CommittedOffset]
"""A topic and partition, and the group's committed offset there."""

LOADING = Hold(offset=Offset(0), by="a coordinator that has not loaded all groups yet")


@loop_thread
class TombstoneHolds:
    """Reads the holds from the groups' committed offsets, which it does not change."""

    __slots__ = ("_ending", "_holders", "_invalidated_total", "_table", "_topics")

    def __init__(self, table: GroupTable, topics: ReadableTopics) -> None:
        # Constant after construction
        self._table = table
        self._topics = topics
        self._holders = HoldersByPlace(table)
        # State
        self._invalidated_total = 0
        self._ending: set[tuple[str, Place]] = set()
        """Groups and places whose invalidation is appended, but not durable yet."""

    # ---------------------------------------------------------------- for the cleaner

    def hold_of(self, log: HeldLog) -> Hold:
        """Returns the current hold on a log."""
        patterns = log.config.compaction_hold_groups
        if not patterns:
            return NO_HOLD
        if not self._table.are_loaded(patterns):
            return LOADING
        partition = log.topic_partition
        least, by = NO_HOLD.offset, ""
        for name in self._topics.read_as(partition.topic):
            place = name, partition.partition
            for entry in self._holders.of(patterns, place):
                slot = entry.offsets.get(*place)
                if slot is not None and is_holding(slot) and slot.offset < least:
                    least, by = Offset(slot.offset), f"group {entry.group.group_id}"
        return Hold(offset=least, by=by) if by else NO_HOLD

    # ---------------------------------------------------------------- commits

    def is_slot(self, group_id: str, topic: str) -> bool:
        """Returns whether the group's offsets in a topic hold its tombstones."""
        found = self._topics.get(topic)
        return found is not None and is_named(found.config.compaction_hold_groups, group_id)

    def dated(self, entry: GroupEntry, record: GroupRecord) -> GroupRecord:
        """Returns a commit with the time of its slot's last progress."""
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey)
        assert isinstance(value, OffsetCommitValue)
        slot = entry.offsets.get(key.topic, key.partition)
        if slot is None or slot.offset != value.offset or not self.is_slot(key.group, key.topic):
            return record
        if not is_holding(slot) and key.group.startswith(LINK_GROUP_PREFIX):
            # It starts over where it was: `is_refused` has let it.
            return record
        log = self._log_of((key.topic, key.partition))
        if log is None or not log.config.is_compacted or not _has_more(log, slot):
            return record
        return replace(record, value=replace(value, commit_timestamp=slot.commit_timestamp))

    def is_refused(self, entry: GroupEntry, record: GroupRecord) -> bool:
        """Returns whether a link commits a slot that was invalidated, and does not start over."""
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey)
        place = key.topic, key.partition
        slot = entry.offsets.get(*place)
        if slot is None or not self.is_slot(key.group, key.topic):
            return False
        if is_holding(slot) and (key.group, place) not in self._ending:
            return False
        assert isinstance(value, OffsetCommitValue)
        log = self._log_of(place)
        return log is None or value.offset > log.log_start_offset

    def applied(
        self, entry: GroupEntry, place: Place, before: CommittedOffset | None
    ) -> PartitionLog | None:
        """Take a change of a committed offset, which may be a slot.

        If tombstones are held that were not held before, planned passes over the log can no longer swap.
        Returns the log then: the answer to the commit has to wait for its running swap.
        """
        slot = entry.offsets.get(*place)
        if (slot is None) != (before is None):
            self._holders.changed(place)
        if slot is None or not is_holding(slot):
            return None
        if before is not None and is_holding(before) and before.offset <= slot.offset:
            return None
        if not self.is_slot(entry.group.group_id, place[0]):
            return None
        log = self._log_of(place)
        if log is not None:
            log.refuse_planned_passes()
        return log

    # ---------------------------------------------------------------- the end of slots

    def without_slots(self, entry: GroupEntry, places: Iterable[Place]) -> list[Place]:
        """Returns the places without a slot: only their offsets expire."""
        group_id = entry.group.group_id
        return [place for place in places if not self.is_slot(group_id, place[0])]

    def slots(self, entry: GroupEntry) -> list[Slot]:
        """Returns the group's slots, also those that were invalidated."""
        return [
            ((topic, partition), slot)
            for topic, partitions in entry.offsets.by_topic().items()
            if self.is_slot(entry.group.group_id, topic)
            for partition, slot in partitions.items()
        ]

    def is_stalled(self, place: Place, slot: CommittedOffset, now_ms: int) -> bool:
        """Returns whether a slot holds tombstones, but has made no progress for too long."""
        if not is_holding(slot):
            return False
        log = self._log_of(place)
        if log is None or not log.config.is_compacted:
            return False
        is_late = now_ms - slot.commit_timestamp >= log.config.compaction_hold_max_ms
        return is_late and _has_more(log, slot)

    @contextmanager
    def ending(self, entry: GroupEntry, slots: Iterable[Slot]) -> Iterator[None]:
        """Refuse a link's commits while the invalidation of its slots becomes durable: a later record
        would win over it, and the link would not notice."""
        ending = {(entry.group.group_id, place) for place, _ in slots}
        self._ending |= ending
        try:
            yield
        finally:
            self._ending -= ending

    def invalidated(self, entry: GroupEntry, records: Iterable[GroupRecord]) -> None:
        """Say which slots were invalidated, once that is durable."""
        for record in records:
            assert isinstance(record.key, OffsetCommitKey)
            assert isinstance(record.value, OffsetCommitValue)
            self._invalidated_total += 1
            _log.warning(
                "group %r no longer holds the tombstones of %s-%d: it has stayed at offset %d for"
                " compaction.hold.max.ms; a mirror has to be copied once more from the start",
                entry.group.group_id,
                record.key.topic,
                record.key.partition,
                record.value.offset,
            )

    def is_live_link(self, entry: GroupEntry, now_ms: int) -> bool:
        """Returns whether the group is a link's that holds tombstones and still commits."""
        if not entry.group.group_id.startswith(LINK_GROUP_PREFIX):
            return False
        times = [slot.commit_timestamp for _, slot in self.slots(entry) if is_holding(slot)]
        return bool(times) and now_ms - max(entry.committed_ms, *times) < LINK_ALIVE_MS

    # ---------------------------------------------------------------- for metrics

    @property
    @any_thread
    def invalidated_total(self) -> int:
        """Number of slots that were invalidated since the start."""
        return self._invalidated_total

    # ---------------------------------------------------------------- shared

    def _log_of(self, place: Place) -> PartitionLog | None:
        topic = self._topics.get(place[0])
        found = None if topic is None else topic.partition(place[1])
        return None if found is None or isinstance(found, ErrorCode) else found


@lru_cache(maxsize=4096)
def is_named(patterns: tuple[str, ...], group_id: str) -> bool:
    """Returns whether names and prefixes with `*` name a group. Pure."""
    return any(
        group_id.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == group_id
        for pattern in patterns
    )


def is_holding(slot: CommittedOffset) -> bool:
    """Returns whether a slot was not invalidated. Pure."""
    return slot.commit_timestamp != INVALIDATED_MS


def _has_more(log: PartitionLog, slot: CommittedOffset) -> bool:
    """Returns whether a log has more to read above a slot; an unfinished transaction does not count."""
    if slot.offset >= log.high_watermark:
        return False
    # If the open transactions cannot be read now, the next append or read reports the disk's error.
    with suppress(StorageError):
        return slot.offset < log.last_stable_offset
    return False


def invalidation(group_id: str, place: Place, slot: CommittedOffset) -> GroupRecord:
    """Returns the record that invalidates a slot. Pure."""
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]),
        OffsetCommitValue(
            offset=slot.offset,
            leader_epoch=slot.leader_epoch,
            metadata=slot.metadata,
            commit_timestamp=INVALIDATED_MS,
            expire_timestamp=slot.expire_timestamp,
            topic_id=slot.topic_id,
        ),
    )
