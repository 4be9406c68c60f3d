"""The checks of the mirror soak find what they look for (`tests/harness/traced_logs.py`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import Codec, Record
from tests.harness.log_builder import batch_of, headers_in
from tests.harness.traced_logs import FoundRecords, check_batches, check_cleaned, check_kept
from tests.harness.traced_records import COMMITTED, START_MS, Columns, Flags, Ledger

TOPIC = 0
ROWS = (
    # key, is a tombstone, is committed
    (1, False, True),
    (2, False, True),
    (1, False, True),
    (2, True, True),
    (3, False, False),
    (4, False, True),
    (4, False, False),
)
"""One record after the other. Key 1 has a second value, key 2 is deleted, key 4 keeps its first value,
because the second one was aborted."""
NEWEST = {2, 3, 5}


def columns() -> Columns:
    keys, tombstones, committed = zip(*ROWS, strict=True)
    zeros = np.zeros(len(ROWS), np.int64)
    return Columns(
        topics=zeros,
        partitions=zeros,
        keys=np.array(keys, np.int64),
        offsets=np.arange(len(ROWS), dtype=np.int64),
        are_tombstones=np.array(tombstones),
        are_committed=np.array(committed),
        are_aborted=~np.array(committed),
    )


def there(*numbers: int) -> Flags:
    return np.isin(np.arange(len(ROWS)), numbers)


@pytest.mark.parametrize(
    "left",
    [range(len(ROWS)), NEWEST, {2, 5}, {0, *NEWEST}, {1, *NEWEST}, {4, 6, *NEWEST}],
    ids=["everything", "newest", "no-tombstone", "superseded", "deleted", "aborted"],
)
def test_a_compacted_log_may_lack_what_was_superseded_or_deleted(left: set[int]) -> None:
    check_kept(columns(), TOPIC, there(*left), is_compacted=True)


@pytest.mark.parametrize("left", [{3, 5}, {2, 3}, {2, 3, 6}], ids=["none", "other", "aborted"])
def test_a_log_without_a_last_value_is_found(left: set[int]) -> None:
    with pytest.raises(AssertionError, match="last values are missing"):
        check_kept(columns(), TOPIC, there(*left), is_compacted=True)


def test_a_deleted_key_that_has_its_value_again_is_found() -> None:
    with pytest.raises(AssertionError, match="have their values again"):
        check_kept(columns(), TOPIC, there(1, 2, 5), is_compacted=True)


def test_a_log_that_deletes_nothing_has_every_committed_record() -> None:
    check_kept(columns(), TOPIC, there(0, 1, 2, 3, 5), is_compacted=False)
    with pytest.raises(AssertionError, match="committed records are missing"):
        check_kept(columns(), TOPIC, there(*NEWEST), is_compacted=False)


def test_a_cleaned_log_has_nothing_else_than_last_records_and_one_at_its_end() -> None:
    check_cleaned(columns(), TOPIC, there(6, *NEWEST))
    with pytest.raises(AssertionError, match="no reader needs"):
        check_cleaned(columns(), TOPIC, there(0, 6, *NEWEST))


@pytest.mark.parametrize(
    "changed",
    [
        {"leader_epoch": 4},
        {"producer_id": 8},
        {"base_sequence": 1},
        {"last_offset": 3},
        {"attributes": Codec.ZSTD.value},
        {"crc": 5},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_batch_that_is_another_one_in_the_mirror_is_found(changed: dict[str, int]) -> None:
    (header,) = headers_in(bytes(batch_of([(b"k", b"v")] * 3, producer_id=7, base_sequence=0)))
    check_batches(found(header), found(header))

    with pytest.raises(AssertionError, match="in the mirror"):
        check_batches(found(header), found(replace(header, **changed)))  # type: ignore[arg-type]


def found(header: BatchHeader) -> FoundRecords:
    return FoundRecords(there(), batches={(TOPIC, 0): {header.base_offset: header}})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offset": 6}, "is at 5"),
        ({"value": b"another"}, "another"),
        ({"headers": (("n", b"9"),)}, "9"),
        ({"timestamp": START_MS + 1}, "never written"),
    ],
)
def test_a_record_that_was_not_written_like_this_is_found(
    changed: dict[str, object], said: str
) -> None:
    ledger = Ledger(1, keys_count=3, seed=2)
    content = ledger.content(0)
    number = ledger.sent(TOPIC, 0, content)
    ledger.offsets[number] = 5
    ledger.decided(0, 1, COMMITTED)
    record = Record(
        offset=5,
        timestamp=START_MS,
        key=content.key,
        value=content.value,
        headers=tuple(content.headers),
    )
    assert ledger.check(record, TOPIC, 0) == number

    with pytest.raises(AssertionError, match=said):
        ledger.check(replace(record, **changed), TOPIC, 0)  # type: ignore[arg-type]
