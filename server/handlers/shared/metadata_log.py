"""Lets followers read the metadata's log: partition 0 of `__cluster_metadata` (docs/design/standby.md).

It exists on the listener of `inter.broker.listener.name`, for clients with ClusterAction on the cluster.
Elsewhere nothing has that name, as on the listeners of Kafka's brokers.

    Fetch 12+        entries, a diverging epoch (tag 0), or the snapshot to take (tag 2)
    FetchSnapshot    bytes of that snapshot

Source: KIP-595, KIP-630; Apache Kafka, KafkaRaftClient.java `handleFetchRequest`.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from protocol.messages.fetch import (
    IDS_SINCE,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from protocol.wire.error_codes import ErrorCode
from replog.batches import encode_batch
from replog.entry import EMPTY, FIRST_INDEX
from replog.messages import Answer, Diverging, Entries, Fetch, SnapshotOffered
from replog.serving import ANSWER_BYTES_MAX
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID
from server.request_context import ANY_EPOCH, RequestContext
from server.runtime.tasks import call_later
from server.security.acls import Operation, ResourceType
from storage.files.errors import StorageError
from storage.files.paths import topic_id_text

ENTRIES_SINCE = 12
"""The first version of Fetch that can name the term of the last entry."""
REPLICA_STATE_SINCE = 15
NO_NODE = -1


def is_on_internal_listener(context: RequestContext) -> bool:
    """Returns whether the request came by the listener of `inter.broker.listener.name`."""
    internal = context.broker.config.internal_listener
    return bool(internal) and context.connection.endpoint.name == internal


def may_follow(context: RequestContext) -> bool:
    """Returns whether the metadata's log exists for this client."""
    return is_on_internal_listener(context) and context.may(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )


def follower_id(directory: UUID, node_id: int) -> str:
    """Returns the name of a follower, by what its request says about it."""
    if directory.int:
        return topic_id_text(directory)
    return "unnamed" if node_id == NO_NODE else f"node {node_id}"


def wrong_cluster(cluster_id: str | None, context: RequestContext) -> bool:
    """Returns whether a request names another cluster than ours."""
    return cluster_id is not None and cluster_id != context.broker.node.cluster_id


def epoch_fault(leader_epoch: int, term: int) -> ErrorCode | None:
    """Returns the error code for the leader epoch that a follower expects; None if it is ours."""
    if leader_epoch in (ANY_EPOCH, term):
        return None
    is_old = leader_epoch < term
    return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


def names_only_the_metadata(request: FetchRequest, context: RequestContext) -> bool:
    """Returns whether a fetch is for partition 0 of the metadata and for nothing else."""
    version = context.header.api_version
    if version < ENTRIES_SINCE or len(request.topics) != 1:
        return False
    (topic,) = request.topics
    if version >= IDS_SINCE:
        is_named = topic.topic_id == METADATA_TOPIC_ID
    else:
        is_named = topic.topic == METADATA_TOPIC
    return is_named and [each.partition for each in topic.partitions] == [0]


