"""The records of `__transaction_state`: Kafka's bytes, and what is no such record."""

from __future__ import annotations

import struct

import pytest

from protocol.internal_topics.coordinator_records import (
    UnknownRecord,
    UnknownRecordType,
    write_key,
    write_value,
)
from protocol.internal_topics.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    TransactionRecord,
    read_record,
)
from protocol.wire.errors import DecodeError

KEY = TransactionLogKey(transactional_id="tx")
KEY_BYTES = b"\0\0" + b"\0\2tx"
VALUE = TransactionLogValue(
    producer_id=1000,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(TransactionPartitions(topic="t", partition_ids=(0, 2)),),
    transaction_last_update_timestamp_ms=9,
    transaction_start_timestamp_ms=7,
)
FIXED = struct.pack(">qhib", 1000, 3, 60_000, 1)
TIMES = struct.pack(">qq", 9, 7)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        pytest.param(
            VALUE,
            b"\0\1" + FIXED + b"\2" + b"\2t" + b"\3\0\0\0\0\0\0\0\2" + b"\0" + TIMES + b"\0",
            id="open",
        ),
        pytest.param(
            TransactionLogValue(
                producer_id=1000,
                previous_producer_id=5,
                next_producer_id=6,
                producer_epoch=3,
                transaction_timeout_ms=60_000,
                transaction_status=1,
                transaction_partitions=None,
                transaction_last_update_timestamp_ms=9,
                transaction_start_timestamp_ms=7,
                client_transaction_version=2,
            ),
            b"\0\1" + FIXED + b"\0" + TIMES
            + b"\3" + struct.pack(">bbq", 0, 8, 5) + struct.pack(">bbq", 1, 8, 6) + b"\2\2\0\2",
            id="of_the_new_protocol",
        ),
    ],
)  # fmt: skip
def test_records_have_kafkas_bytes_and_are_read_again(
    value: TransactionLogValue, data: bytes
) -> None:
    assert write_key(KEY) == KEY_BYTES
    assert write_value(value) == data
    assert read_record(KEY_BYTES, data) == TransactionRecord(KEY, value)
    assert read_record(KEY_BYTES, None) == TransactionRecord(KEY, None)


def test_values_of_earlier_releases_are_read() -> None:
    partitions = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\2"
    assert read_record(KEY_BYTES, b"\0\0" + FIXED + partitions + TIMES).value == VALUE


def test_a_record_of_a_later_release_is_named() -> None:
    with pytest.raises(UnknownRecordType, match="key of type 1"):
        read_record(b"\0\1" + b"\0\2tx", None)
    with pytest.raises(UnknownRecord, match="TransactionLogValue of version 2"):
        read_record(KEY_BYTES, b"\0\2" + FIXED)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", None), (b"\0\0\0\5tx", None), (KEY_BYTES, b""), (KEY_BYTES, b"\0\1\0")]
)
def test_other_bytes_are_no_record(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        read_record(key, value)
