"""Columns of records, against a plain loop over the records that Python reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.source.read import arrow_batch
from protocol.records.batch_header import read_header
from protocol.records.batch_scan import crc32c
from protocol.records.control_record import ControlType
from protocol.records.record_batch import (
    Codec,
    Record,
    build_batch,
    build_empty_batch,
    read_records,
)
from protocol.records.record_columns import RecordColumns
from protocol.wire.errors import CorruptBatch
from tests.harness.examples import examples
from tests.harness.log_builder import PLENTY, marker_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
PRODUCERS = (3, 5)
LEAST, BEYOND = -(1 << 63), (1 << 63) - 1
CRC_AT, ATTRIBUTES_AT, COUNT_AT, RECORDS_AT = 17, 21, 57, 61


@dataclass(slots=True)
class Written:
    """Batches back to back, and what a reader should be given of each."""

    data: bytearray = field(default_factory=bytearray)
    end_offset: int = 0
    rows: list[tuple[Record, int, int]] = field(default_factory=list)
    """Record, timestamp type, producer id if it is transactional, else -1."""

    def add(self, batch: bytearray, rows: Sequence[Record], producer_id: int = -1) -> None:
        header = read_header(batch)
        batch[:8] = self.end_offset.to_bytes(8)
        for row in rows:
            moved = replace(row, offset=row.offset + self.end_offset)
            self.rows.append((moved, int(header.timestamp_type), producer_id))
        self.data += batch
        self.end_offset += header.last_offset - header.base_offset + 1


def rows_of(columns: RecordColumns) -> list[dict[str, object]]:
    batch = arrow_batch(columns.take(), SCHEMA, "orders", 3)
    batch.validate(full=True)
    # As numbers, because not every int64 is a date of Python's.
    numbers = batch.set_column(5, "timestamp", batch.column("timestamp").cast(pa.int64()))
    found: list[dict[str, object]] = numbers.to_pylist()
    return found


def expected_row(record: Record, timestamp_type: int) -> dict[str, object]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": 1000 * record.timestamp,
        "timestampType": timestamp_type,
        "headers": headers or None,
    }


BYTES = st.none() | st.binary(max_size=40)
TIMES = st.integers(-1, 50) | st.sampled_from((1_700_000_000_000, (1 << 62) // 1000))


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Data batches of all codecs, with gaps, markers and empty batches between."""
    log = Written()
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(("data", "data", "data", "transaction", "marker", "empty")))
        producer_id = draw(st.sampled_from(PRODUCERS))
        if kind == "marker":
            log.add(marker_of(ControlType.ABORT, producer_id), ())
            continue
        deltas = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=12)))
        records = [
            Record(
                offset=delta,
                timestamp=draw(TIMES),
                key=draw(BYTES),
                value=draw(BYTES),
                headers=tuple(draw(st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3))),
            )
            for delta in deltas
        ]
        batch = build_batch(
            records,
            base_offset=0,
            codec=draw(st.sampled_from(Codec)),
            producer_id=producer_id if kind == "transaction" else -1,
            producer_epoch=0 if kind == "transaction" else -1,
            is_transactional=kind == "transaction",
        )
        if kind == "empty":
            log.add(bytearray(build_empty_batch(read_header(batch))), ())
        else:
            log.add(batch, records, producer_id if kind == "transaction" else -1)
    return log


def fed(columns: RecordColumns, data: bytes, chunk_bytes: int) -> list[dict[str, object]]:
    """All rows of a file that is read in chunks of so many bytes, or as many as a batch needs."""
    rows: list[dict[str, object]] = []
    position = 0
    while position < len(data) and not columns.is_done:
        size = max(chunk_bytes, columns.needed_bytes)
        position += columns.feed(data[position : position + size], position=position)
        if columns.is_full:
            rows += rows_of(columns)
    return rows + rows_of(columns)


@settings(max_examples=examples(150), deadline=None)
@given(
    written(),
    st.integers(1, 400),
    st.integers(1, 9),
    st.tuples(st.integers(0, 60), st.integers(0, 120)),
    st.tuples(st.integers(-2, 30), st.integers(0, 60) | st.just(BEYOND)),
    st.lists(
        st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 60), st.integers(1, 30)), max_size=2
    ),
)
def test_rows_are_the_records_that_are_asked_for(
    log: Written,
    chunk_bytes: int,
    rows_target: int,
    offsets: tuple[int, int],
    times: tuple[int, int],
    aborted: list[tuple[int, int, int]],
) -> None:
    # A producer has one transaction at a time.
    rows = list({who: (who, first, first + span) for who, first, span in aborted}.values())
    bases = {
        header_offset: read_header(log.data, at).base_offset
        for at in positions(log.data)
        for header_offset in range(
            read_header(log.data, at).base_offset, read_header(log.data, at).next_offset
        )
    }
    columns = RecordColumns(
        first_offset=offsets[0],
        end_offset=offsets[1],
        first_timestamp=times[0],
        end_timestamp=times[1],
        aborted=rows,
        with_headers=True,
        rows_target=rows_target,
    )

    found = fed(columns, bytes(log.data), chunk_bytes)

    assert found == [
        expected_row(record, timestamp_type)
        for record, timestamp_type, producer_id in log.rows
        if offsets[0] <= record.offset < offsets[1]
        if times[0] <= record.timestamp < times[1]
        if not any(
            who == producer_id and first <= bases[record.offset] < marker
            for who, first, marker in rows
        )
    ]


