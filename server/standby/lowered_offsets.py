"""Committed offsets beyond the end of their log, after a promotion without the source's last records.

A group must not continue from there: its next fetch would be out of range, and its reset might skip or
repeat everything. At the end it continues with what is written next. The slots of links stay: these
compare their logs with ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.internal_topics.group_records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.holds import LINK_GROUP_PREFIX
from server.coordination.groups.offset_commands import OffsetCommands
from server.topics.topics import Topics
from storage.files.errors import StorageError

LOWERED_AT_ONCE = 1_000
"""The most offsets in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondTheEnd:
    """Committed offsets beyond the end of their log."""

    records: Mapping[str, Sequence[GroupRecord]]
    """The commits of the ends, by group."""
    sentences: Sequence[str]
    """One for each."""


async def beyond_the_end(topics: Topics, offsets: OffsetCommands) -> BeyondTheEnd:
    """Returns the committed offsets of all groups that are beyond the end of their log."""
    records, sentences = dict[str, Sequence[GroupRecord]](), list[str]()
    async for entry in offsets.entries():
        group_id = entry.group.group_id
        if not group_id.startswith(LINK_GROUP_PREFIX) and (found := list(_beyond(topics, entry))):
            records[group_id] = [record for record, _ in found]
            sentences += [sentence for _, sentence in found]
    return BeyondTheEnd(records=records, sentences=sentences)


async def lower_offsets(offsets: OffsetCommands, beyond: BeyondTheEnd) -> None:
    """Set committed offsets to the end of their log.

    Raises:
        StorageError: one could not be written.
    """
    for group_id, records in beyond.records.items():
        for start in range(0, len(records), LOWERED_AT_ONCE):
            error = await offsets.lower(group_id, records[start : start + LOWERED_AT_ONCE])
            if error is not ErrorCode.NONE:
                text = f"the committed offsets of group {group_id} could not be lowered"
                raise StorageError(f"{text}: {error.message}")


def _beyond(topics: Topics, entry: GroupEntry) -> Iterator[tuple[GroupRecord, str]]:
    """Yields the commit of the end for each offset beyond it, with a sentence."""
    for topic, partition in entry.offsets.places():
        committed, end = entry.offsets.get(topic, partition), _end_of(topics, topic, partition)
        if committed is None or end is None or committed.offset <= end:
            continue
        value = OffsetCommitValue(
            offset=end,
            leader_epoch=-1,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp,
            expire_timestamp=NO_TIMESTAMP,
        )
        group_id = entry.group.group_id
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        yield (
            GroupRecord(key, value),
            f"{topic}-{partition}: group {group_id} had committed {committed.offset}, the log ends at"
            f" {end}",
        )


def _end_of(topics: Topics, topic: str, partition: int) -> Offset | None:
    """Returns where a log ends; None if it is not served."""
    found = topics.get(topic)
    log = None if found is None else found.partition(partition)
    return None if log is None or isinstance(log, ErrorCode) else log.high_watermark
