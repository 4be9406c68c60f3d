"""What commands ask a broker about groups: members, committed offsets, and how far behind they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cleaner.text import count_text
from protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from server.broker_client import BrokerClient
from server.command_end import EXIT_FAILED, CommandFailed
from server.topic_facts import EARLIEST, LATEST, describe, offsets_at, parts_of, refusal

BY_NAME_MAX = 9
"""From OffsetFetch and OffsetCommit 10 on topics have ids in place of names."""
DEAD = "Dead"
LOAD_SECONDS_MAX, LOAD_PAUSE_SECONDS = 30.0, 0.2

M = TypeVar("M")

Part = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a group is in one partition."""

    part: Part
    committed: int | None
    """None: it has committed nothing."""
    start: int | None
    end: int | None
    """None: the partition is gone, or offline."""
    member: DescribedGroupMember | None
    """Who reads it now."""

    @property
    def lag(self) -> int | None:
        """Offsets up to the end; a compacted log may have fewer records there."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - max(self.committed, self.start or 0), 0)


async def loaded(
    ask: Callable[[], Awaitable[M]],
    code_of: Callable[[M], int],
    *,
    seconds_max: float = LOAD_SECONDS_MAX,
) -> M:
    """The answer of a broker that has read its groups, as it does for a moment after its start.

    The last answer, if that takes longer than `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        answer = await ask()
        is_loading = code_of(answer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if not is_loading or time.monotonic() >= deadline:
            return answer
        await asyncio.sleep(LOAD_PAUSE_SECONDS)


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


async def group_of(client: BrokerClient, name: str) -> DescribedGroup:
    """A group. Raises CommandFailed: there is none of that name."""
    request = DescribeGroupsRequest(groups=(name,))
    answer = await loaded(
        lambda: client.call(request, DescribeGroupsResponse),
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    is_absent = found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD
    if is_absent:
        raise CommandFailed(EXIT_FAILED, absence(name))
    if found.error_code:
        raise CommandFailed(
            EXIT_FAILED, f"{name}: {refusal(found.error_code, found.error_message)}"
        )
    return found


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


async def progress_of(client: BrokerClient, group: DescribedGroup) -> list[Progress]:
    """Where a group is, in each partition that it has committed for or reads, in order."""
    committed = await committed_of(client, group.group_id)
    readers = readers_of(group)
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


def readers_of(group: DescribedGroup) -> dict[Part, DescribedGroupMember]:
    """Which member has which partition; nothing for a protocol that is not consumers'."""
    if group.protocol_type != PROTOCOL_TYPE:
        return {}
    found: dict[Part, DescribedGroupMember] = {}
    for member in group.members:
        assigned = member.member_assignment
        assert isinstance(assigned, bytes | memoryview)
        try:
            topics = decode_assignment(assigned).assigned_partitions
        except DecodeError:
            continue
        found |= {(each.topic, number): member for each in topics for number in each.partitions}
    return found


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


def absence(name: str) -> str:
    """Why nothing is known of a group."""
    return f"there is no group {name}; kompakt groups list shows which there are"


def refuse_running(group: DescribedGroup, what: str) -> None:
    """Raise CommandFailed where members are there."""
    if group.members:
        members = count_text(len(group.members), "member")
        raise CommandFailed(
            EXIT_FAILED,
            f"{group.group_id} has {members}: stop them first; {what} while nobody reads",
        )


def by_topic(parts: Iterable[Part]) -> Mapping[str, list[int]]:
    """Partitions by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        found.setdefault(topic, []).append(number)
    return found
