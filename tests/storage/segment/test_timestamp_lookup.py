from __future__ import annotations

import struct

import pytest

from protocol.wire.numbers import Offset
from storage.files.paths import TIME_INDEX
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.timestamp_lookup import TimestampOffset
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem


@pytest.mark.parametrize("lie", [(1000, 11), (1011, 2), (999, 5)])
def test_time_index_that_is_plausible_but_wrong_never_hides_a_record(lie: tuple[int, int]) -> None:
    disk = MemoryFileSystem()
    home = LogHome(disk)
    log = home.create()
    for number in range(12):
        batch = batch_of([(b"key", bytes(40))], timestamps=[1000 + number])
        assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
    log.roll(0)
    log.close()
    (name,) = [name for name in disk.list(log.directory) if name.endswith(TIME_INDEX)][:1]
    disk.write_bytes(f"{log.directory}/{name}", struct.pack(">qi", *lie))

    log = home.open(is_clean=True)

    for number in range(12):
        found = log.reader.offset_for_timestamp(1000 + number)
        assert found is not None
        assert found.offset == number


def cleaned_log() -> PartitionLog:
    """Two segments; only an empty batch is left of the first, which has the largest timestamp."""
    log = LogHome(MemoryFileSystem()).create()
    for number, timestamp in enumerate((9000, 5000, 6000)):
        batch = batch_of(
            [(b"key", b"%d" % number)],
            timestamps=[timestamp],
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
        )
        assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
        if number != 1:
            log.roll(0)
    log.advance_high_watermark(log.sync())
    view = log.cleaning_view()
    sources = view.segments[:1]
    batches, dropped = recopied(
        sources, lambda record: record.timestamp < 9000, view.producer_last_offsets
    )
    assert dropped == {0}
    log.cleaning.swap(
        [each.row for each in sources],
        write_cleaned(log, sources, batches, cut=len(batches)),
        generation=view.generation,
        clean_offset=None,
    )
    # A row that keeps the batch's largest timestamp, as Kafka's cleaner does.
    first = log.segments[0]
    first.max_timestamp, first.offset_of_max_timestamp = 9000, Offset(0)
    return log


def test_invariant_22_a_lookup_by_time_falls_through_empty_batches_to_later_segments() -> None:
    """Kafka stops in the first segment that promises a match."""
    log = cleaned_log()
    first = log.segments[0]
    assert (first.max_timestamp, first.record_count) == (9000, 0)
    assert log.reader.offset_for_timestamp(4000) == TimestampOffset(5000, Offset(1))
    assert log.reader.offset_for_timestamp(5500) == TimestampOffset(6000, Offset(2))
    assert log.reader.offset_for_timestamp(6001) is None


def test_invariant_22_the_youngest_record_is_one_that_is_still_there() -> None:
    assert cleaned_log().reader.offset_of_max_timestamp() == TimestampOffset(6000, Offset(2))


def test_invariant_22_holds_where_a_truncation_took_the_youngest_record() -> None:
    log = LogHome(MemoryFileSystem()).create()
    for timestamp in (1000, 9000):
        log.appender.append_as_leader(
            valid(batch_of([(b"key", b"v")], timestamps=[timestamp])), now_ms=0
        )
    log.truncate_to(Offset(1))
    log.appender.append_as_leader(valid(batch_of([(b"key", b"v")], timestamps=[5000])), now_ms=0)
    log.advance_high_watermark(log.sync())
    assert log.segments[0].max_timestamp == 9000
    assert log.reader.offset_for_timestamp(4000) == TimestampOffset(5000, Offset(1))
    assert log.reader.offset_of_max_timestamp() == TimestampOffset(5000, Offset(1))
