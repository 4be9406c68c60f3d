"""A follower's requests as Kafka's messages, and their answers (docs/design/standby.md, "The wire").

    replog/messages.py          on the wire
    Fetch(end, last_term)       Fetch: fetch offset, last fetched epoch
    FetchSnapshot               FetchSnapshot: snapshot id, position

What a leader answers is checked here, so that `replog/following.py` gets only what fits to the request.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from cleaner.rules.text import count_text
from protocol.messages import fetch_snapshot
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotPart,
    TopicSnapshot,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.schema import copied
from replog.batches import decode_batches
from replog.entry import FIRST_INDEX, Frame, SnapshotId
from replog.messages import Answer, Diverging, Entries, Fetch, FetchSnapshot, SnapshotBytes
from replog.messages import SnapshotOffered as Offered
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID

WAIT_MS_MAX = 1_000
"""How long the leader waits for the next entry."""
BYTES_MAX = 1 << 20
NOT_A_NODE = ReplicaState()
UNKNOWN_EPOCH = -1


class Refused(Exception):
    """The leader answered with an error."""

    def __init__(self, code: int, term: int = UNKNOWN_EPOCH, throttle_ms: int = 0) -> None:
        self.code = ErrorCode.from_wire(code)
        super().__init__(f"{self.code.name}: {self.code.message}")
        self.term = term
        """The leader's term; -1 if it did not say."""
        self.throttle_ms = throttle_ms
        """How long to wait before the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """What a follower says about itself in each request."""

    directory_id: uuid.UUID
    cluster_id: str
    term: int
    """The leader's term, as far as the follower knows it; -1 if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A leader's answer, and what it says besides."""

    answer: Answer
    term: int
    end: int | None
    """Where the leader's log ends, if it says so."""
    throttle_ms: int


def fetch_request(asked: Fetch, asker: Asker) -> FetchRequest:
    """Returns the request for the entries from `asked.end` on."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=asker.term,
        fetch_offset=asked.end,
        last_fetched_epoch=asked.last_term,
        partition_max_bytes=BYTES_MAX,
        replica_directory_id=asker.directory_id,
    )
    topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(
        cluster_id=asker.cluster_id,
        max_wait_ms=WAIT_MS_MAX,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        topics=(topic,),
    )


def fetch_answer(asked: Fetch, response: FetchResponse) -> Answered:
    """Returns what a leader answers to a fetch.

    Raises:
        Refused: an error.
        ProtocolError: no answer to this request.
    """
    check_code(response.error_code, response.throttle_time_ms)
    partitions = [each for topic in response.responses for each in topic.partitions]
    if len(partitions) != 1:
        raise ProtocolError(f"an answer about {count_text(len(partitions), 'partition')}")
    (data,) = partitions
    term = data.current_leader.leader_epoch
    check_code(data.error_code, response.throttle_time_ms, term)
    answer = _answer(asked, data, term)
    return Answered(
        answer=answer, term=term, end=data.high_watermark, throttle_ms=response.throttle_time_ms
    )


def _answer(asked: Fetch, data: PartitionData, term: int) -> Answer:
    offered = SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch)
    diverging = data.diverging_epoch
    if offered.end != -1:
        if offered.end <= FIRST_INDEX or not 0 < offered.term <= term:
            raise ProtocolError(f"a snapshot that ends at {offered.end} in term {offered.term}")
        return Offered(term, offered, 0)
    if diverging.end_offset != -1:
        if diverging.end_offset < FIRST_INDEX or not 0 <= diverging.epoch <= term:
            raise ProtocolError(f"a log that diverges at {diverging.end_offset}")
        return Diverging(term, asked, diverging.epoch, diverging.end_offset)
    frames = decode_batches(copied(data.records or b""))
    _check_frames(asked, frames, term)
    return Entries(term, asked, frames)


def _check_frames(asked: Fetch, frames: list[Frame], term: int) -> None:
    if not frames:
        return
    first, last = frames[0], frames[-1]
    # A log always ends with a whole frame, so the next one begins there. The CRC of a batch does not
    # cover its offset: of a frame that seems to begin before, another part would be taken.
    if first.index != asked.end:
        raise ProtocolError(f"entries from {first.index} on, asked for those from {asked.end} on")
    if not asked.last_term <= first.term or not last.term <= term:
        raise ProtocolError(f"entries of the terms {first.term} to {last.term} in term {term}")


def snapshot_request(asked: FetchSnapshot, asker: Asker) -> FetchSnapshotRequest:
    """Returns the request for the next bytes of a snapshot."""
    return part_request(METADATA_TOPIC, 0, asked.snapshot, asked.position, asker)


def part_request(
    name: str, partition: int, snapshot: SnapshotId, position: int, asker: Asker
) -> FetchSnapshotRequest:
    """Returns the request for bytes of one snapshot of a partition."""
    wanted = PartitionSnapshot(
        partition=partition,
        current_leader_epoch=asker.term,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end, epoch=snapshot.term),
        position=position,
        replica_directory_id=asker.directory_id,
    )
    topic = TopicSnapshot(name=name, partitions=(wanted,))
    return FetchSnapshotRequest(cluster_id=asker.cluster_id, max_bytes=BYTES_MAX, topics=(topic,))


def snapshot_answer(asked: FetchSnapshot, response: FetchSnapshotResponse) -> Answered:
    """Returns what a leader answers to the request for a snapshot's bytes. Raises as `fetch_answer`."""
    part = only_part(response, "snapshot")
    term = part.current_leader.leader_epoch
    return Answered(
        answer=_bytes(asked, part, term),
        term=term,
        end=None,
        throttle_ms=response.throttle_time_ms,
    )


def only_part(response: FetchSnapshotResponse, noun: str) -> SnapshotPart:
    """Returns what a leader answers about the only partition asked for.

    Raises:
        Refused: an error.
        ProtocolError: it is about another number of partitions.
    """
    check_code(response.error_code, response.throttle_time_ms)
    parts = [each for topic in response.topics for each in topic.partitions]
    if len(parts) != 1:
        raise ProtocolError(f"an answer about {count_text(len(parts), noun)}")
    (part,) = parts
    check_code(part.error_code, response.throttle_time_ms, part.current_leader.leader_epoch)
    return part


def _bytes(asked: FetchSnapshot, part: SnapshotPart, term: int) -> SnapshotBytes:
    snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    data = copied(part.unaligned_records or b"")
    if (snapshot, part.position) != (asked.snapshot, asked.position):
        raise ProtocolError(f"bytes of {snapshot} from {part.position} on, asked for {asked}")
    if not data or part.position + len(data) > part.size:
        raise ProtocolError(f"{count_text(len(data), 'byte')} of a snapshot of {part.size}")
    return SnapshotBytes(term, snapshot, part.position, data, part.size)


def check_term(asker: Asker, answered: Answered) -> None:
    """Raise ProtocolError if a leader has answered in another term than the one asked for.

    It refuses such a request instead; a wrong term would make a follower ignore what comes later.
    """
    if asker.term not in (UNKNOWN_EPOCH, answered.term):
        raise ProtocolError(f"an answer in term {answered.term} to a request in term {asker.term}")


def check_code(code: int, throttle_ms: int, term: int = UNKNOWN_EPOCH) -> None:
    """Raise Refused if the code is an error."""
    if code:
        raise Refused(code, term, throttle_ms)
