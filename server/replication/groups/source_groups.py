"""Asks a source for its consumer groups and what they have committed.

Each broker lists the groups that it coordinates, so their offsets are asked for on the same
connection, one group at a time. An offset that an open transaction may still change is left out until
it has ended.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.replication.groups.group_offsets import Commit, GroupRefused
from server.replication.slots import ONE_GROUP_UNTIL_FETCH
from server.runtime.turns import Pace, Turns
from storage.formats.topic_partition import TopicPartition

TYPES = frozenset({"", "classic", "consumer"})
"""Types of groups whose committed offsets say where to continue; sources before Kafka 3.8 name none."""


async def groups_of(client: BrokerClient, follows: Callable[[str], bool]) -> list[str]:
    """Returns the groups that a broker coordinates and that `follows` accepts. Raises ClientFailed."""
    answer = await client.call(ListGroupsRequest(), ListGroupsResponse)
    if answer.error_code:
        raise ClientFailed(f"its groups: {ErrorCode.from_wire(answer.error_code).message}")
    pace = Pace(Turns())
    return [
        each.group_id
        async for each in pace.paced(answer.groups)
        if each.group_type.lower() in TYPES and follows(each.group_id)
    ]


async def committed_by(
    client: BrokerClient, group: str, is_wanted: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, Commit]:
    """Returns what a group has committed for the wanted partitions.

    Raises:
        GroupRefused: the broker refuses this group; others may work.
        ClientFailed: it does not answer.
    """
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
    answer = await client.call(request, OffsetFetchResponse, version_max=ONE_GROUP_UNTIL_FETCH)
    if answer.error_code:
        raise GroupRefused(ErrorCode.from_wire(answer.error_code).message)
    pace, found = Pace(Turns()), dict[TopicPartition, Commit]()
    async for topic in pace.paced(answer.topics):
        async for each in pace.paced(topic.partitions):
            partition = TopicPartition(topic.name, each.partition_index)
            if each.committed_offset >= 0 and not each.error_code and is_wanted(partition):
                found[partition] = _commit(each)
    return found


def _commit(found: OffsetFetchResponsePartition) -> Commit:
    epoch = Epoch(found.committed_leader_epoch)
    return Commit(Offset(found.committed_offset), epoch, found.metadata or "")
