"""A standby's copy of a coordinator's partition: when it follows the log, when it takes a checkpoint."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from replog.entry import SnapshotId
from replog.trigger import CompactionSettings
from server.coordination.checkpoints import TopicCheckpoints
from server.standby.partition_copy import PartitionCopy
from storage.files.errors import DamagedFile
from storage.files.paths import DOWNLOAD, INSTALL
from tests.harness.compacted_log import identity, read_bytes
from tests.harness.followed_log import (
    COPY_DIRECTORY,
    COPY_PATH,
    FollowedLog,
    open_copy,
    snapshot_of,
)
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_model import Commit, Marker, Tombstones


def followed(*, commits: int = 0) -> FollowedLog:
    """Returns a leader with commits, and a copy that has all of them."""
    world = FollowedLog()
    commit(world, commits)
    world.catch_up()
    return world


def commit(world: FollowedLog, count: int = 1) -> None:
    for _ in range(count):
        world.leader.play(Commit("a", (0, 1)))


def clean(world: FollowedLog) -> None:
    """Let the leader drop everything that is superseded, tombstones and markers too."""
    world.leader.roll()
    for _ in range(2):
        world.leader.now_ms += 1_000_000
        world.leader.clean()


def with_gap() -> FollowedLog:
    """Returns a world whose copy has two offsets, of which the leader has deleted one since."""
    world = followed(commits=1)
    world.leader.play(Tombstones("a", (0,)))
    commit(world, 3)
    clean(world)
    world.leader.play(Commit("b", (0,)))
    return world


def equal(world: FollowedLog) -> bool:
    return world.copy.end == world.leader.log.high_watermark and (
        world.state() == world.leader.state()
    )


# ---------------------------------------------------------------- following the log


def test_it_has_the_leaders_batches_byte_for_byte() -> None:
    world = followed(commits=5)

    assert read_bytes(world.copy.log, 0) == read_bytes(world.leader.log, 0)
    assert equal(world)
    assert world.copy.installs == 0


def test_what_is_not_synced_does_not_count() -> None:
    world = followed(commits=1)
    commit(world)
    data = read_bytes(world.leader.log, world.copy.end)

    world.copy.append(memoryview(data))
    assert world.copy.log.high_watermark == 2
    world.copy.sync()

    assert world.copy.log.high_watermark == 4


def test_after_a_power_cut_it_continues_at_what_it_has() -> None:
    world = followed(commits=3)
    commit(world, 2)

    world.crash()
    assert world.copy.end == 6
    world.catch_up()

    assert equal(world)


def test_bytes_that_are_no_batches_are_refused_and_change_nothing() -> None:
    world = followed(commits=1)
    commit(world)
    data = bytearray(read_bytes(world.leader.log, world.copy.end))
    data[-1] ^= 1

    with pytest.raises(CorruptBatch):
        world.copy.append(memoryview(bytes(data)))
    with pytest.raises(CorruptBatch):
        world.copy.append(memoryview(bytes(data[:-1])))

    assert world.copy.end == 2


# ---------------------------------------------------------------- when it takes a checkpoint


def test_a_gap_before_a_batch_makes_it_take_a_checkpoint_that_ends_there_or_later() -> None:
    world = with_gap()

    while world.copy.wanted is None:
        assert world.fetch()
    assert world.copy.wanted.end_min > 2
    assert world.state() != world.leader.state()
    world.catch_up()

    assert equal(world)
    assert world.copy.installs == 1


def test_a_gap_within_a_batch_counts_like_one_before_it() -> None:
    world = FollowedLog()
    world.leader.play(Commit("a", (0, 1)))
    world.leader.play(Commit("a", (0,)))
    world.leader.roll()
    world.leader.clean()
    assert len(world.leader.headers()) == 2

    world.fetch()

    assert world.copy.wanted is not None
    assert world.copy.wanted.end_min == 2
    world.catch_up()
    assert equal(world)


def test_a_tail_without_records_counts_as_a_gap() -> None:
    world = followed(commits=1)
    world.leader.log.appender.advance_end(Offset(9))
    world.leader.make_durable()
    assert read_bytes(world.leader.log, 2) == b""

    world.catch_up()

    assert world.copy.installs == 1
    assert equal(world)


def test_a_log_start_beyond_its_end_makes_it_take_a_checkpoint() -> None:
    world = followed(commits=1)
    commit(world, 3)
    world.leader.log.delete_records(Offset(6))

    world.catch_up()

    assert world.copy.installs == 1
    assert equal(world)


def test_records_that_were_deleted_at_the_leader_do_not_stay_in_the_copy() -> None:
    world = followed(commits=2)
    world.make_checkpoint()
    world.leader.log.delete_records(Offset(4))
    world.leader.play(Commit("b", (0,)))

    world.catch_up()

    assert world.copy.installs == 1
    assert equal(world)


def test_a_leader_whose_log_ends_earlier_makes_it_take_a_checkpoint_and_go_back() -> None:
    world = followed(commits=4)
    world.leader.cut(4)
    world.leader.play(Commit("b", (0,)))

    world.catch_up()

    assert world.copy.installs == 1
    assert equal(world)


def test_a_leader_without_anything_leaves_it_what_it_has() -> None:
    world = followed(commits=2)
    world.leader.cut(0)

    world.fetch()
    world.piece()

    assert world.copy.wanted is None
    assert world.copy.end == 4


def test_a_transaction_that_is_open_in_the_checkpoint_is_ended_by_the_log_after_it() -> None:
    world = with_gap()
    world.leader.play(Commit("a", (1,), 1000))
    world.catch_up()
    assert world.copy.installs == 1
    assert world.state()[1]

    world.leader.play(Marker(1000, is_commit=True))
    world.catch_up()

    assert equal(world)
    assert not world.state()[1]


# ---------------------------------------------------------------- the download


def downloading() -> FollowedLog:
    """Returns a world in the middle of a download."""
    world = with_gap()
    while world.copy.next_piece[1] == 0:
        world.step()
    return world


def test_until_the_checkpoint_is_whole_it_keeps_its_state() -> None:
    world = downloading()
    before = world.state()

    while world.copy.installs == 0:
        assert world.state() == before
        world.step()

    assert world.copy.end > 2


def test_a_download_continues_after_a_restart() -> None:
    world = downloading()
    before = world.copy.next_piece

    world.restart()
    while world.copy.wanted is None:
        world.step()

    assert world.copy.next_piece == before
    world.catch_up()
    assert equal(world)


def test_a_download_of_a_checkpoint_that_was_replaced_begins_again() -> None:
    world = downloading()
    first, _ = world.copy.next_piece
    world.leader.play(Commit("b", (1,)))
    world.leader.make()

    world.step()
    assert world.copy.next_piece == (None, 0)
    world.catch_up()

    assert first is not None
    assert world.copy.checkpoint_end is not None
    assert world.copy.checkpoint_end > first.end
    assert equal(world)


def test_a_piece_that_comes_twice_or_from_elsewhere_changes_nothing() -> None:
    world = downloading()
    snapshot, position = world.copy.next_piece
    data = world.leader.checkpoint
    assert data is not None
    assert snapshot is not None

    world.copy.receive(snapshot, 0, data[:position], len(data))
    world.copy.receive(snapshot, position + 1, data[position + 1 :], len(data))
    world.copy.receive(SnapshotId(snapshot.end, snapshot.term + 1), position, b"x", len(data))

    assert world.copy.next_piece == (snapshot, position)


def test_a_damaged_download_is_downloaded_again() -> None:
    world = downloading()
    world.disk.overwrite(COPY_PATH + DOWNLOAD, 80, b"\xff\xfe")

    world.catch_up()

    assert equal(world)
    assert world.copy.installs == 1


def test_a_checkpoint_of_another_topic_is_not_taken() -> None:
    world = with_gap()
    world.catch_up()
    data = world.leader.checkpoint
    assert data is not None
    other = replace(identity(directory=COPY_DIRECTORY), topic_id=uuid.UUID(int=9))
    checkpoints = TopicCheckpoints(has_commits=True)
    copy = PartitionCopy(MemoryFileSystem(), other, checkpoints, now_ms=lambda: 0)
    copy.want("a gap")

    copy.receive(snapshot_of(data), 0, data, len(data))

    assert copy.installs == 0
    assert copy.next_piece == (None, 0)


def test_a_checkpoint_that_ends_before_the_gap_is_not_taken() -> None:
    world = followed(commits=1)
    world.leader.make()
    data = world.leader.checkpoint
    assert data is not None
    world.copy.want("a gap", Offset(5))

    world.copy.receive(snapshot_of(data), 0, data, len(data))

    assert world.copy.installs == 0
    assert not world.disk.exists(COPY_PATH + DOWNLOAD)


# ---------------------------------------------------------------- starts


def test_a_start_takes_a_checkpoint_that_was_whole() -> None:
    world = with_gap()
    left = []

    def kill(action: str, path: str) -> None:
        if world.disk.exists(COPY_PATH + INSTALL):
            left.append(world.disk.after_kill())

    world.disk.on_operation = kill
    world.catch_up()
    world.disk.on_operation = None

    assert left
    for disk in left:
        copy = open_copy(disk)
        assert copy.end == copy.checkpoint_end
        assert not disk.exists(COPY_PATH + INSTALL)


def test_a_log_that_ends_before_its_checkpoint_starts_over_at_its_end() -> None:
    world = with_gap()
    world.catch_up()
    end = world.copy.checkpoint_end
    world.copy.close()
    world.disk.remove_tree(COPY_DIRECTORY)

    world.copy = open_copy(world.disk)

    assert world.copy.end == end
    world.catch_up()
    assert equal(world)


def test_a_log_whose_checkpoint_is_lost_has_no_state_until_it_has_the_leaders() -> None:
    world = with_gap()
    world.catch_up()
    world.copy.close()
    world.disk.unlink(COPY_PATH)

    world.copy = open_copy(world.disk)

    assert not world.copy.is_whole
    assert world.copy.digest_order(world.copy.end) is None
    world.catch_up()
    assert world.copy.is_whole
    assert equal(world)


def test_without_its_checkpoint_it_does_not_give_up_when_the_leader_has_none() -> None:
    world = with_gap()
    world.catch_up()
    world.copy.close()
    world.disk.unlink(COPY_PATH)
    world.copy = open_copy(world.disk)

    world.copy.ask_again()

    assert world.copy.wanted is not None


# ---------------------------------------------------------------- its own checkpoints


def test_its_own_checkpoint_replaces_the_log_before_it() -> None:
    world = followed(commits=10)
    before = world.state()

    world.make_checkpoint()

    log = world.copy.log
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    assert log.size_bytes == 0
    assert world.copy.checkpoint_end == 20
    assert world.state() == before


def test_the_next_one_is_made_from_the_last_one_and_the_log_after_it() -> None:
    world = followed(commits=2)
    world.leader.play(Commit("b", (0,)))
    world.catch_up()
    world.make_checkpoint()
    commit(world)
    world.catch_up()

    world.restart()
    world.make_checkpoint()

    assert world.copy.checkpoint_end == 7
    assert equal(world)


def test_one_is_due_when_the_log_is_long_by_the_brokers_rule() -> None:
    settings = CompactionSettings(replay_ms=0.000001, u=1.0)
    world = followed(commits=5)
    assert world.copy.is_checkpoint_due(settings)

    world.make_checkpoint()
    assert not world.copy.is_checkpoint_due(settings)

    commit(world, 5)
    world.catch_up()
    assert world.copy.is_checkpoint_due(settings)


def test_records_that_come_meanwhile_stay_in_the_log() -> None:
    world = followed(commits=2)
    order = world.copy.order()
    commit(world, 2)
    world.catch_up()

    made = world.copy.make_checkpoint(order)
    assert made is not None
    world.copy.made(made)

    assert (world.copy.checkpoint_end, world.copy.end) == (4, 8)
    assert equal(world)


def test_one_that_was_begun_before_the_leaders_was_taken_does_not_replace_it() -> None:
    world = with_gap()
    order = world.copy.order()
    world.catch_up()

    with pytest.raises(CleaningAborted):
        world.copy.make_checkpoint(order)

    assert equal(world)
    world.restart()
    assert equal(world)


def test_what_was_ordered_before_the_last_own_checkpoint_is_given_up() -> None:
    world = followed(commits=2)
    order, digest_order = world.copy.order(), world.copy.digest_order(Offset(4))
    assert digest_order is not None
    commit(world)
    world.catch_up()
    world.make_checkpoint()

    with pytest.raises(CleaningAborted):
        world.copy.make_checkpoint(order)
    with pytest.raises(CleaningAborted):
        world.copy.digest(digest_order)

    assert equal(world)


def test_without_its_last_checkpoint_it_makes_none() -> None:
    """The log alone would give another state."""
    world = followed(commits=2)
    world.make_checkpoint()
    commit(world)
    world.catch_up()
    world.disk.overwrite(COPY_PATH, 70, b"\xff\xff\xff")

    with pytest.raises(DamagedFile, match="does not count"):
        world.make_checkpoint()


# ---------------------------------------------------------------- digests


def test_at_equal_ends_its_digest_is_that_of_the_leaders_checkpoint() -> None:
    world = with_gap()
    world.leader.play(Commit("b", (1,), 1001))
    world.catch_up()
    world.leader.play(Marker(1001, is_commit=True))
    world.catch_up()
    made = world.leader.make()
    assert made is not None
    commit(world)
    world.catch_up()

    order = world.copy.digest_order(made.end_offset)
    assert order is not None
    found = world.copy.digest(order)

    assert (found.end_offset, found.digest, found.records) == (
        made.end_offset,
        made.digest,
        made.records,
    )


def test_at_the_end_of_its_checkpoint_its_digest_is_the_checkpoints() -> None:
    world = followed(commits=3)
    world.make_checkpoint()
    made = world.leader.make()

    order = world.copy.digest_order(Offset(6))

    assert made is not None
    assert order is not None
    assert world.copy.digest(order).digest == made.digest


def test_it_has_no_digest_before_its_checkpoint_or_after_its_end() -> None:
    world = followed(commits=3)
    world.make_checkpoint()

    assert world.copy.digest_order(Offset(5)) is None
    assert world.copy.digest_order(Offset(7)) is None


def test_transactional_ids_are_followed_by_the_same_rules() -> None:
    world = FollowedLog()
    world.copy = open_copy(world.disk, has_commits=False)
    world.leader.add_pairs([(b"x", b"1"), (b"y", b"1")])
    world.leader.add_pairs([(b"x", b"2"), (b"y", None)])
    world.catch_up()
    made = world.leader.make(has_commits=False)

    world.make_checkpoint()

    assert made is not None
    assert made.records == 1
    order = world.copy.digest_order(made.end_offset)
    assert order is not None
    assert world.copy.digest(order).digest == made.digest


def test_a_crash_that_tears_what_was_not_synced_leaves_what_was() -> None:
    world = followed(commits=3)
    world.make_checkpoint()
    commit(world, 2)
    world.catch_up()

    world.crash(Loss.TORN)

    assert equal(world)
