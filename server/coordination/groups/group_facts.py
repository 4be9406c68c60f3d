"""Consumer groups for the metrics. Runs in the scrape's thread, concurrently with the event loop.

It copies each dictionary that the loop may change before it iterates. `dict` copies in one step of the
interpreter. A list of the items is no such copy: it makes a tuple for each, which may run the garbage
collector, and then the loop. The numbers may be from different moments, but each is correct.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from metrics.facts import GroupFacts, GroupTopicFacts
from protocol.records.offset_commits import CommittedOffset
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.views.readable_topics import ReadableTopics


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
) -> list[tuple[int, int, int | None]]:
    topic = topics.get(name)
    ends: dict[int, int] = {}
    if topic is not None:
        for number in range(len(topic.partitions)):
            log = topic.partition(number)
            if not isinstance(log, ErrorCode):
                ends[number] = log.high_watermark
    return [
        (number, each.offset, max(ends[number] - each.offset, 0) if number in ends else None)
        for number, each in dict(partitions).items()
    ]
