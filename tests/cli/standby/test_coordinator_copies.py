"""The copies of all partitions: which there are, what they ask for, and what an answer tells them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from cli.standby.coordinator_copies import CoordinatorCopies, digest_of, make_due
from cli.standby.coordinator_requests import Fetched, PartitionId, ReceivedPiece
from cli.standby.last_batch import LastBatch, is_another
from protocol.records.batch_header import DELETE_HORIZON, read_header
from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from replog.trigger import CompactionSettings
from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from server.standby.followed_topics import FollowedTopic
from storage.files.paths import topic_directory
from tests.harness.checkpointed_log import CheckpointedLog
from tests.harness.compacted_log import read_bytes
from tests.harness.followed_log import snapshot_of
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_model import Commit

FIRST = uuid.UUID(int=1)
"""The id of the leader's topic in `CheckpointedLog`."""


def topic(
    topic_id: uuid.UUID = FIRST, *, partitions: int = 2, name: str = OFFSETS_TOPIC
) -> FollowedTopic:
    return FollowedTopic(name=name, id=topic_id, partitions_count=partitions)


class World:
    """Copies on a disk, with a clock."""

    def __init__(self, *topics: FollowedTopic, settings: CompactionSettings | None = None) -> None:
        self.now_s = 0.0
        self.disk = MemoryFileSystem()
        self.disk.make_directory("copy")
        self.disk.sync_directory("/")
        self.copies = CoordinatorCopies(
            self.disk, "copy", settings or CompactionSettings(), clock=lambda: self.now_s
        )
        self.copies.follow(topics or (topic(),), may_remove=False)

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The partitions of the next fetch, with their ends."""
        return [(each.id.partition, each.end) for each in self.copies.plan().places]

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """The partitions that need a checkpoint, and the positions to ask for."""
        return [(each.id.partition, each.position) for each in self.copies.plan().pieces]

    def names(self) -> list[str]:
        return [name for name in self.disk.list("copy") if name.startswith("__")]


def its(partition: int, topic_id: uuid.UUID = FIRST) -> PartitionId:
    return PartitionId(name=OFFSETS_TOPIC, topic_id=topic_id, partition=partition)


def answer(
    partition: int,
    records: bytes = b"",
    *,
    end: int = 0,
    code: ErrorCode = ErrorCode.NONE,
    start: int = 0,
    diverges: bool = False,
) -> Fetched:
    return Fetched(
        id=its(partition),
        error_code=code,
        high_watermark=end,
        log_start_offset=start,
        is_diverging=diverges,
        records=records,
    )


def batches(count: int) -> bytes:
    """Returns batches of a commit each."""
    log = CheckpointedLog()
    for _ in range(count):
        log.play(Commit("a", (0,)))
    return read_bytes(log.log, 0)


def other(end: int, at: int | None = None) -> bytes:
    """Returns another batch than those of `batches`, up to `end`."""
    base_offset = end - 1 if at is None else at
    return bytes(build_batch(records(base_offset, end), base_offset=base_offset))


def records(start: int, end: int) -> list[Record]:
    return [Record(offset=each, timestamp=0, key=b"k", value=b"v") for each in range(start, end)]


def test_what_the_leader_had_and_the_copies_lack_is_listed_with_both_ends() -> None:
    world = World()
    world.copies.receive([answer(0, batches(2), end=5), answer(1, end=0)])
    assert world.copies.behind() == [
        f"{OFFSETS_TOPIC}-0: this log ends at 2, the source's at 5",
    ]


# ---------------------------------------------------------------- which partitions


def test_each_partition_of_the_followed_topics_has_a_copy() -> None:
    world = World(topic(), topic(uuid.UUID(int=2), partitions=1, name=TRANSACTION_STATE_TOPIC))

    places = world.copies.plan().places

    assert [str(each.id) for each in places] == [
        "__consumer_offsets-0",
        "__consumer_offsets-1",
        "__transaction_state-0",
    ]
    assert world.disk.exists(f"copy/{topic_directory(OFFSETS_TOPIC, FIRST)}/1/manifest")


def test_a_topic_with_more_partitions_gets_more_copies() -> None:
    world = World()
    world.copies.receive([answer(0, batches(2), end=2)])

    world.copies.follow((topic(partitions=3),), may_remove=False)

    assert world.ends == [(0, 2), (1, 0), (2, 0)]


def test_a_topic_with_another_id_gets_a_new_copy_and_the_old_one_goes_with_current_metadata() -> (
    None
):
    world = World()
    world.copies.receive([answer(0, batches(2), end=2)])
    again = topic(uuid.UUID(int=9))

    world.copies.follow((again,), may_remove=False)
    assert world.ends == [(0, 0), (1, 0)]
    assert len(world.names()) == 2
    world.copies.follow((again,), may_remove=True)

    assert world.names() == [topic_directory(OFFSETS_TOPIC, again.id)]


def test_a_topic_that_comes_back_before_the_metadata_are_current_keeps_its_copy() -> None:
    world = World()
    world.copies.receive([answer(0, batches(2), end=2)])

    world.copies.follow((), may_remove=False)
    assert world.copies.plan().places == ()
    world.copies.follow((topic(),), may_remove=True)

    assert world.ends == [(0, 2), (1, 0)]


# ---------------------------------------------------------------- answers


def test_what_was_answered_is_durable_before_the_next_fetch() -> None:
    world = World()

    world.copies.receive([answer(0, batches(3), end=3), answer(1, end=0)])

    left = CoordinatorCopies(world.disk.after_kill(), "copy", CompactionSettings())
    left.follow((topic(),), may_remove=False)
    assert [each.end for each in left.places()] == [3, 0]


def test_an_empty_answer_is_no_gap_while_the_bytes_were_needed_for_others() -> None:
    world, leader = World(), CheckpointedLog()
    for number in range(3):
        leader.play(Commit("a", (0,)))
        data = read_bytes(leader.log, number)
        world.copies.receive([answer(0, data, end=number + 1), answer(1, end=5)])

    assert world.pieces == []


def test_a_partition_that_got_nothing_goes_first_and_then_it_is_a_gap() -> None:
    world = World()
    world.copies.receive([answer(0, batches(1), end=1), answer(1, end=5)])
    assert world.ends == [(1, 0), (0, 1)]

    world.copies.receive([answer(1, end=7), answer(0, end=1)])

    assert world.pieces == [(1, 5)]


def test_what_the_leader_appends_while_it_answers_is_no_gap() -> None:
    """Its high watermark is read after its records."""
    world = World()

    world.copies.receive([answer(0, end=5), answer(1, end=0)])

    assert world.pieces == []


def test_what_a_leader_lost_before_it_came_back_is_no_gap() -> None:
    world = World()
    world.copies.receive([answer(0, end=5), answer(1)])
    world.copies.receive([answer(0, end=0), answer(1)])
    assert world.pieces == []

    world.copies.receive([answer(0, end=5), answer(1)])
    world.copies.connected()
    world.copies.receive([answer(0, end=5), answer(1)])

    assert world.pieces == []


@pytest.mark.parametrize(
    "refused",
    [
        answer(0, code=ErrorCode.OFFSET_OUT_OF_RANGE),
        answer(0, diverges=True, end=9),
        answer(0, end=9, start=3),
    ],
)
def test_a_leader_with_another_log_makes_it_ask_for_the_checkpoint(refused: Fetched) -> None:
    world = World()

    world.copies.receive([refused])

    assert world.pieces == [(0, 0)]
    assert world.ends == [(1, 0)]
    (facts,) = world.copies.facts()
    assert len(facts.waiting) == 1


def test_a_partition_that_the_leader_refuses_rests_for_longer_and_longer() -> None:
    world = World()
    refused = answer(0, code=ErrorCode.KAFKA_STORAGE_ERROR)
    rests = []

    for _ in range(3):
        world.copies.receive([refused])
        began_s = world.now_s
        while (0, 0) not in world.ends:
            world.now_s += 0.05
        rests.append(world.now_s - began_s)

    assert rests == sorted(rests)
    assert world.copies.facts()[0].waiting == ("__consumer_offsets-0: KAFKA_STORAGE_ERROR",)
    world.copies.receive([answer(0, batches(1), end=1)])
    assert world.copies.facts()[0].waiting == ()


def test_bytes_that_are_no_batches_are_refused() -> None:
    world = World()
    with pytest.raises(CorruptBatch):
        world.copies.receive([answer(0, batches(1)[:-1] + b"x", end=1)])
    assert world.ends == [(0, 0), (1, 0)]


# ---------------------------------------------------------------- whether the leader is the same


def followed(count: int = 3) -> World:
    """Returns copies of which the first has followed some batches over an earlier connection."""
    world = World()
    world.copies.receive([answer(0, batches(count), end=count)])
    world.copies.connected()
    return world


def test_over_a_new_connection_the_last_batch_is_asked_for_again() -> None:
    world = followed(3)
    assert world.ends == [(0, 2), (1, 0)]
    data = batches(5)

    world.copies.receive([answer(0, data[len(batches(2)) :], end=5)])

    assert world.ends == [(0, 5), (1, 0)]


def test_the_last_batch_alone_does_not_mean_that_the_leader_has_no_more() -> None:
    world = followed(3)
    world.copies.receive([answer(1, end=0), answer(0, end=9)])
    last = batches(3)[len(batches(2)) :]

    world.copies.receive([answer(0, last, end=9)])

    assert world.pieces == []
    assert world.ends == [(0, 3), (1, 0)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(answer(0, batches(1), end=3), "at 0 is not the one", id="a_batch_before"),
        pytest.param(answer(0, other(3), end=3), "at 2 is not the one", id="another_batch"),
        pytest.param(answer(0, other(4, at=2), end=4), "at 2 is not the one", id="a_longer_batch"),
        pytest.param(answer(0, end=2), "the leader's log ends at 2, this one at 3", id="no_batch"),
    ],
)
def test_a_leader_that_was_restored_within_its_epoch_must_give_its_checkpoint(
    found: Fetched, reason: str
) -> None:
    world = followed(3)

    world.copies.receive([found])

    assert world.pieces == [(0, 0)]
    assert reason in world.copies.facts()[0].waiting[0]
    world.copies.connected()
    assert world.pieces == [(0, 0)]


def test_a_last_batch_that_the_cleaner_has_changed_or_removed_says_nothing() -> None:
    ours = LastBatch(base_offset=Offset(4), end=Offset(7), crc=1)
    same = read_header(build_batch(records(4, 7), base_offset=4))

    assert is_another(ours, same)
    assert not is_another(replace(ours, crc=same.crc), same)
    assert not is_another(ours, replace(same, record_count=2))
    assert not is_another(ours, replace(same, attributes=DELETE_HORIZON))
    assert not is_another(ours, read_header(build_batch(records(7, 8), base_offset=7)))
    assert is_another(ours, read_header(build_batch(records(6, 7), base_offset=6)))


# ---------------------------------------------------------------- checkpoints


def needing() -> tuple[World, CheckpointedLog]:
    """Returns copies of which the first needs a checkpoint, and its leader's log, which has one."""
    world, leader = World(), CheckpointedLog()
    for _ in range(3):
        leader.play(Commit("a", (0,)))
    leader.make()
    world.copies.receive([answer(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)])
    return world, leader


