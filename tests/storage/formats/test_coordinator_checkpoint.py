"""The bytes of a coordinator's checkpoint, as ARCHITECTURE.md describes them."""

from __future__ import annotations

import uuid

import pytest

from protocol.records.batch_scan import crc32c
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.formats.coordinator_checkpoint import (
    FOOTER_BYTES,
    HEADER_BYTES,
    CheckpointHeader,
    decode_footer,
    decode_header,
    encode_counts,
    encode_header,
)

HEADER = CheckpointHeader(
    topic_id=uuid.UUID(int=7),
    partition=3,
    start_offset=Offset(10),
    end_offset=Offset(500),
    last_epoch=Epoch(4),
    last_crc=0xDEADBEEF,
)


def test_a_header_is_drawn_byte_by_byte() -> None:
    body = (
        b"KCCP"
        + (2).to_bytes(2, "big")
        + (56).to_bytes(2, "big")
        + uuid.UUID(int=7).bytes
        + (3).to_bytes(4, "big")
        + (10).to_bytes(8, "big")
        + (500).to_bytes(8, "big")
        + (4).to_bytes(4, "big")
        + b"\xde\xad\xbe\xef"
    )

    assert encode_header(HEADER) == body + crc32c(body).to_bytes(4, "big")
    assert HEADER_BYTES == 56


def test_a_header_reads_back() -> None:
    assert decode_header(encode_header(HEADER), "x") == HEADER


@pytest.mark.parametrize("at", [*range(4), *range(6, 56)])
def test_a_changed_byte_of_a_header_is_damage(at: int) -> None:
    data = bytearray(encode_header(HEADER))
    data[at] ^= 0x40

    with pytest.raises(DamagedFile):
        decode_header(bytes(data), "x")


def test_a_later_format_is_refused_as_such() -> None:
    data = bytearray(encode_header(HEADER))
    data[5] = 3

    with pytest.raises(FormatFromTheFuture, match="its format is 3"):
        decode_header(bytes(data), "x")


def test_an_earlier_format_does_not_count() -> None:
    body = bytearray(encode_header(HEADER)[:-4])
    body[5] = 1

    with pytest.raises(DamagedFile, match="an earlier release wrote it, in format 1"):
        decode_header(bytes(body) + crc32c(bytes(body)).to_bytes(4, "big"), "x")


def test_a_footer_has_the_count_the_digest_and_the_checksum() -> None:
    footer = decode_footer(encode_counts(9, 1 << 127) + bytes(range(16)), "x")

    assert (footer.records, footer.digest) == (9, 1 << 127)
    assert footer.checksum == bytes(range(16))
    assert FOOTER_BYTES == 40


def test_a_short_footer_is_damage() -> None:
    with pytest.raises(DamagedFile, match="truncated"):
        decode_footer(bytes(39), "x")
