"""Answers to FetchSnapshot: about one partition, with bytes or with an error."""

from __future__ import annotations

from protocol.messages.fetch_snapshot import (
    NO_LEADER,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    SnapshotPart,
    TopicSnapshotParts,
)
from protocol.wire.error_codes import ErrorCode

PIECE_BYTES_MIN = 64 << 10
"""A follower gets at least this much, even if it asks for less, so that every download ends."""


def refused_part(
    wanted: PartitionSnapshot, error_code: ErrorCode, *, leader: LeaderIdAndEpoch = NO_LEADER
) -> SnapshotPart:
    """Returns the error about one partition."""
    return SnapshotPart(
        index=wanted.partition,
        error_code=error_code,
        snapshot_id=wanted.snapshot_id,
        current_leader=leader,
        size=0,
        position=wanted.position,
        unaligned_records=b"",
    )


def answer_of(name: str, part: SnapshotPart, *, throttle_time_ms: int = 0) -> FetchSnapshotResponse:
    """Returns the answer about one partition of a topic."""
    topic = TopicSnapshotParts(name=name, partitions=(part,))
    return FetchSnapshotResponse(
        throttle_time_ms=throttle_time_ms, error_code=ErrorCode.NONE, topics=(topic,)
    )
