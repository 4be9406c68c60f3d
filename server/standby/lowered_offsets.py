"""Committed offsets beyond the end of their log, after a promotion without the source's last records.

A group must not continue from there: its next fetch would be out of range, and its reset might skip or
repeat everything. At the end it continues with what is written next.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.internal_topics.group_records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.offset_commands import OffsetCommands
from server.topics.topics import Topics
from storage.files.errors import StorageError


async def lower_offsets(topics: Topics, offsets: OffsetCommands) -> list[str]:
    """Set committed offsets beyond the end of their log to the end. Returns a sentence for each.

    Raises:
        StorageError: one could not be written.
    """
    lowered: list[str] = []
    async for entry in offsets.entries():
        group_id = entry.group.group_id
        found = list(_beyond_the_end(topics, entry))
        if not found:
            continue
        error = await offsets.lower(group_id, [record for record, _ in found])
        if error is not ErrorCode.NONE:
            text = f"the committed offsets of group {group_id} could not be lowered"
            raise StorageError(f"{text}: {error.message}")
        lowered += [sentence for _, sentence in found]
    return lowered


def _beyond_the_end(topics: Topics, entry: GroupEntry) -> Iterator[tuple[GroupRecord, str]]:
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
