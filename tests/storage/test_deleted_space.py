"""Every deletion in a log frees its descriptors and its disk space as soon as the last reader is done.

Covers every kind of deletion, with the files open or not, with a fetch's region pinned or not. Add a new
kind of deletion to `KINDS`.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved
from storage.files.local_files import LocalFileSystem
from storage.files.open_files import ACTIVE, SEALED
from storage.files.paths import KEYS, LOG
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.held_files import bytes_held, deleted_but_open, open_descriptors
from tests.harness.key_blocks import index
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome, read_all

SEGMENTS, VALUE_BYTES = 6, 64 << 10
RETENTION_MS = 1000
DELETING = dataclasses.replace(
    LogConfig(), segment_bytes=1 << 30, cleanup_policy=("delete",), retention_ms=RETENTION_MS
)

Deletion = Callable[[PartitionLog], None]


def topic_deleted(log: PartitionLog) -> None:
    log.retire()
    folder = Path(log.directory)
    shutil.rmtree(folder.rename(folder.with_name("deleted")))


def topic_deleted_files_first(log: PartitionLog) -> None:
    """A worker may be faster than the loop's background work."""
    shutil.rmtree(log.directory)
    log.retire()


def retained(log: PartitionLog) -> None:
    assert log.retention_is_due(10 * RETENTION_MS)
    assert log.retain(10 * RETENTION_MS)


def records_deleted(log: PartitionLog) -> None:
    assert not isinstance(log.delete_records(log.high_watermark), ErrorCode)


def swapped(log: PartitionLog) -> None:
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda record: record.offset == 0, ())
    log.cleaning.swap(
        [each.row for each in view.segments],
        write_cleaned(log, view.segments, batches, cut=99),
        generation=view.generation,
        clean_offset=None,
    )


def swapped_for_nothing(log: PartitionLog) -> None:
    view = log.cleaning_view()
    log.cleaning.swap(
        [r.row for r in view.segments], [], generation=view.generation, clean_offset=None
    )


def truncated(log: PartitionLog) -> None:
    log.truncate_to(Offset(1))


def truncated_fully(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(Offset(99))


def swapped_then_topic_deleted(log: PartitionLog) -> None:
    swapped(log)
    topic_deleted(log)


KINDS = [
    topic_deleted, topic_deleted_files_first, retained, records_deleted, swapped, swapped_for_nothing,
    truncated, truncated_fully, swapped_then_topic_deleted,
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> LogHome:
    directory = tmp_path / "log"
    directory.mkdir()
    return LogHome(LocalFileSystem(), directory=str(directory), config=DELETING)


def filled(home: LogHome) -> PartitionLog:
    """A log of several large sealed segments with key sidecars, all of it read once."""
    log = home.create()
    for number in range(SEGMENTS):
        batch = batch_of([(b"key%d" % number, bytes(VALUE_BYTES))], timestamps=[number])
        assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=number), Appended)
        log.roll(number)
    log.advance_high_watermark(log.sync())
    for segment in log.cleaning_view().segments:
        index(segment, log.identity.hash_key)
        assert any(segment.key_sidecar(log.identity.hash_key).blocks())  # type: ignore[union-attr]
    assert len(read_all(log)) == SEGMENTS
    assert log.reader.offset_for_timestamp(SEGMENTS - 1) is not None
    return log


