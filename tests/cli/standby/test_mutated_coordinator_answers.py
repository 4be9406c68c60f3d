"""A leader's answers about a coordinator's partition, damaged on their way: the copy refuses them, or
has a state that the leader has had at that end.

`KOMPAKT_FUZZ_RUNS` makes a longer soak, `KOMPAKT_FUZZ_SEED` selects other inputs.
"""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from cli.standby.coordinator_copies import CoordinatorCopies
from cli.standby.coordinator_requests import Place, WantedPiece, fetch_answer, piece_answer
from cli.standby.requests import Refused
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    SnapshotId,
    SnapshotPart,
    TopicSnapshotParts,
)
from protocol.wire.decode import decode
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Epoch, Offset
from protocol.wire.schema import Message
from replog.trigger import CompactionSettings
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.standby.followed_topics import FollowedTopic
from server.standby.partition_copy import PartitionCopy
from storage.files.errors import StorageError
from storage.segment.reader import Isolation
from tests.cli.standby.answer_changes import ON_THE_WAY
from tests.harness.checkpointed_log import CheckpointedLog, Clean, State
from tests.harness.followed_log import copy_state, snapshot_of
from tests.harness.followed_metadata import bytes_of
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_model import Commit, Tombstones

RUNS = max(150, int(os.environ.get("KOMPAKT_FUZZ_RUNS", "0")) // 20)
SEED = os.environ.get("KOMPAKT_FUZZ_SEED", "1")
STEPS, STEPS_MAX = 15, 1_000
FETCH_BYTES, PIECE_BYTES = 400, 300
TOPIC = FollowedTopic(name=OFFSETS_TOPIC, id=uuid.UUID(int=1), partitions_count=1)

M = TypeVar("M", bound=Message)
Sent = Callable[[bytes], bytes]


def unchanged(data: bytes) -> bytes:
    return data


class Leader:
    """A log that was cleaned up to its middle, its checkpoint, and the states that it has had."""

    def __init__(self) -> None:
        self.log = CheckpointedLog()
        self.states: dict[int, State] = {0: self.log.state()}
        for number in range(8):
            self._play(Commit("a", (0, number)))
        self._play(Tombstones("a", (3,)))
        self.log.change(Clean(1_000_000))
        for number in range(6):
            self._play(Commit("b", (0, number)))
        self.log.make()
        checkpoint = self.log.checkpoint
        assert checkpoint is not None
        self.checkpoint = checkpoint

    @property
    def end(self) -> int:
        return self.log.log.high_watermark

    def _play(self, event: Commit | Tombstones) -> None:
        self.log.play(event)
        self.states[self.end] = self.log.state()

    def fetched(self, place: Place, change: Sent) -> bytes:
        """Returns the response to a fetch."""
        read = self.log.log.reader.read(
            Offset(place.end),
            max_bytes=FETCH_BYTES,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
            last_fetched_epoch=Epoch(place.last_epoch),
        )
        if isinstance(read, ErrorCode):
            return fetch_response(error_code=read, high_watermark=-1, records=b"")
        records = b"".join(region.read_bytes() for region in read.regions)
        read.release()
        diverging = {}
        if read.diverging_epoch is not None:
            epoch, end = read.diverging_epoch
            diverging["diverging_epoch"] = EpochEndOffset(epoch=epoch, end_offset=end)
        return fetch_response(
            error_code=0,
            high_watermark=read.high_watermark,
            log_start_offset=read.log_start_offset,
            records=change(records),
            **diverging,
        )

    def piece(self, wanted: WantedPiece, change: Sent) -> bytes:
        """Returns the response to the request for bytes of the checkpoint."""
        snapshot = snapshot_of(self.checkpoint)
        position = 0 if wanted.snapshot is None else wanted.position
        is_there = wanted.snapshot in (None, snapshot) and position < len(self.checkpoint)
        part = SnapshotPart(
            index=0,
            error_code=ErrorCode.NONE if is_there else ErrorCode.SNAPSHOT_NOT_FOUND,
            snapshot_id=SnapshotId(end_offset=snapshot.end, epoch=snapshot.term),
            size=len(self.checkpoint),
            position=position,
            unaligned_records=change(self.checkpoint[position : position + PIECE_BYTES]),
        )
        topic = TopicSnapshotParts(name=TOPIC.name, partitions=(part,))
        return bytes_of(FetchSnapshotResponse(error_code=0, topics=(topic,)))


def fetch_response(**fields: Any) -> bytes:
    data = PartitionData(partition_index=0, **fields)
    topic = FetchableTopicResponse(topic_id=TOPIC.id, partitions=(data,))
    return bytes_of(FetchResponse(responses=(topic,)))


def in_bytes(kind: type[M], data: bytes) -> M:
    return decode(kind, kind.versions[1], memoryview(data))


class World:
    """A copy of one partition that follows."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.now_s = 0.0
        self.disk = MemoryFileSystem()
        self.disk.make_directory("copy")
        self.disk.sync_directory("/")
        self._start()

    def _start(self) -> None:
        self.copies = CoordinatorCopies(
            self.disk, "copy", CompactionSettings(), clock=lambda: self.now_s
        )
        self.copies.follow((TOPIC,), may_remove=False)

    def restart(self) -> None:
        self.copies.close()
        self._start()

    @property
    def copy(self) -> PartitionCopy:
        (followed,) = self.copies._followed.values()
        return followed.copy

    def step(self, payload: Sent = unchanged, response: Sent = unchanged) -> None:
        """Ask once. Raises ProtocolError, Refused, StorageError."""
        self.now_s += 60
        plan = self.copies.plan()
        for wanted in plan.pieces:
            self._download(wanted, payload, response)
        if plan.places:
            data = response(self.leader.fetched(plan.places[0], payload))
            self.copies.receive(fetch_answer(plan.places, in_bytes(FetchResponse, data)))

    def _download(self, wanted: WantedPiece, payload: Sent, response: Sent) -> None:
        data = response(self.leader.piece(wanted, payload))
        try:
            piece = piece_answer(wanted, in_bytes(FetchSnapshotResponse, data))
        except Refused as refused:
            self.copies.piece_refused(wanted, refused.code, 0.0)
            raise
        self.copies.receive_piece(wanted, piece)

    def catch_up(self) -> None:
        for _ in range(STEPS_MAX):
            if self.copy.wanted is None and self.copy.end == self.leader.end:
                return
            with suppress(Refused):
                self.step()
        raise AssertionError(f"it never catches up: {self.copy.end}, {self.copy.wanted}")

    def check(self) -> None:
        copy = self.copy
        assert copy_state(self.disk, copy.log) == self.leader.states[copy.end]


@cache
def leader() -> Leader:
    return Leader()


def test_whatever_happens_to_answers_on_their_way_the_copy_never_has_another_state() -> None:
    counts = Counter[str]()
    for number in range(RUNS):
        source = random.Random(f"{SEED}/{number}")
        world = World(leader())
        for _ in range(STEPS):
            counts[changed_step(source, world)] += 1
            world.check()
        world.restart()
        world.copies.connected()
        world.check()
        world.catch_up()
        world.check()
        counts["installs"] += world.copy.installs
    assert {"taken", "refused", "installs"} <= set(+counts), counts


def changed_step(source: random.Random, world: World) -> str:
    where, change = source.choice(ON_THE_WAY)
    if source.random() < 0.2:
        world.copies.connected()
    try:
        world.step(**{where: partial(change, source)})
    except (ProtocolError, Refused):
        return "refused"
    except StorageError:
        world.restart()
        return "ended"
    return "taken"
