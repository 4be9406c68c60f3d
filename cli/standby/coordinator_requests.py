"""A standby's requests for the coordinators' partitions as Kafka's messages, and their answers.

Fetch           many partitions, each from its copy's end; whole batches
FetchSnapshot   one partition's checkpoint: (-1, -1) asks for the newest one that ends at the position
                or later, an id for the bytes from the position on
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleaner.rules.text import count_text
from cli.standby.requests import (
    BYTES_MAX,
    UNKNOWN_EPOCH,
    Asker,
    Refused,
    check_code,
    only_part,
    part_request,
)
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.schema import copied
from replog.entry import SnapshotId

ANSWER_BYTES_MAX = 4 * BYTES_MAX
"""The most bytes of all partitions in an answer, unless the first batch is larger."""
NEWEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionId:
    """A partition of a topic that has existed with this id."""

    name: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a copy ends."""

    id: PartitionId
    end: int
    last_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a leader answers about one partition."""

    id: PartitionId
    error_code: int
    high_watermark: int
    log_start_offset: int
    is_diverging: bool
    records: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPiece:
    """The bytes of a checkpoint to ask for."""

    id: PartitionId
    snapshot: SnapshotId | None
    """None for the newest."""
    position: int
    """In the checkpoint; of the newest, where it must end at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPiece:
    """Bytes of a checkpoint."""

    snapshot: SnapshotId
    position: int
    data: bytes
    size: int
    throttle_ms: int


def fetch_request(
    places: Sequence[Place], cluster_id: str, directory_id: uuid.UUID, *, max_wait_ms: int
) -> FetchRequest:
    """Returns the request for what follows these places, in this order."""
    by_topic: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
    for each in places:
        partitions = by_topic.setdefault((each.id.name, each.id.topic_id), [])
        partitions.append(
            FetchPartition(
                partition=each.id.partition,
                fetch_offset=each.end,
                last_fetched_epoch=each.last_epoch,
                partition_max_bytes=BYTES_MAX,
                replica_directory_id=directory_id,
            )
        )
    return FetchRequest(
        cluster_id=cluster_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=ANSWER_BYTES_MAX,
        topics=tuple(
            FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
            for (name, topic_id), partitions in by_topic.items()
        ),
    )


def fetch_answer(places: Iterable[Place], response: FetchResponse) -> list[Fetched]:
    """Returns the answers about these places, in the answer's order.

    Raises:
        Refused: an error about all of them.
        ProtocolError: no answer to this request.
    """
    check_code(response.error_code, response.throttle_time_ms)
    asked = {(each.id.topic_id, each.id.partition): each.id for each in places}
    found = []
    for topic in response.responses:
        for data in topic.partitions:
            its = asked.pop((topic.topic_id, data.partition_index), None)
            if its is None:
                raise ProtocolError(f"an answer about partition {data.partition_index}, not asked")
            found.append(_fetched(its, data))
    return found


def _fetched(its: PartitionId, data: PartitionData) -> Fetched:
    return Fetched(
        id=its,
        error_code=data.error_code,
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
        is_diverging=data.diverging_epoch.end_offset != -1,
        records=copied(data.records or b""),
    )


def piece_request(
    wanted: WantedPiece, cluster_id: str, directory_id: uuid.UUID
) -> FetchSnapshotRequest:
    """Returns the request for bytes of a checkpoint."""
    snapshot = wanted.snapshot or SnapshotId(NEWEST, NEWEST)
    asker = Asker(directory_id=directory_id, cluster_id=cluster_id, term=UNKNOWN_EPOCH)
    return part_request(wanted.id.name, wanted.id.partition, snapshot, wanted.position, asker)


def piece_answer(wanted: WantedPiece, response: FetchSnapshotResponse) -> ReceivedPiece:
    """Returns the bytes that a leader answers.

    Raises:
        Refused: an error.
        ProtocolError: no answer to this request.
    """
    part, throttle_ms = only_part(response, "checkpoint"), response.throttle_time_ms
    snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    position = 0 if wanted.snapshot is None else wanted.position
    data = copied(part.unaligned_records or b"")
    if part.position != position or wanted.snapshot not in (None, snapshot):
        raise ProtocolError(f"bytes of {snapshot} from {part.position} on, asked for {wanted}")
    if wanted.snapshot is None and snapshot.end < wanted.position:
        raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, throttle_ms=throttle_ms)
    if not data or position + len(data) > part.size:
        raise ProtocolError(f"{count_text(len(data), 'byte')} of a checkpoint of {part.size}")
    return ReceivedPiece(
        snapshot=snapshot, position=position, data=data, size=part.size, throttle_ms=throttle_ms
    )
