"""A range of offsets that was planned is read correctly even if the log's files change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.source.filters import RowFilter
from pipeline.source.options import SegmentOptions
from pipeline.source.plan import plan
from pipeline.source.read import CHUNK_BYTES, OffsetsGone, RangeOfLog, record_batches
from protocol.wire.numbers import Offset
from storage.files.errors import CorruptLog
from storage.files.files import FileSystem
from tests.harness.compacted_log import CONFIG, DIRECTORY, SETTINGS, CompactedLog
from tests.harness.log_transactions import committed_offsets
from tests.properties.test_transaction_cleaning import STEPS, History

SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def planned(log: CompactedLog, *, is_committed: bool, bytes_max: int) -> list[RangeOfLog]:
    options = SegmentOptions(
        path=DIRECTORY, read_committed=is_committed, partition_bytes_max=bytes_max
    )
    return plan(log.fs, options, RowFilter())


def offsets_of(fs: FileSystem, ranges: Sequence[RangeOfLog]) -> list[int]:
    batches = (
        batch for each in ranges for batch in record_batches(fs, each, SCHEMA, rows_target=3)
    )
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def offsets_now(log: CompactedLog, *, is_committed: bool) -> list[int]:
    """The offsets of the data records that a consumer is sent now."""
    if is_committed:
        return committed_offsets(log.log, max_bytes=2000)
    markers = {header.base_offset for header in log.headers() if header.is_control}
    return [record.offset for record in log.records() if record.offset not in markers]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(STEPS, min_size=8, max_size=40),
    st.lists(STEPS, max_size=30),
    st.booleans(),
    st.sampled_from((200, 1000, 1 << 20)),
)
def test_what_was_planned_is_read_though_the_log_goes_on(
    before: list[object], after: list[object], is_committed: bool, bytes_max: int
) -> None:
    """Nothing comes twice, nothing that is still there is missed, nothing comes that was not there."""
    history = History(CompactedLog(replace(CONFIG, segment_bytes=300), SETTINGS))
    for step in before:
        history.do(step)

    ranges = planned(history.log, is_committed=is_committed, bytes_max=bytes_max)
    log = history.log.log
    end_offset = log.last_stable_offset if is_committed else log.log_end_offset
    then = offsets_now(history.log, is_committed=is_committed)
    assert offsets_of(history.log.fs, ranges) == then
    for step in after:
        history.do(step)
    read = offsets_of(history.log.fs, ranges)

    now = [at for at in offsets_now(history.log, is_committed=is_committed) if at < end_offset]
    assert read == sorted(set(read))
    assert set(now) <= set(read) <= set(then)


def log_of_segments(count: int) -> CompactedLog:
    log = CompactedLog()
    for number in range(count):
        log.append_segment((b"key-%d" % number, b"value"), (b"all", b"%d" % number))
    return log


def test_a_swap_between_two_batches_is_followed() -> None:
    log = log_of_segments(6)
    (everything,) = planned(log, is_committed=False, bytes_max=1 << 20)
    batches = record_batches(log.fs, everything, SCHEMA, rows_target=1)

    first = [next(batches).column("offset")[0].as_py() for _ in range(3)]
    log.clean()
    rest = [row["offset"] for batch in batches for row in batch.to_pylist()]

    # The file that is open is read to its end; of the others what cleaning has left.
    assert (first, rest) == ([0, 1, 2], [3, 4, 6, 8, 10, 11])


def test_offsets_that_were_deleted_meanwhile_are_an_error_or_are_passed_over() -> None:
    log = log_of_segments(4)
    (everything,) = planned(log, is_committed=False, bytes_max=1 << 20)
    log.log.delete_records(Offset(5))
    log.make_durable()

    with pytest.raises(OffsetsGone, match=r"offsets \[0, 5\) were deleted while they were read"):
        offsets_of(log.fs, [everything])
    assert offsets_of(log.fs, [replace(everything, fail_on_data_loss=False)]) == [5, 6, 7]


def test_a_log_that_was_deleted_meanwhile_is_an_error() -> None:
    log = log_of_segments(4)
    ranges = planned(log, is_committed=False, bytes_max=1 << 20)
    log.fs.remove_tree(DIRECTORY)

    with pytest.raises(OffsetsGone, match="was deleted while it was read"):
        offsets_of(log.fs, ranges)


def test_a_file_that_ends_before_what_was_planned_is_damage() -> None:
    log = log_of_segments(2)
    (everything,) = planned(log, is_committed=False, bytes_max=1 << 20)
    path = f"{DIRECTORY}/{0:020}.v1.log"
    file = log.fs.open(path)
    file.truncate(file.size - 10)

    with pytest.raises(
        CorruptLog, match=r"\.v1\.log is corrupt at byte \d+: no whole batch is left"
    ):
        offsets_of(log.fs, [everything])


def test_a_batch_that_claims_more_than_its_file_has_costs_no_memory() -> None:
    log = log_of_segments(2)
    (everything,) = planned(log, is_committed=False, bytes_max=1 << 20)
    path = f"{DIRECTORY}/{0:020}.v1.log"
    log.fs.overwrite(path, 8, (0x7FFFFFF0).to_bytes(4))

    with pytest.raises(CorruptLog, match="corrupt at byte 0"):
        offsets_of(log.fs, [everything])


@pytest.mark.parametrize("bit", range(64))
def test_a_batch_whose_offset_is_damaged_is_not_taken_for_the_end(bit: int) -> None:
    """No checksum has a batch's base offset. One that becomes another offset of its segment is read as
    that, as everywhere; with any other the read ends with an error."""
    log = CompactedLog()
    for number in range(3):
        log.append((b"%d" % number, b"v"))
    log.roll()
    log.append((b"last", b"v"))
    (everything,) = planned(log, is_committed=False, bytes_max=1 << 20)
    size = log.headers()[0].size_bytes
    log.fs.overwrite(f"{DIRECTORY}/{0:020}.v1.log", size, (1 ^ 1 << bit).to_bytes(8))

    with pytest.raises(CorruptLog, match=f"(byte|position) ({size}|{2 * size}): "):
        offsets_of(log.fs, [everything])


def test_a_batch_larger_than_a_chunk_is_read() -> None:
    log = CompactedLog(replace(CONFIG, max_message_bytes=1 << 28))
    log.append((b"small", b"value"))
    log.append((b"large", bytes(3 * CHUNK_BYTES)))
    log.append((b"small", b"value"))

    assert offsets_of(log.fs, planned(log, is_committed=False, bytes_max=1 << 20)) == [0, 1, 2]


def test_a_large_segment_is_cut_where_its_index_says_and_an_index_that_lies_costs_nothing() -> None:
    log = CompactedLog()
    for number in range(60):
        log.append((b"key-%d" % number, bytes(50)))
    log.roll()
    ranges = planned(log, is_committed=False, bytes_max=2000)
    assert len(ranges) > 2
    assert offsets_of(log.fs, ranges) == list(range(60))

    index = f"{DIRECTORY}/{0:020}.v1.index"
    log.fs.overwrite(index, 12, (77).to_bytes(4))
    assert offsets_of(log.fs, ranges) == list(range(60))
    assert offsets_of(log.fs, planned(log, is_committed=False, bytes_max=2000)) == list(range(60))
