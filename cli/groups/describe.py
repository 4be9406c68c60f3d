"""Requests the description of a group of either protocol, for commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cleaner.rules.text import count_text
from cli.base.broker_client import BrokerClient, ask_until_loaded
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.topic_facts import refusal
from protocol.internal_topics.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from protocol.messages import consumer_group_describe, describe_groups
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import DecodeError

DEAD = "Dead"

Part = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    parts: frozenset[Part]

    @classmethod
    def of_classic(cls, member: describe_groups.DescribedGroupMember, protocol_type: str) -> Self:
        """Returns a member of a classic group. Members that are not consumers have no partitions."""
        # Other protocol types, such as Connect's, encode assignments in formats of their own.
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
    """A group of the classic or the consumer protocol."""

    group_id: str
    type: str
    """classic or consumer."""
    state: str
    protocol_type: str
    protocol: str
    """The name of the assignor; empty if unknown."""
    members: tuple[GroupMember, ...]

    @property
    def readers(self) -> dict[Part, GroupMember]:
        """The member that each partition is assigned to."""
        return {part: member for member in self.members for part in member.parts}


async def group_of(client: BrokerClient, name: str) -> Group:
    """Returns the description of a group. Raises CommandFailed if it does not exist."""
    request = DescribeGroupsRequest(groups=(name,))
    answer = await ask_until_loaded(
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
    if not client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        raise CommandFailed(EXIT_FAILED, missing_group_text(name))
    request = ConsumerGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False)
    (found,) = (await client.call(request, ConsumerGroupDescribeResponse)).groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise CommandFailed(EXIT_FAILED, missing_group_text(name))
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


def missing_group_text(name: str) -> str:
    """Returns the error text for a group that does not exist."""
    return f"there is no group {name}; kompakt groups list shows all groups"


def _refused(name: str, code: int, message: str | None) -> CommandFailed:
    return CommandFailed(EXIT_FAILED, f"{name}: {refusal(code, message)}")


def refuse_running(group: Group, what: str) -> None:
    """Raise CommandFailed if the group has members.

    `what` starts the last clause of the message, e.g. "offsets can only be reset".
    """
    if group.members:
        members = count_text(len(group.members), "member")
        raise CommandFailed(
            EXIT_FAILED,
            f"{group.group_id} has {members}: stop them first; {what} while a group has no members",
        )


def by_topic(parts: Iterable[Part]) -> dict[str, list[int]]:
    """Returns the sorted partition numbers of each topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        found.setdefault(topic, []).append(number)
    return found
