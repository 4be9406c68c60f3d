"""What commands ask a broker about groups: members, committed offsets, and how far behind they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from server.broker_client import BrokerClient, loaded
from server.command_end import EXIT_FAILED, CommandFailed
from server.group_described import Group, GroupMember, Part
from server.topic_facts import EARLIEST, LATEST, describe, offsets_at, parts_of, refusal

BY_NAME_MAX = 9
"""From OffsetFetch and OffsetCommit 10 on topics have ids in place of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a group is in one partition."""

    part: Part
    committed: int | None
    """None: it has committed nothing."""
    start: int | None
    end: int | None
    """None: the partition is gone, or offline."""
    member: GroupMember | None
    """Who reads it now."""

    @property
    def lag(self) -> int | None:
        """Offsets up to the end; a compacted log may have fewer records there."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - max(self.committed, self.start or 0), 0)


async def listed(client: BrokerClient) -> list[ListedGroup]:
    """All groups, in the order of their names. Raises CommandFailed."""
    answer = await loaded(
        lambda: client.call(ListGroupsRequest(), ListGroupsResponse),
        lambda answer: answer.error_code,
    )
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, None))
    return sorted(answer.groups, key=lambda group: group.group_id)


async def group_names(client: BrokerClient) -> list[str]:
    """Of all groups."""
    return [group.group_id for group in await listed(client)]


async def committed_of(client: BrokerClient, name: str) -> dict[Part, int]:
    """What a group has committed."""
    asked = OffsetFetchRequestGroup(group_id=name, topics=None)
    request = OffsetFetchRequest(groups=(asked,))
    answer = await loaded(
        lambda: client.call(request, OffsetFetchResponse, version_max=BY_NAME_MAX),
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    if found.error_code:
        raise CommandFailed(EXIT_FAILED, f"{name}: {refusal(found.error_code, None)}")
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in found.topics
        for part in topic.partitions
        if part.committed_offset >= 0 and not part.error_code
    }


async def progress_of(client: BrokerClient, group: Group) -> list[Progress]:
    """Where a group is, in each partition that it has committed for or reads, in order."""
    committed = await committed_of(client, group.group_id)
    readers = group.readers
    parts = committed.keys() | readers.keys()
    bounds = await bounds_of(client, parts)
    return [
        Progress(
            part=part,
            committed=committed.get(part),
            start=bounds.get(part, (None, None))[0],
            end=bounds.get(part, (None, None))[1],
            member=readers.get(part),
        )
        for part in sorted(parts)
    ]


async def bounds_of(client: BrokerClient, parts: Iterable[Part]) -> dict[Part, tuple[int, int]]:
    """Start and end of those partitions that can be read."""
    wanted = set(parts)
    names = {topic for topic, _ in wanted}
    there = parts_of(topic for topic in await describe(client, None) if topic.name in names)
    asked = {
        topic: [number for number in numbers if (topic, number) in wanted]
        for topic, numbers in there.items()
    }
    starts = await offsets_at(client, asked, EARLIEST)
    ends = await offsets_at(client, asked, LATEST)
    return {
        part: (start.offset, ends[part].offset)
        for part, start in starts.items()
        if start.is_known and ends[part].is_known
    }
