"""A log that a promotion writes from a copy has the copy's state, and needs no checkpoint."""

from __future__ import annotations

from random import Random

import pytest

from protocol.wire.numbers import Epoch
from server.coordination.state_loading import load_state
from server.standby.coordinator_logs import write_log
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from tests.crash.test_copy_crash_states import event
from tests.harness.checkpointed_log import CONFIG, new_scan, state_of
from tests.harness.compacted_log import identity, opening
from tests.harness.followed_log import COPY_PATH, FollowedLog, copy_state, open_copy
from tests.harness.memory_fs import Loss
from tests.harness.offsets_model import Commit, Marker

TARGET = "written/0"
WRITTEN = identity(directory=TARGET)
SEEDS = range(60)


def written_log(world: FollowedLog) -> PartitionLog:
    world.disk.make_directory("written")
    write_log(world.disk, world.copy, WRITTEN, opening())
    world.disk.sync_directory("written")
    world.disk.sync_directory("/")
    left = world.disk.after_crash(Loss.EVERYTHING, Random(0))
    return open_log(left, WRITTEN, CONFIG, opening())


def followed(seed: int) -> FollowedLog:
    """Returns a world in which the leader has cleaned, and the copy has taken and made checkpoints."""
    random, world = Random(seed), FollowedLog()
    for _ in range(60):
        match random.choice(("play",) * 5 + ("follow",) * 3 + ("clean", "own", "restart")):
            case "play":
                world.leader.play(event(random))
            case "follow":
                world.catch_up()
            case "clean":
                world.leader.now_ms += 1_000_000
                world.leader.roll()
                if world.leader.assess(requested=True).reason is None:
                    world.leader.execute(world.leader.plan())
                    world.leader.play(Commit("b", (0,)))
            case "own":
                world.make_checkpoint()
            case _:
                world.restart()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_the_written_log_has_the_state_of_the_copy_at_its_end(seed: int) -> None:
    world = followed(seed)
    expected = copy_state(world.disk, world.copy.log)
    log = written_log(world)
    assert log.log_end_offset == log.high_watermark == world.copy.end
    scan, report = load_state(log, log.high_watermark, new_scan)
    assert report.checkpoint is None
    assert state_of(scan) == expected
    assert log.epochs.latest == max(world.copy.last_epoch, Epoch(-1))


def test_offsets_of_a_transaction_that_is_open_wait_for_its_marker_in_the_written_log() -> None:
    world = FollowedLog()
    for each in (Commit("a", (0,)), Commit("a", (1,), 1000)):
        world.leader.play(each)
    world.catch_up()
    world.make_checkpoint()
    assert world.copy.checkpoint_end == world.copy.end
    log = written_log(world)
    _, pending, _ = state_of(load_state(log, log.high_watermark, new_scan)[0])
    assert list(pending) == [(1000, "a", "t", 1)]
    assert log.last_stable_offset < log.high_watermark


def with_checkpoint() -> FollowedLog:
    """Returns a world whose copy has a checkpoint up to offset 5, and five records after it."""
    world = FollowedLog()
    for group in "ab":
        for number in range(5):
            world.leader.play(Commit(group, (number,)))
        world.catch_up()
        if group == "a":
            world.make_checkpoint()
    world.copy.close()
    return world


def groups_in(log: PartitionLog) -> set[str]:
    commits, _, _ = state_of(load_state(log, log.high_watermark, new_scan)[0])
    return {group for group, _, _ in commits}


def test_a_copy_whose_checkpoint_was_lost_says_which_state_is_missing() -> None:
    world = with_checkpoint()
    world.disk.unlink(COPY_PATH)
    world.copy = open_copy(world.disk)

    log, missing = written_log(world), write_log(world.disk, world.copy, WRITTEN, opening())

    assert missing == ["orders-0: its checkpoint was lost, so the state before offset 5 is missing"]
    assert groups_in(log) == {"b"}
    assert log.log_end_offset == 10


def test_a_copy_whose_checkpoint_is_damaged_is_written_without_it() -> None:
    world = with_checkpoint()
    data = bytearray(world.disk.read_bytes(COPY_PATH))
    data[len(data) // 2] ^= 1
    world.disk.replace_durably(COPY_PATH, bytes(data))
    world.copy = open_copy(world.disk)

    log, (missing,) = written_log(world), write_log(world.disk, world.copy, WRITTEN, opening())

    assert missing.startswith("orders-0: its checkpoint is damaged (")
    assert missing.endswith("so the state before offset 5 is missing")
    assert groups_in(log) == {"b"}


def test_a_copy_without_records_becomes_an_empty_log() -> None:
    log = written_log(FollowedLog())
    assert log.log_end_offset == 0


def test_a_second_try_replaces_what_the_first_one_has_left() -> None:
    world = followed(1)
    world.disk.make_directory("written")
    write_log(world.disk, world.copy, WRITTEN, opening())
    world.leader.play(Marker(1000, is_commit=True))
    world.leader.play(Commit("a", (0, 1)))
    world.catch_up()
    expected = copy_state(world.disk, world.copy.log)
    write_log(world.disk, world.copy, WRITTEN, opening())
    log = open_log(world.disk, WRITTEN, CONFIG, opening())
    assert state_of(load_state(log, log.high_watermark, new_scan)[0]) == expected
