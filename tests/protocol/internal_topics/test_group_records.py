"""The records of `__consumer_offsets`: Kafka's bytes, and what is no such record."""

from __future__ import annotations

import uuid

import pytest

from protocol.internal_topics.coordinator_records import (
    UnknownRecord,
    UnknownRecordType,
    write_key,
    write_value,
)
from protocol.internal_topics.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    GroupValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from protocol.wire.errors import DecodeError

COMMIT_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout=6,
    session_timeout=5,
    subscription=b"s",
    assignment=b"",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=2,
    protocol="range",
    leader="m",
    current_state_timestamp=9,
    members=(MEMBER,),
)


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"),
    [
        pytest.param(
            COMMIT_KEY,
            OffsetCommitValue(offset=5, leader_epoch=1, metadata="x", commit_timestamp=7),
            b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3",
            b"\0\4" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\1" + b"\2x" + b"\0\0\0\0\0\0\0\7" + b"\0",
            id="offset",
        ),
        pytest.param(
            COMMIT_KEY,
            OffsetCommitValue(offset=5, metadata="", commit_timestamp=7, expire_timestamp=8),
            b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3",
            b"\0\1" + b"\0\0\0\0\0\0\0\5" + b"\0\0" + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\0\0\0\0\x08",
            id="offset_with_an_expiry",
        ),
        pytest.param(
            COMMIT_KEY,
            OffsetCommitValue(
                offset=5, metadata="", commit_timestamp=7, topic_id=uuid.UUID(int=258)
            ),
            b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3",
            b"\0\4" + b"\0\0\0\0\0\0\0\5" + b"\xff" * 4 + b"\1" + b"\0\0\0\0\0\0\0\7"
            + b"\1\0\x10" + b"\0" * 14 + b"\1\2",
            id="offset_of_a_topic_by_id",
        ),
        pytest.param(
            GroupMetadataKey(group="g"),
            GROUP,
            b"\0\2" + b"\0\1g",
            b"\0\3" + b"\0\x08consumer" + b"\0\0\0\2" + b"\0\5range" + b"\0\1m" + b"\0" * 7 + b"\x09"
            + b"\0\0\0\1" + b"\0\1m" + b"\xff\xff" + b"\0\1c" + b"\0\2/h" + b"\0\0\0\6" + b"\0\0\0\5"
            + b"\0\0\0\1s" + b"\0\0\0\0",
            id="group",
        ),
    ],
)  # fmt: skip
def test_records_have_kafkas_bytes_and_are_read_again(
    key: GroupKey, value: GroupValue, key_bytes: bytes, value_bytes: bytes
) -> None:
    assert write_key(key) == key_bytes
    assert write_value(value) == value_bytes
    assert read_record(key_bytes, value_bytes) == GroupRecord(key, value)
    assert read_record(key_bytes, None) == GroupRecord(key, None)


def test_values_of_earlier_releases_are_read() -> None:
    key, rest = write_key(COMMIT_KEY), b"\0\0\0\0\0\0\0\5" + b"\0\1x" + b"\0\0\0\0\0\0\0\7"
    expected = OffsetCommitValue(offset=5, metadata="x", commit_timestamp=7)

    assert read_record(key, b"\0\0" + rest).value == expected
    assert read_record(key, b"\0\2" + rest).value == expected
    assert read_record(b"\0\0" + key[2:], b"\0\2" + rest).key == COMMIT_KEY


def test_what_a_later_release_wrote_is_named_and_not_guessed_at() -> None:
    with pytest.raises(UnknownRecordType, match="key of type 17"):
        read_record(b"\0\x11\0\1g", b"\0\0")
    with pytest.raises(UnknownRecord, match="OffsetCommitValue of version 5"):
        read_record(write_key(COMMIT_KEY), b"\0\5" + b"\0" * 30)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\1\0\1g", b"\0\2\0\1gx", b"\0\2\xff\xff"])
def test_what_is_no_record_is_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        read_record(key, None)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1\0", b"\xff\xff" + b"\0" * 30])
def test_what_is_no_value_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        read_record(write_key(COMMIT_KEY), value)
