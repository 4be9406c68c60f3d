"""The leader's side of replication: it answers what followers ask, and keeps nothing about them.

Source: Apache Kafka, KIP-595 (diverging epochs) and KIP-630 (FetchSnapshot); Ongaro, section 5.
"""

from __future__ import annotations

from replog.entry import Frame, SnapshotId
from replog.messages import (
    Answer,
    Diverging,
    Entries,
    Fetch,
    FetchSnapshot,
    LogOffered,
    Request,
    SnapshotBytes,
    SnapshotOffered,
)
from replog.replica import Replica, Role
from replog.tail import Tail
from storage.files.errors import MissingFile

ANSWER_BYTES_MAX = 1 << 20


def answer(
    replica: Replica,
    request: Request,
    bytes_max: int = ANSWER_BYTES_MAX,
    tail: Tail | None = None,
) -> Answer:
    """Returns the leader's answer. At least one frame or byte, also beyond `bytes_max`.

    Args:
        tail: the last frames of the log, if they are in memory.
    """
    assert replica.role is Role.LEADER
    if isinstance(request, FetchSnapshot):
        return _snapshot_bytes(replica, request, bytes_max)
    log = replica.log
    if request.end > log.end:
        return _diverging(replica, request)
    if request.end < log.start:
        return _instead_of_entries(replica)
    known = None if tail is None else tail.term_at(request.end - 1)
    if (log.term_at(request.end - 1) if known is None else known) != request.last_term:
        is_begin = request.end == log.start
        return _instead_of_entries(replica) if is_begin else _diverging(replica, request)
    return Entries(replica.term, request, _frames(replica, request.end, bytes_max, tail))


def _frames(replica: Replica, start: int, bytes_max: int, tail: Tail | None) -> list[Frame]:
    found: list[Frame] = []
    size = 0
    in_memory = None if tail is None else tail.since(start)
    for frame in replica.log.frames(start) if in_memory is None else in_memory:
        size += sum(len(payload) for _, payload in frame.contents)
        if found and size > bytes_max:
            break
        found.append(frame)
    return found


def _diverging(replica: Replica, request: Fetch) -> Diverging:
    term, end = replica.log.end_of_term(request.last_term)
    return Diverging(replica.term, request, term, end)


def _instead_of_entries(replica: Replica) -> Answer:
    if replica.is_snapshot_in_log:
        return LogOffered(replica.term, replica.log.start, replica.log.previous_term)
    return _offered(replica)


def _offered(replica: Replica) -> SnapshotOffered:
    return SnapshotOffered(replica.term, replica.snapshot, replica.snapshot_bytes)


def _snapshot_bytes(replica: Replica, request: FetchSnapshot, bytes_max: int) -> Answer:
    try:
        file = replica.files.open(replica.checkpoints.path(request.snapshot))
    except MissingFile:
        return _replacement(replica, request.snapshot)
    try:
        data = file.read_at(request.position, bytes_max)
        return SnapshotBytes(replica.term, request.snapshot, request.position, data, file.size)
    finally:
        file.close()


def _replacement(replica: Replica, asked: SnapshotId) -> Answer:
    """Returns what to take instead of a snapshot that is gone."""
    assert asked != replica.snapshot, "the last snapshot is there"
    return _instead_of_entries(replica)
