"""Record batches: other people's builders and readers, golden bytes, and damage."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import crc32c as crc32c_oracle
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch_header import BatchHeader, TimestampType, read_header, stamp
from protocol.records.compression import compress
from protocol.records.control_record import ControlType, TransactionMarker, read_transaction_marker
from protocol.records.record_batch import (
    Codec,
    Record,
    build_batch,
    build_control_batch,
    build_empty_batch,
    read_records,
)
from protocol.wire.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    ProtocolError,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.wire.numbers import Epoch, Offset, ProducerId
from tests.harness.examples import examples

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that importlib deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

PLENTY = 1 << 20
DATA = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple)
TIMESTAMPS = st.integers(0, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, *, dense: bool = False) -> list[Record]:
    """Records in offset order; where not dense, with gaps as compaction leaves them."""
    records: list[Record] = []
    offset = 0 if dense else draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(1, 12))):
        records.append(
            Record(
                offset=offset,
                timestamp=draw(TIMESTAMPS),
                key=draw(DATA),
                value=draw(DATA),
                headers=draw(HEADERS),
            )
        )
        offset += 1 if dense else draw(st.integers(1, 10_000))
    return records


class Seen(NamedTuple):
    """A record as any reader sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def seen(records: Sequence[Any]) -> list[Seen]:
    return [
        Seen(
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((key, None if v is None else bytes(v)) for key, v in record.headers),
        )
        for record in records
    ]


READERS = pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])
BUILDERS = pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])


def read_by(reader: Any, batch: bytes | bytearray) -> tuple[Any, list[Seen]]:
    """The one batch and its records, as another client's reader sees them."""
    batches = reader(bytes(batch))
    only = batches.next_batch()
    assert only.validate_crc()
    assert not batches.has_next()
    return only, seen(list(only))


# --------------------------------------------------------------------- oracles


