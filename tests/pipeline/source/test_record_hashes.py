"""Records in Arrow batches are hashed as the broker hashes them in its log."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernel.row_hashes import BytesColumn, HeadersColumn, hash_rows
from pipeline.source.record_hashes import NAMES, digest_of_limbs, hash_batch
from protocol.records.record_batch import Record
from tests.harness.table_digest import content_hash, row_hash

TYPES = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**62),
    timestamp=st.integers(-1, 2**45),
    key=st.binary(max_size=20),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(
        st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
    ).map(tuple),
)


def batch_of(records: list[Record], *, wide: bool = False) -> pa.RecordBatch:
    rows = {
        "partition": [0] * len(records),
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp * 1000 for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        # As Spark's Kafka source has it: null where there are none.
        "headers": [
            [{"key": key, "value": value} for key, value in record.headers] or None
            for record in records
        ],
    }
    types = TYPES | ({"key": pa.large_binary(), "value": pa.large_binary()} if wide else {})
    return pa.record_batch([pa.array(rows[name], types[name]) for name in rows], names=list(rows))


@given(records=st.lists(RECORDS, max_size=12), wide=st.booleans(), data=st.data())
def test_any_slice_of_any_batch_has_the_hashes_of_its_records(
    records: list[Record], wide: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(records)))
    count = data.draw(st.integers(0, len(records) - first))

    rows = hash_batch(batch_of(records, wide=wide).slice(first, count)).to_pylist()

    sliced = records[first : first + count]
    assert [(row["offset"], row["key"], row["is_tombstone"]) for row in rows] == [
        (record.offset, record.key, record.value is None) for record in sliced
    ]
    assert [number(row, "content") for row in rows] == [content_hash(each) for each in sliced]
    assert [number(row, "row") for row in rows] == [row_hash(each) for each in sliced]


def number(row: dict[str, int], name: str) -> int:
    high, low = (row[f"{name}_{half}"] % 2**64 for half in ("high", "low"))
    return high << 64 | low


def test_without_the_headers_column_records_have_none() -> None:
    record = Record(offset=1, timestamp=2, key=b"k", value=b"v")
    batch = batch_of([record]).drop_columns(["headers"])

    (row,) = hash_batch(batch).to_pylist()

    assert tuple(row) == NAMES
    assert number(row, "row") == row_hash(record)


def test_the_column_of_versions_is_kept_beside_the_hashes() -> None:
    record = Record(offset=1, timestamp=2, key=b"k", value=b"v")
    batch = batch_of([record]).append_column("version", pa.array([-7]))

    (row,) = hash_batch(batch).to_pylist()

    assert tuple(row) == (*NAMES, "version")
    assert row["version"] == -7
    assert number(row, "row") == row_hash(record)


def test_a_digest_is_made_of_sums_of_limbs() -> None:
    assert digest_of_limbs([None, None, None, None]) == 0
    assert digest_of_limbs([1, 2, 3, 4]) == 1 << 96 | 2 << 64 | 3 << 32 | 4
    assert digest_of_limbs([1 << 32, 0, 0, 1 << 33]) == 2 << 32


def test_buffers_that_lie_are_refused() -> None:
    def column(*ends: int, data: bytes = b"abc", validity: bytes | None = None) -> BytesColumn:
        packed = b"".join(end.to_bytes(8, "little", signed=True) for end in ends)
        return BytesColumn(start=0, count=len(ends) - 1, validity=validity, ends=packed, data=data)

    with pytest.raises(ValueError, match="bytes of ends are too few"):
        BytesColumn(start=1, count=1, validity=None, ends=bytes(16), data=b"")
    with pytest.raises(ValueError, match="bytes of ends are too few"):
        BytesColumn(start=2**63 - 1, count=1, validity=None, ends=bytes(16), data=b"")
    with pytest.raises(ValueError, match="bytes of validity are too few"):
        BytesColumn(start=0, count=9, validity=b"\xff", ends=bytes(80), data=b"")
    for ends in ((0, 4), (2, 1), (-1, 2)):
        with pytest.raises(ValueError, match="cell 0 is at"):
            hash_rows(bytes(8), bytes(8), column(*ends), column(0, 1))
    with pytest.raises(ValueError, match="not all columns have 1 rows"):
        hash_rows(b"", bytes(8), column(0, 1), column(0, 1))
    headers = HeadersColumn(
        firsts=bytes(8), counts=(2).to_bytes(8, "little"), keys=column(0, 1), values=column(0, 1)
    )
    with pytest.raises(ValueError, match="there is no cell 1 among 1"):
        hash_rows(bytes(8), bytes(8), column(0, 1), column(0, 1), headers)
