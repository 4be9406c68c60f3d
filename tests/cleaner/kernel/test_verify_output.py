"""What the output reader refuses; for what it finds see properties/test_verified_output.py."""

from __future__ import annotations

import pytest

from cleaner.kernel.verify_output import OutputReader
from protocol.records.batch_scan import crc32c
from protocol.wire.errors import CorruptBatch
from tests.harness.log_builder import batch_of

ATTRIBUTES_LOW_BYTE = 22
CRC = slice(17, 21)


@pytest.mark.parametrize("rebuilt", [b"\x00", b"\x01"], ids=["copied", "rewritten"])
def test_a_codec_that_nobody_knows_is_damage(rebuilt: bytes) -> None:
    batch = batch_of([(b"a", b"1")])
    batch[ATTRIBUTES_LOW_BYTE] |= 5
    batch[CRC] = crc32c(batch[CRC.stop :]).to_bytes(4)
    reader = OutputReader(rebuilt=rebuilt, batches=1, decompressed_bytes_max=1 << 20)
    reader.start_segment(0)

    with pytest.raises(CorruptBatch, match="position 7: its compression type"):
        reader.feed(bytes(batch), position=7)
