"""Asks a broker about groups, for commands: names, committed offsets and lag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cli.base.broker_client import BrokerClient, ask_until_loaded
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.topic_facts import EARLIEST, LATEST, describe, offsets_at, parts_of, refusal
from cli.groups.describe import Group, GroupMember, Part
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

BY_NAME_MAX = 9
"""From version 10 on, OffsetFetch and OffsetCommit name topics by id instead of by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The position of a group in one partition."""

    part: Part
    committed: int | None
    """None: the group has committed no offset."""
    start: int | None
    end: int | None
    """None: the partition is deleted or offline."""
    member: GroupMember | None
    """The member that the partition is assigned to."""

    @property
    def lag(self) -> int | None:
        """The offsets up to the end, which in a compacted log may be more than the records."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - max(self.committed, self.start or 0), 0)


async def list_groups(client: BrokerClient) -> list[ListedGroup]:
    """Returns all groups, sorted by name. Raises CommandFailed."""
    answer = await ask_until_loaded(
        lambda: client.call(ListGroupsRequest(), ListGroupsResponse),
        lambda answer: answer.error_code,
    )
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, None))
    return sorted(answer.groups, key=lambda group: group.group_id)


async def group_names(client: BrokerClient) -> list[str]:
    """Returns the names of all groups, sorted."""
    return [group.group_id for group in await list_groups(client)]


async def committed_of(client: BrokerClient, name: str) -> dict[Part, int]:
    """Returns the committed offsets of a group. Raises CommandFailed."""
    asked = OffsetFetchRequestGroup(group_id=name, topics=None)
    request = OffsetFetchRequest(groups=(asked,))
    answer = await ask_until_loaded(
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
    """Returns a group's position in each partition that it has committed or is assigned, sorted."""
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
    """Returns start and end offset of those partitions that exist and are online."""
    wanted = set(parts)
    names = {topic for topic, _ in wanted}
    existing = parts_of(topic for topic in await describe(client, None) if topic.name in names)
    asked = {
        topic: [number for number in numbers if (topic, number) in wanted]
        for topic, numbers in existing.items()
    }
    starts = await offsets_at(client, asked, EARLIEST)
    ends = await offsets_at(client, asked, LATEST)
    return {
        part: (start.offset, ends[part].offset)
        for part, start in starts.items()
        if start.is_known and ends[part].is_known
    }
