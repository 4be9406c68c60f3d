"""Consumer groups for the metrics. Runs in the scrape's thread, concurrently with the event loop.

It copies each dictionary that the loop may change before it iterates. `dict` copies in one step of the
interpreter. A list of the items is no such copy: it makes a tuple for each, which may run the garbage
collector, and then the loop. The numbers may be from different moments, but each is correct.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from metrics.facts import GroupFacts, GroupOffset, GroupTopicFacts
from protocol.records.offset_commits import CommittedOffset
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.views.readable_topics import Readable, ReadableTopics
from storage.counts.log_counts import estimated_between

OFFSETS_PER_YIELD = 200
"""After so many offsets the interpreter is offered to the event loop."""


def group_facts(table: GroupTable, topics: ReadableTopics) -> Iterator[GroupFacts]:
    """Yields every loaded group."""
    for entry in table.entries():
        group = entry.group
        yield GroupFacts(
            group_id=group.group_id,
            state=group.state.value,
            members_count=group.members_count,
            protocol=group.protocol,
            topics=_topics(entry, topics),
        )


def _topics(entry: GroupEntry, topics: ReadableTopics) -> Iterator[GroupTopicFacts]:
    for name, partitions in dict(entry.offsets.by_topic()).items():
        # Release the interpreter lock in case the event loop waits for it.
        time.sleep(0)
        yield GroupTopicFacts(name, _offsets(name, partitions, topics))


def _offsets(
    name: str, partitions: Mapping[int, CommittedOffset], topics: ReadableTopics
) -> list[GroupOffset]:
    topic = topics.get(name)
    found: list[GroupOffset] = []
    for count, (number, each) in enumerate(dict(partitions).items()):
        if count % OFFSETS_PER_YIELD == OFFSETS_PER_YIELD - 1:
            time.sleep(0)
        found.append(_offset(topic, number, each.offset))
    return found


def _offset(topic: Readable | None, partition: int, offset: int) -> GroupOffset:
    log = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.partition(partition)
    if isinstance(log, ErrorCode):
        return GroupOffset(partition, offset, None)
    end = log.high_watermark
    if offset >= end:
        return GroupOffset(partition, offset, 0, 0)
    first = max(Offset(offset), log.log_start_offset)
    return GroupOffset(partition, offset, end - offset, estimated_between(log.segments, first, end))
