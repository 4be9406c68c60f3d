"""Commits how far a link's mirrors are, as an ordinary group of the source.

The committed offset of a partition is the mirror's synced end: any tool shows it as the group's lag. Its
metadata says what a restart needs, and why a mirror does not move:

    {"safe_ms": ..., "state": "copying", "reason": ""}

A slot is committed before the first fetch, so that a source that holds tombstones for the group holds
them from the beginning. A source that no longer holds them, because the slot has not moved for its
`compaction.hold.max.ms`, answers OFFSET_OUT_OF_RANGE: the mirror then stops.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence

from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.replication.mirror import Mirror
from server.replication.requests import slot_errors, slot_request
from storage.formats.topic_partition import TopicPartition

REASON_MAX = 500
"""The most characters of a reason in a slot: Apache Kafka takes 4,096 bytes of metadata."""
COMMITS_AT_ONCE = 1_000
RENEW_MS = 3_600_000
"""A slot that does not move is committed once more after this time, so that it does not expire."""
SLOT_ENDED = (
    "the source no longer holds tombstones for this mirror, because it has not moved for the source's"
    " compaction.hold.max.ms, so some may be missing here: to lose no deletion, promote the mirror,"
    " delete it, and resume its link"
)
ONE_GROUP_UNTIL_FIND, ONE_GROUP_UNTIL_FETCH = 3, 7
"""The last versions of FindCoordinator and OffsetFetch that ask for a single group."""


def slot_metadata(mirror: Mirror) -> str:
    """Returns the metadata of a mirror's slot."""
    content = {
        "safe_ms": mirror.tombstones.safe_ms,
        "state": str(mirror.state),
        "reason": mirror.reason[:REASON_MAX],
    }
    return json.dumps(content, separators=(",", ":"))


def safe_ms_of(metadata: str | None) -> int | None:
    """Returns what a slot remembers of `TombstoneWatch.safe_ms`; None if it remembers nothing."""
    try:
        content = json.loads(metadata or "")
    except ValueError:
        return None
    found = content.get("safe_ms") if isinstance(content, dict) else None
    return found if isinstance(found, int) else None


async def coordinator_address(client: BrokerClient, group: str) -> str:
    """Returns the address of the group's coordinator. Raises ClientFailed."""
    request = FindCoordinatorRequest(key=group)
    found = await client.call(request, FindCoordinatorResponse, version_max=ONE_GROUP_UNTIL_FIND)
    if found.error_code:
        reason = ErrorCode.from_wire(found.error_code).message
        raise ClientFailed(f"the coordinator of {group}: {reason}")
    return f"{found.host}:{found.port}"


async def stored_slots(
    client: BrokerClient, group: str
) -> dict[TopicPartition, tuple[Offset, str | None]]:
    """Returns the slots that the source has, with their metadata. Raises ClientFailed."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    answer = await client.call(request, OffsetFetchResponse, version_max=ONE_GROUP_UNTIL_FETCH)
    if answer.error_code:
        reason = ErrorCode.from_wire(answer.error_code).message
        raise ClientFailed(f"the slots of {group}: {reason}")
    return {
        TopicPartition(topic.name, each.partition_index): (
            Offset(each.committed_offset),
            each.metadata,
        )
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


async def commit_slots(
    client: BrokerClient,
    group: str,
    mirrors: Sequence[Mirror],
    topic_ids: Mapping[str, uuid.UUID],
    now_ms: Callable[[], int],
) -> None:
    """Commit the slots that have changed. Raises ClientFailed if the source refuses one."""
    due = [each for each in mirrors if each.is_slot_due(now_ms(), slot_metadata(each), RENEW_MS)]
    for start in range(0, len(due), COMMITS_AT_ONCE):
        await _commit(client, group, due[start : start + COMMITS_AT_ONCE], topic_ids, now_ms)


async def _commit(
    client: BrokerClient,
    group: str,
    mirrors: Sequence[Mirror],
    topic_ids: Mapping[str, uuid.UUID],
    now_ms: Callable[[], int],
) -> None:
    slots = {
        each.log.topic_partition: (each.log.high_watermark, slot_metadata(each)) for each in mirrors
    }
    response = await client.call(slot_request(group, slots, topic_ids), OffsetCommitResponse)
    errors = slot_errors(response, {topic_id: name for name, topic_id in topic_ids.items()})
    refused = ""
    for mirror in mirrors:
        partition = mirror.log.topic_partition
        code = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code == ErrorCode.NONE:
            mirror.slot_committed(now_ms(), *slots[partition])
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            mirror.slot_ended(SLOT_ENDED)
        else:
            refused = refused or f"{partition}: {ErrorCode.from_wire(code).message}"
    if refused:
        raise ClientFailed(f"the source refuses a slot of group {group}: {refused}")
