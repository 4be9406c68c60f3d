"""Consumer groups as a scrape shows them. Called in the scrape's thread, beside the event loop.

What the loop changes meanwhile is copied first, a dictionary at a time, which the interpreter does in
one step: numbers may be of different moments, but none is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from metrics.facts import GroupFacts, GroupTopicFacts
from protocol.error_codes import ErrorCode
from protocol.offset_commits import CommittedOffset
from server.groups.group_entry import GroupEntry
from server.groups.group_table import GroupTable
from server.topics import Topics


def group_facts(table: GroupTable, topics: Topics) -> Iterator[GroupFacts]:
    """Every group that is known by now."""
    for entry in table.entries():
        group = entry.group
        yield GroupFacts(
            group_id=group.group_id,
            state=group.state.value,
            members_count=group.members_count,
            protocol=group.protocol,
            topics=_topics(entry, topics),
        )


def _topics(entry: GroupEntry, topics: Topics) -> Iterator[GroupTopicFacts]:
    for name, partitions in list(entry.offsets.by_topic().items()):
        # Let the event loop have the interpreter, if it waits for it.
        time.sleep(0)
        yield GroupTopicFacts(name, _offsets(name, partitions, topics))


def _offsets(
    name: str, partitions: Mapping[int, CommittedOffset], topics: Topics
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
        for number, each in list(partitions.items())
    ]