@given(record_lists(), st.sampled_from(Codec))
@settings(max_examples=examples(60), deadline=None)
def test_what_is_built_reads_back(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    assert read_records(batch, decompressed_bytes_max=PLENTY) == records
    surrounded = b"junk" + batch + b"junk"
    assert read_records(surrounded, 4, decompressed_bytes_max=PLENTY) == records


@READERS
@given(records=record_lists(), codec=st.sampled_from(Codec), lead=st.integers(0, 1000))
@settings(max_examples=examples(60), deadline=None)
def test_other_clients_read_what_we_build(
    reader: Any, records: list[Record], codec: Codec, lead: int
) -> None:
    base_offset = max(0, records[0].offset - lead)
    batch = build_batch(
        records, base_offset=base_offset, codec=codec, leader_epoch=5, is_transactional=True,
        producer_id=77, producer_epoch=3, base_sequence=12, last_offset=records[-1].offset + 4,
    )  # fmt: skip
    theirs, their_records = read_by(reader, batch)
    assert their_records == seen(records)
    header = read_header(batch)
    assert (theirs.base_offset, theirs.next_offset) == (header.base_offset, header.next_offset)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
    assert (theirs.attributes, theirs.crc) == (header.attributes, header.crc)


@BUILDERS
@given(
    records=record_lists(dense=True), codec=st.sampled_from(Codec), is_transactional=st.booleans()
)
@settings(max_examples=examples(60), deadline=None)
def test_we_read_what_other_clients_build(
    builder: Any, records: list[Record], codec: Codec, is_transactional: bool
) -> None:
    theirs = builder(
        magic=2, compression_type=int(codec), is_transactional=is_transactional,
        producer_id=9, producer_epoch=2, base_sequence=40, batch_size=PLENTY,
    )  # fmt: skip
    for record in records:
        headers = list(record.headers)
        theirs.append(record.offset, record.timestamp, record.key, record.value, headers)
    batch = bytes(theirs.build())

    header = read_header(batch)
    assert seen(read_records(batch, decompressed_bytes_max=PLENTY)) == seen(records)
    assert header.size_bytes == len(batch)
    # A client sends a batch uncompressed where compressing made it no smaller.
    assert header.codec in (codec, Codec.NONE)
    assert header.is_transactional is is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert header.last_sequence == 40 + len(records) - 1
    assert header.max_timestamp == max(record.timestamp for record in records)


@BUILDERS
@given(records=record_lists(dense=True))
@settings(max_examples=examples(40), deadline=None)
def test_an_uncompressed_batch_is_byte_for_byte_theirs(builder: Any, records: list[Record]) -> None:
    theirs = builder(
        magic=2, compression_type=0, is_transactional=False, producer_id=9, producer_epoch=2,
        base_sequence=40, batch_size=PLENTY,
    )  # fmt: skip
    for record in records:
        headers = list(record.headers)
        theirs.append(record.offset, record.timestamp, record.key, record.value, headers)
    ours = build_batch(records, producer_id=9, producer_epoch=2, base_sequence=40)
    expected = bytearray(theirs.build())
    # A producer does not know the leader epoch and fills in what it likes.
    stamp(expected, base_offset=0, leader_epoch=-1)
    assert ours == expected


# --------------------------------------------------------------------- goldens

# Written by hand after DefaultRecordBatch.java; the CRCs are the crc32c package's.
EMPTY_BATCH = bytes.fromhex(
    "0000000000000064"  # base offset 100
    "00000031"  # batch length 49
    "00000007"  # leader epoch
    "02"
    "14a80bcd"
    "0030"  # transactional and control; codec and horizon are gone
    "00000009"  # last offset delta
    "ffffffffffffffff"  # base timestamp -1
    "00000000000003e8"  # max timestamp 1000
    "000000000000002a"  # producer id 42
    "0003"  # producer epoch
    "00000005"  # base sequence
    "00000000"
)
HORIZON_BATCH = bytes.fromhex(
    "0000000000000064"  # base offset 100
    "00000044"  # batch length 68
    "00000007"  # leader epoch
    "02"
    "3ff0b9cf"
    "0040"  # the base timestamp is the delete horizon
    "00000009"  # last offset delta: offsets up to 109 were here once
    "00000000000007d0"  # base timestamp = delete horizon = 2000
    "00000000000003ea"  # max timestamp 1002
    "ffffffffffffffff"
    "ffff"
    "ffffffff"
    "00000002"
    "10 00 cf0f 00 02 6b 01 00"  # delta -1000 from the horizon, offset 100, key k, tombstone
    "12 00 cb0f 06 02 6c 02 76 00"  # delta -998, offset 103, key l, value v
)


def test_an_emptied_batch_keeps_its_place_as_kafkas_write_empty_header() -> None:
    header = BatchHeader(
        size_bytes=500, base_offset=Offset(100), last_offset=Offset(109), leader_epoch=Epoch(7), crc=1,
        attributes=0x74, base_timestamp=999, max_timestamp=1000, producer_id=ProducerId(42),
        producer_epoch=Epoch(3), base_sequence=5, record_count=8,
    )  # fmt: skip
    assert crc32c_oracle.crc32c(EMPTY_BATCH[21:]) == int.from_bytes(EMPTY_BATCH[17:21])

    empty = build_empty_batch(header)

    assert empty == EMPTY_BATCH
    assert len(empty) == 61
    assert read_records(empty, decompressed_bytes_max=0) == []
    again = read_header(empty)
    assert (again.base_offset, again.last_offset, again.last_sequence) == (100, 109, 14)
    assert build_empty_batch(again) == empty


@READERS
def test_other_clients_read_an_emptied_batch_as_nothing(reader: Any) -> None:
    theirs, records = read_by(reader, EMPTY_BATCH)
    assert (records, theirs.base_offset, theirs.next_offset) == ([], 100, 110)


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_an_emptied_batch_keeps_its_timestamp_type(timestamp_type: TimestampType) -> None:
    batch = build_batch(
        [Record(offset=0, timestamp=5, key=b"k", value=None)],
        codec=Codec.LZ4, timestamp_type=timestamp_type, delete_horizon_ms=99,
    )  # fmt: skip
    empty = read_header(build_empty_batch(read_header(batch)))
    assert empty.timestamp_type is timestamp_type
    assert (empty.codec, empty.delete_horizon_ms) == (Codec.NONE, None)
    assert (empty.base_timestamp, empty.max_timestamp) == (-1, 5)


HORIZON_RECORDS = [
    Record(offset=100, timestamp=1000, key=b"k", value=None),
    Record(offset=103, timestamp=1002, key=b"l", value=b"v"),
]


def test_a_delete_horizon_becomes_the_base_timestamp_and_deltas_turn_negative() -> None:
    """KIP-534: attribute bit 6 says that the base timestamp is the delete horizon."""
    batch = build_batch(
        HORIZON_RECORDS, base_offset=100, leader_epoch=7, delete_horizon_ms=2000, last_offset=109
    )
    assert crc32c_oracle.crc32c(HORIZON_BATCH[21:]) == int.from_bytes(HORIZON_BATCH[17:21])

    assert batch == HORIZON_BATCH
    header = read_header(batch)
    assert (header.delete_horizon_ms, header.max_timestamp) == (2000, 1002)
    assert (header.last_offset, header.record_count) == (109, 2)
    assert read_records(batch, decompressed_bytes_max=0) == HORIZON_RECORDS


@READERS
@pytest.mark.parametrize("codec", Codec)
def test_other_clients_read_right_timestamps_under_a_delete_horizon(
    reader: Any, codec: Codec
) -> None:
    batch = build_batch(HORIZON_RECORDS, base_offset=100, codec=codec, delete_horizon_ms=2000)
    assert read_by(reader, batch)[1] == seen(HORIZON_RECORDS)


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
@READERS
def test_a_control_batch_holds_one_marker(reader: Any, control_type: ControlType) -> None:
    marker = TransactionMarker(type=control_type, coordinator_epoch=6)
    batch = build_control_batch(
        marker, offset=8, timestamp=1234, producer_id=5, producer_epoch=1, leader_epoch=2
    )
    header = read_header(batch)
    assert header.attributes == 0x30
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.last_offset, header.last_sequence) == (8, 8, -1)
    [record] = read_records(batch, decompressed_bytes_max=0)
    assert record.timestamp == 1234
    assert read_transaction_marker(record.key, record.value) == marker
    theirs, _ = read_by(reader, batch)
    assert theirs.is_control_batch


