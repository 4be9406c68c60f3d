"""The exact bytes that a pass makes of batches, and what other clients read in them.

Field by field: DefaultRecordBatch.java's header, 61 bytes; then the records, if any.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record import MemoryRecords as AiokafkaRecords

from tests.harness.compacted_log import CONFIG, START_MS, CompactedLog

with warnings.catch_warnings():
    # kafka-python reads its schemas with a deprecated importlib function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords

READERS = pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])

EMPTIED = bytes.fromhex(
    "0000000000000000 00000031 00000000 02 9779e147"
    "0000 00000001 ffffffffffffffff 00000000000003e9"
    "0000000000000007 0001 00000028 00000000"
)
STAMPED = bytes.fromhex(
    "0000000000000002 0000004f 00000000 02 a720eefe"
    "0040 00000001 0000018bcfe56be8 00000000000003e9"
    "ffffffffffffffff ffff ffffffff 00000002"
    "1e00ff9fabfef9620008676f6e6501001a00fd9fabfef962020261023300"
)
REBUILT = bytes.fromhex(
    "0000000000000004 0000003d 00000000 02 348e4c87"
    "0000 00000002 00000000000003e8 00000000000003e8"
    "ffffffffffffffff ffff ffffffff 00000001"
    "16000000086b657074023400"
)


def cleaned_batches() -> list[bytes]:
    """Returns an emptied batch, one with a delete horizon, and one without its last record."""
    log = CompactedLog()
    log.append((b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=1, base_sequence=40)
    log.append((b"gone", None), (b"a", b"3"))
    log.append((b"kept", b"4"), (b"b", b"5"), (b"b", b"6"))
    log.append((b"b", b"7"))
    log.clean()
    data = log.log.segments[0].files.open().read_at(0, log.log.segments[0].size)
    sizes = [header.size_bytes for header in log.headers()]
    starts = [sum(sizes[:number]) for number in range(4)]
    return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)][:3]


def test_a_pass_leaves_these_bytes() -> None:
    assert cleaned_batches() == [EMPTIED, STAMPED, REBUILT]


@READERS
@pytest.mark.parametrize(
    ("batch", "offsets", "records"),
    [
        pytest.param(EMPTIED, (0, 2), [], id="emptied"),
        pytest.param(
            STAMPED, (2, 4), [(2, 1000, b"gone", None), (3, 1001, b"a", b"3")], id="stamped"
        ),
        pytest.param(REBUILT, (4, 7), [(4, 1000, b"kept", b"4")], id="rebuilt"),
    ],
)
def test_other_clients_read_the_records_and_where_to_go_on(
    reader: Any, batch: bytes, offsets: tuple[int, int], records: list[tuple[object, ...]]
) -> None:
    theirs = reader(batch).next_batch()

    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset) == offsets
    seen = [
        (r.offset, r.timestamp, bytes(r.key), None if r.value is None else bytes(r.value))
        for r in theirs
    ]
    assert seen == records
    assert int.from_bytes(STAMPED[27:35]) == START_MS + CONFIG.delete_retention_ms
