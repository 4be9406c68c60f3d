"""FetchSnapshot (key 59), v0-v1.

Behaviour: returns bytes of a snapshot of the metadata, from a position on, to followers that the log's
end has left behind (docs/design/standby.md). Only a request for exactly `__cluster_metadata`-0, on the
internal listener, is answered so, or one for a coordinator's partition
(`server/handlers/shared/checkpoint_pieces.py`); others get UNKNOWN_TOPIC_OR_PARTITION. A snapshot that
was replaced gets SNAPSHOT_NOT_FOUND: the follower fetches entries again and learns which one to take.
Too many downloads at a time get THROTTLING_QUOTA_EXCEEDED, with the time after which to ask again.
Only the internal listener advertises it: Kafka's brokers do not, and clients never send it.
Versions: v1 the follower's directory id, node_endpoints, which a single broker does not need.
Source: KIP-630; Apache Kafka, KafkaRaftClient.java `handleFetchSnapshotRequest`.
"""

from __future__ import annotations

from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    SnapshotPart,
    TopicSnapshot,
    TopicSnapshotParts,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from replog.entry import EMPTY, SnapshotId
from replog.messages import FetchSnapshot, SnapshotBytes
from replog.serving import ANSWER_BYTES_MAX
from server.handlers.shared.checkpoint_pieces import checkpoint_piece, coordinator_partition
from server.handlers.shared.metadata_log import (
    epoch_fault,
    follower_id,
    is_on_internal_listener,
    leader,
    wrong_cluster,
)
from server.handlers.shared.snapshot_answers import PIECE_BYTES_MIN, answer_of, refused_part
from server.metadata.followers import RETRY_SECONDS, FollowerFacts
from server.metadata.store import METADATA_TOPIC
from server.request_context import RequestContext
from storage.files.errors import StorageError


async def handle(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
    """Return bytes of a snapshot. The client has ClusterAction (`server/security/api_rules.py`)."""
    if wrong_cluster(request.cluster_id, context):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=())
    if not is_on_internal_listener(context):
        return _each_unknown(request)
    coordinators = coordinator_partition(request)
    if coordinators is not None:
        return await checkpoint_piece(request, *coordinators, context)
    if not _names_only_the_metadata(request):
        return _each_unknown(request)
    (wanted,) = request.topics[0].partitions
    fault = epoch_fault(wanted.current_leader_epoch, context.broker.metadata_log.term)
    if fault is not None:
        return answer_of(METADATA_TOPIC, refused_part(wanted, fault, leader=_leader(context)))
    return await _piece(request, wanted, context)


def refuse(
    request: FetchSnapshotRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(error_code=error_code, topics=())


async def _piece(
    request: FetchSnapshotRequest, wanted: PartitionSnapshot, context: RequestContext
) -> FetchSnapshotResponse:
    followers, host = context.broker.followers, context.connection.client_host
    facts = followers.seen(follower_id(wanted.replica_directory_id, request.replica_id), host)
    snapshot = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
    if snapshot == EMPTY or wanted.position < 0:
        is_empty = snapshot == EMPTY
        code = ErrorCode.SNAPSHOT_NOT_FOUND if is_empty else ErrorCode.POSITION_OUT_OF_RANGE
        return answer_of(METADATA_TOPIC, refused_part(wanted, code, leader=_leader(context)))
    if not followers.admit(facts.id, snapshot):
        part = refused_part(wanted, ErrorCode.THROTTLING_QUOTA_EXCEEDED, leader=_leader(context))
        return answer_of(METADATA_TOPIC, part, throttle_time_ms=round(RETRY_SECONDS * 1000))
    part = await _read(request, wanted, snapshot, facts, context)
    if part.error_code:
        followers.end_download(facts.id)
    pause_s = followers.charge(len(part.unaligned_records or b""))
    if pause_s:
        context.connection.throttle(pause_s)
    return answer_of(METADATA_TOPIC, part, throttle_time_ms=round(pause_s * 1000))


async def _read(
    request: FetchSnapshotRequest,
    wanted: PartitionSnapshot,
    snapshot: SnapshotId,
    facts: FollowerFacts,
    context: RequestContext,
) -> SnapshotPart:
    broker = context.broker
    asked = FetchSnapshot(snapshot, wanted.position)
    bytes_max = max(PIECE_BYTES_MIN, min(request.max_bytes, ANSWER_BYTES_MAX))
    try:
        answer = await broker.metadata_log.answer_follower(asked, bytes_max)
    except StorageError as error:
        return refused_part(wanted, context.log_failure(error), leader=_leader(context))
    if not isinstance(answer, SnapshotBytes):
        return refused_part(wanted, ErrorCode.SNAPSHOT_NOT_FOUND, leader=_leader(context))
    if answer.position >= answer.size:
        return refused_part(wanted, ErrorCode.POSITION_OUT_OF_RANGE, leader=_leader(context))
    broker.followers.took(facts, answer.position + len(answer.data), answer.size)
    return SnapshotPart(
        index=wanted.partition,
        error_code=ErrorCode.NONE,
        snapshot_id=wanted.snapshot_id,
        current_leader=_leader(context),
        size=answer.size,
        position=answer.position,
        unaligned_records=answer.data,
    )


def _names_only_the_metadata(request: FetchSnapshotRequest) -> bool:
    return [
        (topic.name, [each.partition for each in topic.partitions]) for topic in request.topics[:2]
    ] == [(METADATA_TOPIC, [0])]


def _leader(context: RequestContext) -> LeaderIdAndEpoch:
    found = leader(context)
    return LeaderIdAndEpoch(leader_id=found.leader_id, leader_epoch=found.leader_epoch)


def _each_unknown(request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """Returns the answer in which no partition exists."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def unknown(topic: TopicSnapshot) -> TopicSnapshotParts:
        partitions = lazy_array(lambda wanted: refused_part(wanted, code), topic.partitions)
        return TopicSnapshotParts(name=topic.name, partitions=partitions)

    return FetchSnapshotResponse(
        error_code=ErrorCode.NONE, topics=lazy_array(unknown, request.topics)
    )