# --------------------------------------------------------------------- details


def test_log_append_time_gives_every_record_the_max_timestamp() -> None:
    records = [Record(offset=n, timestamp=n, key=b"k", value=b"v") for n in range(3)]
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5000)
    assert read_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    read = read_records(batch, decompressed_bytes_max=0)
    assert read == [replace(record, timestamp=5000) for record in records]
    assert read_by(KafkaPythonRecords, batch)[1] == seen(read)


def test_header_names_that_are_no_utf8_survive() -> None:
    record = Record(
        offset=0, timestamp=0, key=None, value=None,
        headers=((b"\xff\xfeh".decode(errors="surrogateescape"), None),),
    )  # fmt: skip
    batch = build_batch([record])
    assert b"\xff\xfeh" in batch
    assert read_records(batch, decompressed_bytes_max=0) == [record]


# ---------------------------------------------------------------------- damage

SOUND = bytes(
    build_batch(
        [Record(offset=n, timestamp=n, key=b"key", value=b"value" * 9) for n in range(5)],
        codec=Codec.GZIP,
    )
)


def with_field(position: int, field: bytes) -> bytes:
    """A batch with one field changed and its CRC made right again."""
    batch = bytearray(SOUND)
    batch[position : position + len(field)] = field
    batch[17:21] = crc32c_oracle.crc32c(bytes(batch[21:])).to_bytes(4)
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        pytest.param(b"", CorruptBatch, "0 bytes are too few", id="nothing"),
        pytest.param(SOUND[:60], CorruptBatch, "60 bytes are too few", id="short"),
        pytest.param(SOUND[:16] + b"\x00", UnsupportedMagic, "format 0", id="short_magic_0"),
        pytest.param(with_field(16, b"\x01"), UnsupportedMagic, "format 1", id="magic_1"),
        pytest.param(with_field(16, b"\x03"), UnsupportedMagic, "format 3", id="magic_3"),
        pytest.param(with_field(8, b"\x00\x00\x00\x30"), CorruptBatch, "smaller", id="length_48"),
        pytest.param(with_field(8, b"\xff" * 4), CorruptBatch, "smaller", id="length_-1"),
        pytest.param(with_field(23, b"\xff" * 4), CorruptBatch, "5 records in 0", id="delta_-1"),
        pytest.param(with_field(57, b"\xff" * 4), CorruptBatch, "-1 records", id="count_-1"),
        pytest.param(with_field(57, b"\0\0\0\6"), CorruptBatch, "6 records in 5", id="count_6"),
        pytest.param(with_field(0, b"\x7f" + b"\xff" * 7), CorruptBatch, "no room", id="overflow"),
    ],
)
def test_a_damaged_header_is_refused(
    batch: bytes, error: type[ProtocolError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_header(batch)
    with pytest.raises(error, match=message):
        read_records(batch, decompressed_bytes_max=PLENTY)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        pytest.param(SOUND[:-1], CorruptBatch, "are there", id="cut"),
        pytest.param(SOUND[:-1] + b"\xee", CorruptBatch, "fails its CRC", id="crc"),
        pytest.param(with_field(21, b"\x00\x05"), UnsupportedCodec, "type 5", id="codec_5"),
        pytest.param(with_field(21, b"\x00\x07"), UnsupportedCodec, "type 7", id="codec_7"),
        pytest.param(with_field(21, b"\x00\x04"), CorruptBatch, "damaged", id="codec_lies"),
        pytest.param(with_field(57, b"\0\0\0\4"), CorruptBatch, "left behind", id="count_4"),
        pytest.param(with_field(57, b"\0\0\0\0"), CorruptBatch, "left behind", id="count_0"),
    ],
)
def test_damaged_records_are_refused(
    batch: bytes, error: type[ProtocolError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_records(batch, decompressed_bytes_max=PLENTY)


def test_records_that_inflate_beyond_the_bound_are_refused() -> None:
    with pytest.raises(DecompressionTooLarge):
        read_records(SOUND, decompressed_bytes_max=50)


@pytest.mark.parametrize("offsets", [(1, 0), (0, 0), (0, 2)], ids=["back", "twice", "beyond"])
def test_record_offsets_must_grow_and_stay_in_the_batch(offsets: tuple[int, int]) -> None:
    plain = b"".join(
        bytes(build_batch([Record(offset=offset, timestamp=0, key=b"k", value=b"")])[61:])
        for offset in offsets
    )
    two = build_batch([Record(offset=n, timestamp=0, key=b"k", value=b"") for n in range(2)])
    batch = two[:21] + two[21:61] + plain
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[17:21] = crc32c_oracle.crc32c(bytes(batch[21:])).to_bytes(4)
    with pytest.raises(CorruptBatch, match="out of place"):
        read_records(batch, decompressed_bytes_max=0)


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_lying_batch_with_a_right_crc_raises_nothing_but_protocol_errors(
    data: st.DataObject,
) -> None:
    codec = data.draw(st.sampled_from(Codec))
    records = data.draw(record_lists(dense=True))
    plain = build_batch(records)[61:]
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    batch = build_batch(records)[:61] + compress(codec, plain)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[22] = codec
    batch[17:21] = crc32c_oracle.crc32c(bytes(batch[21:])).to_bytes(4)
    try:
        read = read_records(batch, decompressed_bytes_max=PLENTY)
    except CorruptBatch:
        return
    assert len(read) == len(records)
