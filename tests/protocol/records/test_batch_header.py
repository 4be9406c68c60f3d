"""The header of a batch: one layout for Python and for compiled code, read and changed in place."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from protocol.records import batch_header
from protocol.records.batch_header import HEADER, is_intact, read_header, seal, stamp
from protocol.records.record_batch import Record, build_batch, read_records

RECORD_FORMAT = Path(__file__).parents[3] / "protocol" / "records" / "record_format.h"
DEFINITIONS = {
    name: int(value, 0)
    for name, value in re.findall(
        r"^#define (?:BATCH|ATTRIBUTE)_(\w+) (0x\w+|\d+)", RECORD_FORMAT.read_text(), re.MULTILINE
    )
}
FIELDS = (
    "BASE_OFFSET", "LENGTH", "LEADER_EPOCH", "MAGIC", "CRC", "ATTRIBUTES", "LAST_OFFSET_DELTA",
    "BASE_TIMESTAMP", "MAX_TIMESTAMP", "PRODUCER_ID", "PRODUCER_EPOCH", "BASE_SEQUENCE",
    "RECORD_COUNT",
)  # fmt: skip


def test_compiled_code_has_the_fields_where_the_struct_has_them() -> None:
    formats = HEADER.format.removeprefix(">")
    positions = [struct.calcsize(">" + formats[:index]) for index in range(len(formats))]

    assert dict(zip(FIELDS, positions, strict=True)).items() <= DEFINITIONS.items()
    assert DEFINITIONS["HEADER_SIZE"] == HEADER.size


@pytest.mark.parametrize("name", [name for name in vars(batch_header) if name.endswith("_AT")])
def test_a_position_is_that_of_the_struct(name: str) -> None:
    position: int = getattr(batch_header, name)
    low_byte_of_attributes = DEFINITIONS["ATTRIBUTES"] + 1

    assert position == (
        low_byte_of_attributes if name == "FLAGS_AT" else DEFINITIONS[name.removesuffix("_AT")]
    )


@pytest.mark.parametrize(
    "name",
    [
        "CODEC_MASK",
        "LOG_APPEND_TIME",
        "TRANSACTIONAL",
        "CONTROL",
        "DELETE_HORIZON",
        "LENGTH_OVERHEAD",
    ],
)
def test_compiled_code_has_the_same_value(name: str) -> None:
    assert getattr(batch_header, name) == DEFINITIONS[name]


def test_a_changed_batch_is_intact_again_once_it_is_sealed() -> None:
    batch = build_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")])
    assert is_intact(batch)

    batch[batch_header.PRODUCER_ID_AT] ^= 1
    assert not is_intact(batch)

    seal(batch)
    assert is_intact(batch)


def test_a_stamp_changes_offset_and_epoch_and_keeps_the_crc_right() -> None:
    batch = build_batch([Record(offset=n, timestamp=n, key=b"k", value=b"v") for n in range(3)])
    before = bytes(batch)

    stamp(memoryview(batch), base_offset=2**40, leader_epoch=17)

    header = read_header(batch)
    assert (header.base_offset, header.last_offset) == (2**40, 2**40 + 2)
    assert header.leader_epoch == 17
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]
    offsets = [record.offset for record in read_records(batch, decompressed_bytes_max=0)]
    assert offsets == [2**40, 2**40 + 1, 2**40 + 2]


def test_sequences_wrap_after_the_largest_int32() -> None:
    records = [Record(offset=n, timestamp=0, key=b"k", value=b"v") for n in range(4)]
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 1


def test_the_header_can_be_read_without_its_records() -> None:
    batch = build_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v" * 100)])
    assert read_header(batch[:61]) == read_header(batch)
