"""Answers FetchSnapshot for a coordinator's partition: pieces of its checkpoint, for standbys.

    snapshot id (-1, -1)        the newest checkpoint, whose first bytes are answered; the request's
                                position says where it must end, or later. If the broker has no such
                                one, it is made now; if that takes long, the follower asks again
    (end offset, last epoch)    bytes of that one, from the position on

The internal listener only, for clients with ClusterAction (docs/design/standby.md).
"""

from __future__ import annotations

from math import ceil

from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    SnapshotPart,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.checkpoint_offers import OfferId, Piece
from server.coordination.coordinator_topic import (
    OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    CoordinatorTopic,
)
from server.handlers.shared.metadata_log import follower_id
from server.handlers.shared.snapshot_answers import PIECE_BYTES_MIN, answer_of, refused_part
from server.metadata.followers import RETRY_SECONDS
from server.request_context import RequestContext
from storage.files.errors import StorageError
from storage.log.log import PartitionLog

COORDINATOR_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
NEWEST = -1
"""The end offset and the epoch that ask for the newest checkpoint."""
PATIENCE_SECONDS = 10.0
"""How long a request waits for a checkpoint that is being made."""
PIECE_BYTES_MAX = 1 << 20


class _Later(Exception):
    """The follower should ask again."""


class _Refused(Exception):
    """The follower gets an error."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code)
        self.error_code = error_code


def coordinator_partition(request: FetchSnapshotRequest) -> tuple[str, PartitionSnapshot] | None:
    """Returns the coordinator's topic and the partition that a request names, if only that one."""
    named = [(topic.name, topic.partitions[:2]) for topic in request.topics[:2]]
    if len(named) != 1 or named[0][0] not in COORDINATOR_TOPICS or len(named[0][1]) != 1:
        return None
    (name, (wanted,)) = named[0]
    return name, wanted


async def checkpoint_piece(
    request: FetchSnapshotRequest, name: str, wanted: PartitionSnapshot, context: RequestContext
) -> FetchSnapshotResponse:
    """Return bytes of a checkpoint. The caller has checked the listener and the cluster's id."""
    followers = context.broker.followers
    follower = follower_id(wanted.replica_directory_id, request.replica_id)
    download = f"{follower} {name}-{wanted.partition}"
    if not followers.admit(download):
        return _response(
            name, refused_part(wanted, ErrorCode.THROTTLING_QUOTA_EXCEEDED), RETRY_SECONDS
        )
    try:
        piece = await _piece(request, name, wanted, context)
    except _Later:
        return _response(
            name, refused_part(wanted, ErrorCode.THROTTLING_QUOTA_EXCEEDED), RETRY_SECONDS
        )
    except _Refused as refused:
        followers.end_download(download)
        return _response(name, refused_part(wanted, refused.error_code))
    except StorageError as error:
        followers.end_download(download)
        return _response(name, refused_part(wanted, context.log_failure(error)))
    is_last = piece.position + len(piece.data) >= piece.size
    if is_last:
        followers.end_download(download)
    followers.took_checkpoint(follower, context.connection.client_host, name, is_last=is_last)
    pause_s = followers.charge(len(piece.data))
    if pause_s:
        context.connection.throttle(pause_s)
    return _response(name, _part(wanted, piece), pause_s)


async def _piece(
    request: FetchSnapshotRequest, name: str, wanted: PartitionSnapshot, context: RequestContext
) -> Piece:
    topic, log = _served(name, wanted, context)
    upkeep = context.broker.checkpoints
    assert upkeep is not None
    asked, position = wanted.snapshot_id, wanted.position
    if position < 0:
        raise _Refused(ErrorCode.POSITION_OUT_OF_RANGE)
    if asked.end_offset == asked.epoch == NEWEST:
        task = await upkeep.newest(topic, log, position, PATIENCE_SECONDS)
        if not task.done():
            raise _Later
        found = task.result()
        if found is not None and found.end_offset < position:
            raise _Later  # It was made for a follower that needed less.
        position = 0
    else:
        found = OfferId(
            topic_id=log.topic_id,
            partition=wanted.partition,
            end_offset=asked.end_offset,
            last_epoch=asked.epoch,
        )
    size = max(PIECE_BYTES_MIN, min(request.max_bytes, PIECE_BYTES_MAX))
    piece = None if found is None else await upkeep.offers.read(log, found, position, size)
    if piece is None:
        raise _Refused(ErrorCode.SNAPSHOT_NOT_FOUND)
    if position >= piece.size:
        raise _Refused(ErrorCode.POSITION_OUT_OF_RANGE)
    return piece


def _served(
    name: str, wanted: PartitionSnapshot, context: RequestContext
) -> tuple[CoordinatorTopic, PartitionLog]:
    """Returns the topic and the log, once the coordinator has loaded the partition."""
    log = context.log_of(name, wanted.partition, wanted.current_leader_epoch)
    if isinstance(log, ErrorCode):
        raise _Refused(log)
    upkeep = context.broker.checkpoints
    served = None if upkeep is None else upkeep.served(name, wanted.partition)
    if served is None or served[1] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        raise _Later
    topic, error_code = served
    if error_code is not ErrorCode.NONE:
        raise _Refused(error_code)
    return topic, log


def _part(wanted: PartitionSnapshot, piece: Piece) -> SnapshotPart:
    return SnapshotPart(
        index=wanted.partition,
        error_code=ErrorCode.NONE,
        snapshot_id=SnapshotId(end_offset=piece.id.end_offset, epoch=piece.id.last_epoch),
        size=piece.size,
        position=piece.position,
        unaligned_records=piece.data,
    )


def _response(name: str, part: SnapshotPart, pause_s: float = 0.0) -> FetchSnapshotResponse:
    return answer_of(name, part, throttle_time_ms=ceil(pause_s * 1000))