def positions(data: bytes | bytearray) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += read_header(data, at).size_bytes
    return found


def some_batch(codec: Codec = Codec.NONE, base_offset: int = 0) -> bytearray:
    records = [
        Record(offset=base_offset + n, timestamp=1000 + n, key=b"k%d" % n, value=bytes(50))
        for n in range(4)
    ]
    return build_batch(records, base_offset=base_offset, codec=codec)


def everything(*, decompressed_bytes_max: int = PLENTY) -> RecordColumns:
    return RecordColumns(
        first_offset=0,
        end_offset=BEYOND,
        with_headers=True,
        decompressed_bytes_max=decompressed_bytes_max,
    )


def resummed(batch: bytearray) -> bytearray:
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4)
    return batch


@pytest.mark.parametrize("codec", Codec)
def test_a_flipped_bit_is_refused_with_its_place(codec: Codec) -> None:
    first, second = some_batch(codec), some_batch(codec, base_offset=4)
    for at in range(16, len(second)):
        damaged = bytearray(second)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptBatch, match=f"position {7 + len(first)}:"):
            everything().feed(bytes(first + damaged), position=7)


def test_a_batch_whose_records_are_wrong_is_refused_though_its_crc_is_right() -> None:
    wrong_count, wrong_codec, wrong_length = (some_batch() for _ in range(3))
    wrong_count[COUNT_AT + 3] = 3
    wrong_codec[ATTRIBUTES_AT + 1] = 5
    wrong_length[RECORDS_AT] = 0
    for batch, reason in (
        (wrong_count, "its records do not fill it exactly"),
        (wrong_codec, "its compression type does not exist"),
        (wrong_length, "record 0 has a length that its fields do not fit"),
    ):
        with pytest.raises(CorruptBatch, match=f"position 0: {reason}"):
            everything().feed(bytes(resummed(batch)), position=0)


def test_a_batch_that_begins_below_the_one_before_it_is_refused() -> None:
    data = some_batch(base_offset=4) + some_batch(base_offset=7)

    with pytest.raises(CorruptBatch, match="begins below offset 8"):
        everything().feed(bytes(data), position=0)


def test_another_file_may_begin_with_what_was_met_which_is_left_out() -> None:
    columns = everything()
    columns.feed(bytes(some_batch() + some_batch(base_offset=4)), position=0)
    columns.begin_file(0)
    columns.feed(bytes(some_batch(base_offset=4) + some_batch(base_offset=8)), position=0)

    assert [row["offset"] for row in rows_of(columns)] == list(range(12))


def test_a_time_beyond_a_timestamp_is_refused() -> None:
    records = [Record(offset=0, timestamp=1 << 62, key=b"", value=b"")]

    with pytest.raises(CorruptBatch, match="record 0 has a time beyond"):
        everything().feed(bytes(build_batch(records, base_offset=0)), position=0)


def test_records_that_inflate_beyond_the_bound_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="inflate to more than 20 bytes"):
        everything(decompressed_bytes_max=20).feed(bytes(some_batch(Codec.ZSTD)), position=0)


def test_columns_that_are_not_asked_for_are_not_made() -> None:
    columns = RecordColumns(first_offset=0, end_offset=9, with_key=False, with_value=False)
    columns.feed(bytes(some_batch()), position=0)

    taken = columns.take()

    assert len(taken) == 4
    assert (taken.key, taken.value, taken.header_names) == (None, None, None)


def test_what_was_taken_stays_when_more_is_fed() -> None:
    columns = everything()
    columns.feed(bytes(some_batch()), position=0)
    first = arrow_batch(columns.take(), SCHEMA, "orders", 3)
    columns.feed(bytes(some_batch(base_offset=4)), position=0)
    del columns

    assert first.column("offset").to_pylist() == [0, 1, 2, 3]
    assert first.column("key").to_pylist() == [b"k0", b"k1", b"k2", b"k3"]


def test_records_are_those_that_python_reads() -> None:
    batch = some_batch(Codec.SNAPPY)
    columns = everything()
    columns.feed(bytes(batch), position=0)

    records = read_records(batch, decompressed_bytes_max=PLENTY)

    assert [(row["key"], row["value"]) for row in rows_of(columns)] == [
        (record.key, record.value) for record in records
    ]
