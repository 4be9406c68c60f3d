"""Commits how far a link's mirrors are, as an ordinary group of the source.

The committed offset of a partition is the mirror's synced end: any tool shows it as the group's lag.
`slot_content.py` has its metadata, and says when there is something new to commit.

A slot is committed before the first fetch, so that a source that holds tombstones for the group holds
them from the beginning. A source that no longer holds them, because the slot has not moved for its
`compaction.hold.max.ms`, answers OFFSET_OUT_OF_RANGE: the mirror then stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.replication.findings import SourceTopic, Verdict
from server.replication.mirror import Mirror
from server.replication.requests import slot_errors, slot_request
from server.replication.state_table import Guard, MirrorState
from server.runtime.turns import Pace, Turns
from storage.formats.topic_partition import TopicPartition

COMMITS_AT_ONCE = 1_000
RENEW_MS = 3_600_000
"""A slot that does not move is committed once more after this time, so that it does not expire."""
OF_ONE_SLOT = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Refusals of one slot, which stop no other; all others concern the whole group."""
SLOT_ENDED = (
    "the source no longer holds tombstones for this mirror, because it has not moved for the source's"
    " compaction.hold.max.ms, so some may be missing here: kompakt replica resync copies it once more"
)
ONE_GROUP_UNTIL_FIND, ONE_GROUP_UNTIL_FETCH = 3, 7
"""The last versions of FindCoordinator and OffsetFetch that ask for a single group."""


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
    mirrors: Iterable[Mirror],
    topics: Mapping[str, SourceTopic],
    now_ms: Callable[[], int],
) -> set[ErrorCode]:
    """Commit the slots that have changed, of mirrors of these topics. A mirror whose slot is refused
    retries.

    Returns the errors of refused slots.

    Raises:
        ClientFailed: the source refuses all of them.
    """
    due, pace, refusals = [], Pace(Turns()), set[ErrorCode]()
    async for mirror in pace.paced(mirrors):
        source = topics.get(mirror.log.topic_partition.topic)
        if source is not None and _is_due(mirror, now_ms(), source.delete_retention_ms):
            due.append(mirror)
    for start in range(0, len(due), COMMITS_AT_ONCE):
        at_once = due[start : start + COMMITS_AT_ONCE]
        refusals |= await _commit(client, group, at_once, topics, now_ms)
    return refusals


def _is_due(mirror: Mirror, now_ms: int, delete_retention_ms: int) -> bool:
    if mirror.state is MirrorState.STOPPED:
        return False
    if mirror.has_lost_slot and mirror.state is MirrorState.FAILED:
        return False
    if mirror.slot is None and mirror.state is MirrorState.RETRYING:
        return False  # It was refused: its next attempt is due later.
    if mirror.slot is None or now_ms - mirror.slot_ms >= RENEW_MS:
        return True
    return mirror.slot_content.has_news(mirror.slot, delete_retention_ms)


async def _commit(
    client: BrokerClient,
    group: str,
    mirrors: Sequence[Mirror],
    topics: Mapping[str, SourceTopic],
    now_ms: Callable[[], int],
) -> set[ErrorCode]:
    slots = {each.log.topic_partition: each.slot_content for each in mirrors}
    targets = {each.log.topic_partition: each.target for each in mirrors}
    names = {each.topic: topics[each.topic].topic_id for each in slots}
    response = await client.call(slot_request(group, slots, names), OffsetCommitResponse)
    errors = slot_errors(response, {topic_id: name for name, topic_id in names.items()})
    failed, refusals = "", set[ErrorCode]()
    for mirror in mirrors:
        partition = mirror.log.topic_partition
        code = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code == ErrorCode.NONE:
            mirror.slot_committed(now_ms(), slots[partition], targets[partition])
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            mirror.slot_ended(SLOT_ENDED, targets[partition])
        elif code in OF_ONE_SLOT:
            reason = f"the source refuses its slot: {ErrorCode.from_wire(code).message}"
            mirror.answered(Verdict(guard=Guard.ERROR, reason=reason))
            refusals.add(ErrorCode.from_wire(code))
        else:
            failed = failed or f"{partition}: {ErrorCode.from_wire(code).message}"
    if failed:
        raise ClientFailed(f"the source refuses the slots of group {group}: {failed}")
    return refusals
