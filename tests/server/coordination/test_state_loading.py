"""Loading a partition: from its checkpoint if that counts, and otherwise from the whole log."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from cleaner.checkpoints.validity import GAP
from protocol.wire.numbers import Offset
from server.coordination.state_loading import LoadReport
from storage.formats.coordinator_checkpoint import HEADER_BYTES
from storage.formats.log_identity import LogIdentity
from tests.harness.checkpointed_log import CheckpointedLog, group_record
from tests.harness.offsets_model import Commit, Marker, Tombstones


def log_with_checkpoint() -> CheckpointedLog:
    """Returns a log with a checkpoint of its first three records, whose last one stays."""
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.add(group_record("end", 1))
    log.make()
    return log


def loaded(log: CheckpointedLog) -> LoadReport:
    """Load, and check that the state is the log's."""
    found, report = log.load()
    assert found == log.state()
    return report


def assert_does_not_count(
    log: CheckpointedLog, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    assert loaded(log).checkpoint is None
    assert reason in caplog.text
    assert log.checkpoint is None


def test_a_load_reads_the_checkpoint_and_the_log_after_it() -> None:
    log = log_with_checkpoint()
    log.play(Commit("a", (1,)))
    log.play(Commit("b", (0,)))

    report = loaded(log)

    assert report.checkpoint is not None
    assert (report.checkpoint.end_offset, report.checkpoint.records) == (3, 3)
    assert report.bytes_read > report.checkpoint.size


def test_a_load_does_not_read_the_log_before_the_checkpoints_end() -> None:
    log = log_with_checkpoint()
    log.fs.overwrite(log.log.segments[0].path(".log"), 70, b"\xff")

    _, report = log.load()

    assert report.checkpoint is not None


def test_without_a_checkpoint_a_load_reads_the_whole_log() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))

    assert loaded(log).checkpoint is None


def test_a_transaction_that_was_open_ends_in_the_log_after_the_checkpoint() -> None:
    for is_commit in (True, False):
        log = CheckpointedLog()
        log.play(Commit("a", (0,)))
        log.play(Commit("a", (0, 1), 1000))
        log.make()
        log.play(Marker(1000, is_commit=is_commit))

        assert loaded(log).checkpoint is not None


@pytest.mark.parametrize(
    "at", [0, 9, HEADER_BYTES - 1, HEADER_BYTES + 3, HEADER_BYTES + 70, -1, -20, -40]
)
def test_a_damaged_checkpoint_does_not_count(at: int, caplog: pytest.LogCaptureFixture) -> None:
    log = log_with_checkpoint()
    data = bytearray(log.checkpoint or b"")
    data[at] ^= 1
    log.put(bytes(data))

    assert_does_not_count(log, caplog, "does not count")


def test_a_checkpoint_that_is_cut_anywhere_does_not_count() -> None:
    log = log_with_checkpoint()
    data = log.checkpoint or b""
    for size in range(len(data)):
        log.put(data[:size])

        assert loaded(log).checkpoint is None, size


def test_a_checkpoint_of_a_later_format_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    log = log_with_checkpoint()
    data = bytearray(log.checkpoint or b"")
    data[5] += 1
    log.put(bytes(data))

    assert_does_not_count(log, caplog, "later release")


def test_a_checkpoint_of_another_partition_or_topic_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = log_with_checkpoint()
    log.log.identity = _other(log.log.identity)

    assert_does_not_count(log, caplog, "another topic or partition")


def _other(its: LogIdentity) -> LogIdentity:
    return replace(its, topic_id=uuid.UUID(int=99))


def test_a_log_that_was_cut_below_its_end_has_no_checkpoint_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = log_with_checkpoint()
    log.cut(2)

    assert_does_not_count(log, caplog, "it ends at 3, the log at 2")


def test_a_log_that_was_cut_and_has_grown_past_its_end_in_another_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = log_with_checkpoint()
    log.cut(2)
    log.add(group_record("end", 1))
    log.play(Commit("a", (0,)))

    assert_does_not_count(log, caplog, "does not have the batch that ended at offset 3")


def test_a_backup_that_has_grown_past_its_end_in_the_same_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    backup, epoch = log.backup(), log.log.leader_epoch
    log.reopen(is_clean=True)
    log.play(Commit("a", (0,)))
    log.make()
    newer = log.checkpoint
    log.restore(backup, epoch)
    log.play(Commit("a", (1,)))
    log.put(newer)

    assert_does_not_count(log, caplog, "does not have the batch that ended at offset 3")


def test_records_that_were_deleted_do_not_come_back(caplog: pytest.LogCaptureFixture) -> None:
    log = log_with_checkpoint()
    log.log.delete_records(Offset(2))

    assert_does_not_count(log, caplog, "the log starts at 2")


def clean_until_gone(log: CheckpointedLog) -> None:
    """Clean until nothing is left of tombstones and markers."""
    log.add(group_record("tail", 1))
    for _ in range(3):
        log.now_ms += 1_000_000
        log.clean()


def delete_one(log: CheckpointedLog) -> None:
    log.play(Marker(1000, is_commit=True))
    log.make()
    log.play(Tombstones("a", (0,)))


def abort_one(log: CheckpointedLog) -> None:
    log.play(Marker(1000, is_commit=False))
    log.play(Commit("b", (0,), 1000))
    log.play(Marker(1000, is_commit=True))


def commit_one(log: CheckpointedLog) -> None:
    log.play(Marker(1000, is_commit=True))
    log.play(Commit("a", (1,)))
    log.play(Commit("b", (0,), 1000))
    log.play(Marker(1000, is_commit=False))


@pytest.mark.parametrize("step", [delete_one, abort_one, commit_one])
def test_a_pass_that_has_dropped_a_tombstone_or_a_marker_after_its_end(
    step: Callable[[CheckpointedLog], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Else a deleted offset would come back, or a transaction would stay open for ever."""
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))
    log.play(Commit("a", (1,), 1000))
    log.add(group_record("end", 1))
    log.make()
    step(log)
    clean_until_gone(log)

    assert_does_not_count(log, caplog, GAP)


def test_a_pass_below_its_end_does_no_harm() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.play(Commit("a", (0,)))
    log.roll()
    log.add(group_record("end", 1))
    log.make()
    log.execute(log.plan())

    assert loaded(log).checkpoint is not None


def test_a_checkpoint_that_does_not_count_is_gone_before_the_log_grows_past_its_end() -> None:
    """Durably: a crash right after the load does not bring it back."""
    log = log_with_checkpoint()
    log.cut(2)
    loaded(log)

    log.reopen(is_clean=False)

    assert log.checkpoint is None