def test_a_checkpoint_is_taken_and_the_log_after_it_follows() -> None:
    world, leader = needing()
    data = leader.checkpoint
    assert data is not None
    (wanted,) = world.copies.plan().pieces

    for position, part in ((0, data[:50]), (50, data[50:])):
        piece = ReceivedPiece(
            snapshot=snapshot_of(data), position=position, data=part, size=len(data), throttle_ms=0
        )
        world.copies.receive_piece(wanted, piece)

    assert world.pieces == []
    assert world.ends == [(0, 3), (1, 0)]
    assert world.copies.facts()[0].installs == 1


def test_without_a_checkpoint_at_the_leader_it_fetches_again_after_a_rest() -> None:
    world, _ = needing()
    (wanted,) = world.copies.plan().pieces

    world.copies.piece_refused(wanted, ErrorCode.SNAPSHOT_NOT_FOUND, 0.0)

    assert world.pieces == []
    assert world.ends == [(1, 0)]
    world.now_s += 60
    assert world.ends == [(0, 0), (1, 0)]


def test_a_checkpoint_that_arrives_damaged_is_downloaded_again_after_a_rest() -> None:
    world, leader = needing()
    data = leader.checkpoint
    assert data is not None
    (wanted,) = world.copies.plan().pieces
    damaged = data[:-1] + bytes([data[-1] ^ 1])

    world.copies.receive_piece(
        wanted,
        ReceivedPiece(
            snapshot=snapshot_of(data), position=0, data=damaged, size=len(data), throttle_ms=0
        ),
    )

    assert world.pieces == []
    assert "checkpoint was damaged" in world.copies.facts()[0].waiting[0]
    world.now_s += 60
    assert world.pieces == [(0, 0)]


def test_too_many_downloads_at_the_leader_are_waited_for() -> None:
    world, _ = needing()
    (wanted,) = world.copies.plan().pieces

    world.copies.piece_refused(wanted, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 2.0)

    world.now_s += 1.9
    assert world.pieces == []
    world.now_s += 0.2
    assert world.pieces == [(0, 0)]


def test_own_checkpoints_are_made_by_the_brokers_rule() -> None:
    world = World(settings=CompactionSettings(replay_ms=0.000001, u=1.0))
    assert world.copies.due_checkpoint() is None
    world.copies.receive([answer(0, batches(5), end=5)])

    due = world.copies.due_checkpoint()
    assert due is not None
    made = make_due(due)
    assert made is not None
    made()

    assert world.copies.due_checkpoint() is None
    order = world.copies.digest_order(its(0), 5)
    assert order is not None
    digest = digest_of(order)
    assert digest is not None
    assert digest.records == 1


def test_stop_ends_what_is_being_made() -> None:
    world = World(settings=CompactionSettings(replay_ms=0.000001, u=1.0))
    world.copies.receive([answer(0, batches(5), end=5)])
    due = world.copies.due_checkpoint()
    assert due is not None

    world.copies.stop()

    assert make_due(due) is None
    world.copies.close()
