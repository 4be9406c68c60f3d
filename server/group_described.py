"""A group of either protocol, as commands ask for it and show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cleaner.text import count_text
from protocol.api_keys import ApiKey
from protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError
from protocol.messages import consumer_group_describe, describe_groups
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from server.broker_client import BrokerClient, loaded
from server.command_end import EXIT_FAILED, CommandFailed
from server.topic_facts import refusal

DEAD = "Dead"

Part = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member, and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    parts: frozenset[Part]

    @classmethod
    def of_classic(cls, member: describe_groups.DescribedGroupMember, protocol_type: str) -> Self:
        """What a member that is no consumer does, only its kind knows."""
        is_consumer = protocol_type == PROTOCOL_TYPE
        return cls(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            parts=_assigned(member) if is_consumer else frozenset(),
        )

    @classmethod
    def of_consumer(cls, member: consumer_group_describe.Member) -> Self:
        return cls(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            parts=frozenset(
                (topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group."""

    group_id: str
    type: str
    """classic or consumer."""
    state: str
    protocol_type: str
    protocol: str
    """How it is assigned, as far as it says."""
    members: tuple[GroupMember, ...]

    @property
    def readers(self) -> dict[Part, GroupMember]:
        """Which member has which partition."""
        return {part: member for member in self.members for part in member.parts}


async def group_of(client: BrokerClient, name: str) -> Group:
    """A group. Raises CommandFailed: there is none of that name."""
    request = DescribeGroupsRequest(groups=(name,))
    answer = await loaded(
        lambda: client.call(request, DescribeGroupsResponse),
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
        return await _consumer_group_of(client, name)
    if found.error_code:
        raise _refused(name, found.error_code, found.error_message)
    members = (GroupMember.of_classic(each, found.protocol_type) for each in found.members)
    return Group(
        group_id=name,
        type="classic",
        state=found.group_state,
        protocol_type=found.protocol_type,
        protocol=found.protocol_data,
        members=tuple(members),
    )


async def _consumer_group_of(client: BrokerClient, name: str) -> Group:
    """A group that is none of the classic protocol. Raises CommandFailed."""
    if not client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        raise CommandFailed(EXIT_FAILED, absence(name))
    request = ConsumerGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False)
    (found,) = (await client.call(request, ConsumerGroupDescribeResponse)).groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise CommandFailed(EXIT_FAILED, absence(name))
    if found.error_code:
        raise _refused(name, found.error_code, found.error_message)
    return Group(
        group_id=name,
        type="consumer",
        state=found.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol=found.assignor_name,
        members=tuple(map(GroupMember.of_consumer, found.members)),
    )


def _assigned(member: describe_groups.DescribedGroupMember) -> frozenset[Part]:
    assigned = member.member_assignment
    assert isinstance(assigned, bytes | memoryview)
    try:
        topics = decode_assignment(assigned).assigned_partitions
    except DecodeError:
        return frozenset()
    return frozenset((each.topic, number) for each in topics for number in each.partitions)


def absence(name: str) -> str:
    """Why nothing is known of a group."""
    return f"there is no group {name}; kompakt groups list shows which there are"


def _refused(name: str, code: int, message: str | None) -> CommandFailed:
    return CommandFailed(EXIT_FAILED, f"{name}: {refusal(code, message)}")


def refuse_running(group: Group, what: str) -> None:
    """Raise CommandFailed where members are there."""
    if group.members:
        members = count_text(len(group.members), "member")
        raise CommandFailed(
            EXIT_FAILED,
            f"{group.group_id} has {members}: stop them first; {what} while nobody reads",
        )


def by_topic(parts: Iterable[Part]) -> dict[str, list[int]]:
    """Partitions by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        found.setdefault(topic, []).append(number)
    return found
