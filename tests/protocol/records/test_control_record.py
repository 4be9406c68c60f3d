"""Control records, byte for byte as Kafka writes them."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.control_record import (
    ControlType,
    TransactionMarker,
    read_control_type,
    read_transaction_marker,
    write_transaction_marker,
)
from protocol.wire.errors import InvalidRecord

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that importlib deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import ControlRecord

ABORT_KEY = bytes.fromhex("0000 0000")
COMMIT_KEY = bytes.fromhex("0000 0001")
EPOCH_9 = bytes.fromhex("0000 00000009")
ENDINGS = st.sampled_from([ControlType.ABORT, ControlType.COMMIT])


def test_markers_have_kafkas_bytes() -> None:
    commit = TransactionMarker(type=ControlType.COMMIT, coordinator_epoch=9)
    abort = TransactionMarker(type=ControlType.ABORT, coordinator_epoch=-1)
    assert write_transaction_marker(commit) == (COMMIT_KEY, EPOCH_9)
    assert write_transaction_marker(abort) == (ABORT_KEY, bytes.fromhex("0000 ffffffff"))


@given(ENDINGS, st.integers(-(2**31), 2**31 - 1))
def test_a_marker_reads_back_and_kafka_python_sees_its_type(
    control_type: ControlType, coordinator_epoch: int
) -> None:
    marker = TransactionMarker(type=control_type, coordinator_epoch=coordinator_epoch)
    key, value = write_transaction_marker(marker)
    assert read_transaction_marker(key, value) == marker
    oracle = ControlRecord(0, 0, 0, 0, key, value, [])
    assert (oracle.abort, oracle.commit) == (
        control_type is ControlType.ABORT,
        control_type is ControlType.COMMIT,
    )


@pytest.mark.parametrize("reserved", list(ControlType)[2:7], ids=lambda kind: kind.name)
def test_reserved_types_have_a_name_and_end_no_transaction(reserved: ControlType) -> None:
    key = bytes(2) + int(reserved).to_bytes(2)
    assert read_control_type(key) is reserved
    with pytest.raises(InvalidRecord, match=f"type {reserved.name} ends no transaction"):
        read_transaction_marker(key, EPOCH_9)


def test_a_type_of_a_later_release_is_unknown_not_wrong() -> None:
    assert read_control_type(bytes.fromhex("0000 0063")) is ControlType.UNKNOWN


def test_a_later_version_may_add_fields_at_the_end() -> None:
    marker = read_transaction_marker(
        bytes.fromhex("0001 0001 aabb"), bytes.fromhex("0001 00000009 ccdd")
    )
    assert marker == TransactionMarker(type=ControlType.COMMIT, coordinator_epoch=9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(None, EPOCH_9, id="no_key"),
        pytest.param(COMMIT_KEY[:3], EPOCH_9, id="short_key"),
        pytest.param(bytes.fromhex("ffff 0001"), EPOCH_9, id="negative_key_version"),
        pytest.param(COMMIT_KEY, None, id="no_value"),
        pytest.param(COMMIT_KEY, EPOCH_9[:5], id="short_value"),
        pytest.param(COMMIT_KEY, b"\xff\xff" + EPOCH_9[2:], id="negative_value_version"),
    ],
)
def test_a_broken_marker_is_an_invalid_record(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_transaction_marker(key, value)
