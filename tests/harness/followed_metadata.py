"""A leader's metadata log with its snapshots, and a standby's copy of it on another disk.

The answers pass as the bytes that travel, so that a test may change them on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cli.standby.metadata_copy import MetadataCopy
from cli.standby.requests import Answered, Refused, fetch_answer, snapshot_answer
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.fetch import SnapshotId as OfferedId
from protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    SnapshotId,
    SnapshotPart,
    TopicSnapshotParts,
)
from protocol.messages.fetch_snapshot import LeaderIdAndEpoch as SnapshotLeader
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.schema import Message
from replog.batches import encode_batch
from replog.entry import Kind
from replog.independent import Independent
from replog.messages import (
    Answer,
    Diverging,
    Entries,
    Fetch,
    FetchSnapshot,
    Request,
    SnapshotBytes,
    SnapshotOffered,
)
from replog.replica import Replica
from replog.serving import answer
from replog.trigger import CompactionSettings
from server.metadata.machine import MetadataMachine, Operation, encode_command
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID
from tests.harness.memory_fs import MemoryFileSystem

DIRECTORY = "/data/metadata"
ANSWER_BYTES = 300
"""Of an answer, so that a snapshot takes several."""
FETCH_VERSION, SNAPSHOT_VERSION = FetchResponse.versions[1], FetchSnapshotResponse.versions[1]
SETTINGS = CompactionSettings(catchup_entries=0)

STEPS_MAX = 10_000

Change = Callable[[bytes], bytes]
"""What happens to bytes on their way."""


def unchanged(data: bytes) -> bytes:
    return data


def new_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


class MetadataLeader:
    """A leader; remembers the digest that its state had at each end."""

    def __init__(self) -> None:
        disk = new_disk()
        self.replica = Replica(disk, DIRECTORY, MetadataMachine(), clock_ms=lambda: 0.0)
        self._compactor = Independent(self.replica, SETTINGS)
        self.replica.open()
        self._compactor.opened()
        self.replica.lead(1)
        self.digests = {self.replica.log.end: self.replica.machine.digest()}

    def append(self, *transactions: list[Operation]) -> None:
        """Append transactions in one frame; a follower's log never ends within."""
        self.replica.append([(Kind.COMMAND, encode_command(each)) for each in transactions])
        self.replica.apply_confirmed()
        self.digests[self.replica.log.end] = self.replica.machine.digest()

    def lead_again(self) -> None:
        """Begin another term."""
        self.replica.follow()
        self.replica.lead(self.replica.term + 1)

    def snapshot(self) -> None:
        """Make a snapshot, and drop the entries that it covers."""
        self._compactor.begin()
        while self._compactor.step():
            pass
        self._compactor.finish()

    def answer(self, request: Request, change: Change = unchanged) -> bytes:
        """Returns the response to a request.

        Args:
            change: of the records or of the snapshot's bytes in it.
        """
        found = answer(self.replica, request, ANSWER_BYTES)
        if isinstance(found, SnapshotBytes) and found.data:
            return bytes_of(_piece(found, change(found.data)))
        if isinstance(request, FetchSnapshot):
            # It is gone, or the position is not within: a follower does the same about both.
            gone = SnapshotBytes(found.leader_term, request.snapshot, request.position, b"", 0)
            return bytes_of(_piece(gone, b"", ErrorCode.SNAPSHOT_NOT_FOUND))
        records = b""
        if isinstance(found, Entries):
            records = change(b"".join(map(encode_batch, found.frames)))
        return bytes_of(self._fetched(found, records))

    def _fetched(self, found: Answer, records: bytes) -> FetchResponse:
        data = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=self.replica.log.end,
            log_start_offset=self.replica.log.start,
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=found.leader_term),
            records=records,
        )
        if isinstance(found, Diverging):
            told = EpochEndOffset(epoch=found.term, end_offset=found.end)
            data = replace(data, diverging_epoch=told)
        if isinstance(found, SnapshotOffered):
            offered = OfferedId(end_offset=found.snapshot.end, epoch=found.snapshot.term)
            data = replace(data, snapshot_id=offered)
        topic = FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(data,))
        return FetchResponse(responses=(topic,))


def _piece(
    found: SnapshotBytes, data: bytes, error_code: ErrorCode = ErrorCode.NONE
) -> FetchSnapshotResponse:
    part = SnapshotPart(
        index=0,
        error_code=error_code,
        snapshot_id=SnapshotId(end_offset=found.snapshot.end, epoch=found.snapshot.term),
        current_leader=SnapshotLeader(leader_id=1, leader_epoch=found.leader_term),
        size=found.size,
        position=found.position,
        unaligned_records=data,
    )
    topic = TopicSnapshotParts(name=METADATA_TOPIC, partitions=(part,))
    return FetchSnapshotResponse(error_code=0, topics=(topic,))


def bytes_of(response: Message) -> bytes:
    """Returns a response without regions of files, in its last version."""
    parts = encode(response, response.versions[1])
    return b"".join(each for each in parts if isinstance(each, bytes | bytearray | memoryview))


class FollowedMetadata:
    """A standby's copy; `step` is one request with its answer."""

    def __init__(self, leader: MetadataLeader) -> None:
        self.leader = leader
        self.disk = new_disk()
        self.now_s = 0.0
        self._start()

    def _start(self) -> None:
        self.copy = MetadataCopy(self.disk, DIRECTORY, SETTINGS, clock=lambda: self.now_s)
        self.facts = self.copy.open()

    def restart(self) -> None:
        """Stop the standby, and start it again."""
        self.copy.close()
        self._start()

    def step(self, payload: Change = unchanged, response: Change = unchanged) -> None:
        """Ask once.

        Args:
            payload: what happens to the records or the snapshot's bytes before they are sent.
            response: what happens to the response on its way.

        Raises:
            ProtocolError: the response is refused.
            Refused: it is an error.
            StorageError: the standby would end.
        """
        request = self.copy.request()
        data = response(self.leader.answer(request, payload))
        self.facts = self.copy.receive(answer_in(request, data).answer)

    def catch_up(self) -> None:
        """Follow until the copy has everything."""
        for _ in range(STEPS_MAX):
            if self.facts.end == self.leader.replica.log.end:
                return
            try:
                self.step()
            except Refused:
                # A bogus snapshot was offered before, and this leader does not have it.
                self.copy.give_up_snapshot()
            except ProtocolError:
                # What was downloaded before is damaged, and is fetched again.
                continue
        raise AssertionError(f"the copy never catches up: {self.facts}")


def answer_in(request: Request, data: bytes) -> Answered:
    """Returns what the bytes of a response say. Raises ProtocolError, Refused."""
    if isinstance(request, Fetch):
        return fetch_answer(request, decode(FetchResponse, FETCH_VERSION, memoryview(data)))
    response = decode(FetchSnapshotResponse, SNAPSHOT_VERSION, memoryview(data))
    return snapshot_answer(request, response)