async def fetch_entries(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Answer a follower: with the entries after its log as soon as there are any, or with what to do.

    Returns None if the connection was lost meanwhile.
    """
    broker, connection = context.broker, context.connection
    if wrong_cluster(request.cluster_id, context):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=())
    (topic,), store = request.topics, broker.metadata_log
    (wanted,) = topic.partitions
    fault = epoch_fault(wanted.current_leader_epoch, store.term)
    if fault is None and (request.max_wait_ms < 0 or wanted.fetch_offset < FIRST_INDEX):
        # The first entry has index 1.
        fault = ErrorCode.INVALID_REQUEST
    if fault is None and wanted.last_fetched_epoch < 0:
        fault = ErrorCode.INVALID_REQUEST
    if fault is not None:
        return _response(request, _refused(fault, context))
    asked = Fetch(wanted.fetch_offset, wanted.last_fetched_epoch)
    has_state = context.header.api_version >= REPLICA_STATE_SINCE
    node_id = request.replica_state.replica_id if has_state else request.replica_id
    follower = follower_id(wanted.replica_directory_id, node_id)
    broker.followers.seen(follower, connection.client_host, asked.end)
    try:
        answer = await _answer_when_there_is_one(request, wanted, asked, context)
    except StorageError as error:
        return _response(request, _refused(context.log_failure(error), context))
    if connection.is_lost:
        return None
    data = await _partition_data(answer, context)
    pause_s = broker.followers.charge(len(data.records or b""))
    if pause_s:
        connection.throttle(pause_s)
    return _response(request, data, throttle_time_ms=round(pause_s * 1000))


async def _answer_when_there_is_one(
    request: FetchRequest, wanted: FetchPartition, asked: Fetch, context: RequestContext
) -> Answer:
    """Returns the answer; if there are no entries, waits for some until the fetch times out."""
    broker, connection = context.broker, context.connection
    sizes = (request.max_bytes, wanted.partition_max_bytes, broker.config.fetch_max_bytes)
    bytes_max = max(0, min(*sizes, ANSWER_BYTES_MAX))
    store, clock = broker.metadata_log, broker.clock
    deadline_s = clock.monotonic() + request.max_wait_ms / 1000
    parked = ParkedFollower(store)
    connection.park(parked)
    try:
        while True:
            answer = await store.answer_follower(asked, bytes_max)
            is_at_end = isinstance(answer, Entries) and not answer.frames
            rest_s = deadline_s - clock.monotonic()
            if not is_at_end or rest_s <= 0 or connection.is_ending:
                return answer
            await parked.wait(asked.end, rest_s)
    finally:
        connection.park(None)


class ParkedFollower:
    """A follower's fetch that waits for the next entry."""

    __slots__ = ("_future", "_store")

    def __init__(self, store: EmbeddedMetadataStore) -> None:
        self._store = store
        self._future: asyncio.Future[None] | None = None

    async def wait(self, end: int, timeout_s: float) -> None:
        """Wait until the log is longer than `end`, `cancel` is called or the timeout passes."""
        if self._store.log_end > end:
            return
        self._future = asyncio.get_running_loop().create_future()
        timer = call_later(timeout_s, "follower's fetch", self.cancel)
        news = self._store.news()

        def wake(_: asyncio.Future[None]) -> None:
            self.cancel()

        news.add_done_callback(wake)
        try:
            await self._future
        finally:
            news.remove_done_callback(wake)
            timer.cancel()
            self._future = None

    def cancel(self) -> None:
        """End the wait early."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


def leader(context: RequestContext) -> LeaderIdAndEpoch:
    """Returns the leader of the metadata's log: this broker, in its present term.

    A fenced broker names no leader, in the term in which it would lead. All that it has acknowledged is
    in its logs, whose ends no longer change.
    """
    broker = context.broker
    leader_id = NO_NODE if broker.is_fenced else broker.node.controller_id
    return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=broker.metadata_log.term)


async def _partition_data(answer: Answer, context: RequestContext) -> PartitionData:
    if isinstance(answer, SnapshotOffered) and answer.snapshot == EMPTY:
        # There is no snapshot yet, so the follower's first entries are not ours.
        answer = Diverging(answer.leader_term, Fetch(0, 0), EMPTY.term, EMPTY.end)
    records = b""
    told: dict[str, EpochEndOffset | SnapshotId] = {}
    if isinstance(answer, Entries):
        batches = [encode_batch(each) async for each in context.pace.paced(answer.frames)]
        records = b"".join(batches)
    elif isinstance(answer, Diverging):
        told["diverging_epoch"] = EpochEndOffset(epoch=answer.term, end_offset=answer.end)
    else:
        assert isinstance(answer, SnapshotOffered), "the metadata's snapshots are files"
        offered = answer.snapshot
        told["snapshot_id"] = SnapshotId(end_offset=offered.end, epoch=offered.term)
    return _data(ErrorCode.NONE, context, records, told)


def _refused(error_code: ErrorCode, context: RequestContext) -> PartitionData:
    return _data(error_code, context, b"", {})


def _data(
    error_code: ErrorCode,
    context: RequestContext,
    records: bytes,
    told: dict[str, EpochEndOffset | SnapshotId],
) -> PartitionData:
    store = context.broker.metadata_log
    return PartitionData(
        partition_index=0,
        error_code=error_code,
        high_watermark=store.log_end,
        log_start_offset=store.log_start,
        current_leader=leader(context),
        records=records,
        **told,  # type: ignore[arg-type]
    )


def _response(
    request: FetchRequest, data: PartitionData, *, throttle_time_ms: int = 0
) -> FetchResponse:
    (topic,) = request.topics
    answered = FetchableTopicResponse(
        topic=topic.topic, topic_id=topic.topic_id, partitions=(data,)
    )
    return FetchResponse(throttle_time_ms=throttle_time_ms, responses=(answered,))