def pinned(log: PartitionLog, offset: int) -> ReadResult:
    """Returns the region that a fetch has found and not sent yet."""
    found = log.reader.read(
        Offset(offset),
        max_bytes=1 << 20,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    assert isinstance(found, ReadResult)
    assert found.regions
    return found


@pytest.mark.parametrize(
    ("delete", "is_pinned", "is_open"),
    [
        pytest.param(*each, id=f"{each[0].__name__}-{'pinned' * each[1]}-{'open' * each[2]}")
        for each in itertools.product(KINDS, (False, True), (False, True))
    ],
)
def test_deletion_gives_descriptors_and_disk_back_once_the_last_reader_lets_go(
    home: LogHome, tmp_path: Path, delete: Deletion, is_pinned: bool, is_open: bool
) -> None:
    log = filled(home)
    if not is_open:
        for segment in log.segments:
            segment.files.close()
    reads = [pinned(log, number) for number in range(2, SEGMENTS)] if is_pinned else []
    before = [(region.fileno, region.read_bytes()) for read in reads for region in read.regions]
    assert bytes_held(tmp_path) > SEGMENTS * VALUE_BYTES

    delete(log)

    # The reader can still read, from the same descriptor.
    after = [(region.fileno, region.read_bytes()) for read in reads for region in read.regions]
    assert after == before
    assert len(open_descriptors(tmp_path)) <= len(reads) + 2
    for read in reads:
        read.release()
    assert deleted_but_open(tmp_path) == []
    # The segment that a truncation or a pass keeps, and the active one.
    is_gone = "topic_deleted" in delete.__name__
    assert len(open_descriptors(tmp_path)) <= (0 if is_gone else 2)
    assert bytes_held(tmp_path) <= (0 if is_gone else 2 * VALUE_BYTES)


def test_deletion_of_a_topic_closes_unsynced_files(home: LogHome, tmp_path: Path) -> None:
    log = home.create()
    batch = batch_of([(b"k", bytes(VALUE_BYTES))])
    assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)

    topic_deleted(log)

    assert open_descriptors(tmp_path) == []
    assert bytes_held(tmp_path) == 0


def test_sync_under_way_keeps_a_deleted_topics_file_open_to_its_end(
    home: LogHome, tmp_path: Path
) -> None:
    log = home.create()
    batch = batch_of([(b"k", b"v")])
    assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
    begun = log.begin_sync()
    assert begun is not None

    topic_deleted(log)

    (target,) = deleted_but_open(tmp_path)
    assert target.endswith(".log (deleted)")
    begun.end(0)
    assert open_descriptors(tmp_path) == []
    assert not home.failures


def test_sync_that_cannot_open_its_file_leaves_no_pin(home: LogHome, tmp_path: Path) -> None:
    log = home.create()
    log.close()
    log = home.open(is_clean=True)
    name = Path(log.segments[-1].path(LOG))
    aside = name.rename(name.with_suffix(".aside"))
    assert log.begin_sync() is None
    aside.rename(name)

    topic_deleted(log)

    with pytest.raises(SegmentRemoved):
        log.segments[-1].files.pin()
    assert open_descriptors(tmp_path) == []


def test_nothing_opens_a_file_of_a_deleted_topic_again(home: LogHome, tmp_path: Path) -> None:
    log = filled(home)
    view = log.cleaning_view()
    log.retire()

    for segment in view.segments:
        with pytest.raises(SegmentRemoved):
            segment.read_at(0, 1)
    assert log.begin_sync() is None
    log.sync()
    assert open_descriptors(tmp_path) == []


def test_names_of_a_deleted_log_stay_until_its_directory_is_removed(
    home: LogHome, tmp_path: Path
) -> None:
    """Partitions that were added and removed again have the names that the next attempt uses."""
    log = filled(home)
    read = pinned(log, 0)
    log.retire()
    names = {path.name for path in tmp_path.rglob("*")}
    read.release()
    assert {path.name for path in tmp_path.rglob("*")} == names
    assert open_descriptors(tmp_path) == []


def test_sidecars_and_indexes_that_are_removed_hold_nothing(home: LogHome, tmp_path: Path) -> None:
    log = filled(home)
    before = bytes_held(tmp_path)
    for each in log.cleaning_view().segments:
        each.drop_key_sidecar()
        each.segment.remove_index()
    assert deleted_but_open(tmp_path) == []
    assert bytes_held(tmp_path) < before
    assert not list(tmp_path.rglob(f"*{KEYS}"))


def test_files_of_a_deleted_log_are_not_remembered(home: LogHome) -> None:
    before = len(ACTIVE), len(SEALED)
    log = filled(home)
    assert (len(ACTIVE), len(SEALED)) > before
    topic_deleted(log)
    # Files of other tests' logs may be closed meanwhile.
    assert len(ACTIVE) <= before[0]
    assert len(SEALED) <= before[1]
