"""Encoding: parts that copy nothing large, and refusals of what a version cannot carry."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.wire.encode import INLINE_BYTES_MAX, encode, source_of
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import EncodeError
from protocol.wire.schema import Message, Payload


@dataclasses.dataclass(frozen=True)
class FileRegion:
    size: int


def fetched(records: Payload | None, **fields: Any) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, records=records, **fields
    )
    topic = FetchableTopicResponse(topic="t", partitions=(partition,))
    return FetchResponse(responses=(topic,))


def refuse(message: Message, version: int, match: str) -> None:
    with pytest.raises(EncodeError, match=match) as raised:
        encode(message, version)
    assert str(raised.value).startswith(f"{type(message).__name__} v{version}: ")


def test_large_payload_is_a_part_of_its_own() -> None:
    records = bytes(INLINE_BYTES_MAX + 1)

    before, payload, after = encode(fetched(records), 12)

    assert payload is records
    assert bytes(before).endswith(b"\x82\x08")  # type: ignore[arg-type]
    assert after == b"\0\0\0"


def test_small_payload_is_copied_into_its_neighbourhood() -> None:
    (part,) = encode(fetched(b"abc"), 12)
    assert bytes(part).endswith(b"\x04abc\0\0\0")  # type: ignore[arg-type]


def test_regions_are_passed_on_in_order_after_their_common_length() -> None:
    one, two = FileRegion(70_000), FileRegion(5)

    before, *parts = encode(fetched((one, b"abc", two)), 4)

    assert bytes(before).endswith((70_008).to_bytes(4, "big"))  # type: ignore[arg-type]
    assert parts == [one, b"abc", two]
    assert parts[0] is one


def test_no_empty_part_stands_at_the_end() -> None:
    *_, last = encode(fetched(bytes(5000)), 11)
    assert last == bytes(5000)


def test_empty_and_null_payloads_differ() -> None:
    (empty,) = encode(fetched(()), 11)
    (null,) = encode(fetched(None), 11)
    assert bytes(empty).endswith(b"\0\0\0\0")  # type: ignore[arg-type]
    assert bytes(null).endswith(b"\xff\xff\xff\xff")  # type: ignore[arg-type]


def test_message_follows_what_stands_before_it() -> None:
    out = bytearray(b"header")
    (part,) = encode(FindCoordinatorRequest(key="k"), 0, out)
    assert part is out
    assert out == b"header" + b"\0\1k"


def test_error_codes_are_encoded_as_numbers() -> None:
    response = InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    assert encode(response, 0)[0] == b"\0\0\0\0" + b"\0\x2a" + b"\xff" * 10


@pytest.mark.parametrize(
    ("message", "version", "match"),
    [
        pytest.param(FindCoordinatorRequest(key=None), 0, "key is null", id="string"),  # type: ignore[arg-type]
        pytest.param(FindCoordinatorRequest(coordinator_keys=None), 4, "null", id="array"),  # type: ignore[arg-type]
        pytest.param(FindCoordinatorRequest(coordinator_keys=(None,)), 4, "null", id="element"),  # type: ignore[arg-type]
        pytest.param(FindCoordinatorRequest(key_type=None), 1, "int", id="integer"),  # type: ignore[arg-type]
        pytest.param(
            MetadataRequest(topics=(), allow_auto_topic_creation=None),  # type: ignore[arg-type]
            4,
            "NoneType",
            id="bool",
        ),
        pytest.param(
            MetadataRequest(topics=(MetadataRequestTopic(name="t", topic_id=None),)),  # type: ignore[arg-type]
            10,
            "NoneType",
            id="uuid",
        ),
        pytest.param(MetadataRequest(topics=None), 0, "topics is null", id="version_too_old"),
    ],
)
def test_null_where_none_may_be_is_refused(message: Message, version: int, match: str) -> None:
    refuse(message, version, match)


@pytest.mark.parametrize(
    ("message", "version", "match"),
    [
        pytest.param(FindCoordinatorRequest(key_type=128), 1, "-128", id="integer_too_large"),
        pytest.param(FindCoordinatorRequest(key="k" * 0x8000), 0, "32768 bytes", id="string"),
        pytest.param(FindCoordinatorRequest(key="k" * 0x8000), 3, "32768 bytes", id="compact"),
        pytest.param(FindCoordinatorRequest(key="\ud800"), 0, "surrogates", id="surrogate"),
        pytest.param(FindCoordinatorRequest(key=b"k"), 0, "encode", id="bytes_for_a_string"),  # type: ignore[arg-type]
        pytest.param(fetched("text"), 12, "str", id="text_for_bytes"),  # type: ignore[arg-type]
    ],
)
def test_values_out_of_range_are_refused(message: Message, version: int, match: str) -> None:
    refuse(message, version, match)


def test_value_that_a_version_cannot_carry_is_refused() -> None:
    refuse(FindCoordinatorRequest(key="k", key_type=1), 0, "key_type does not exist")
    refuse(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=()), 1, "isolation_level")
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=1)
    refuse(fetched(None, current_leader=leader), 11, "current_leader does not exist")


def test_ignorable_value_that_a_version_cannot_carry_is_dropped() -> None:
    assert encode(fetched(None, log_start_offset=9), 4) == encode(fetched(None), 4)


def test_tagged_field_travels_only_when_it_is_not_its_default() -> None:
    same = fetched(None, current_leader=LeaderIdAndEpoch())
    other = fetched(None, current_leader=LeaderIdAndEpoch(leader_id=7))

    assert encode(same, 12) == encode(fetched(None), 12)
    (part,) = encode(other, 12)
    assert bytes(part).endswith(b"\x01\x01\x09\0\0\0\x07\xff\xff\xff\xff\x00" + b"\0\0")  # type: ignore[arg-type]


def test_compiled_source_writes_neighbouring_fields_at_once() -> None:
    assert "pack_ihqqq(m9.partition_index, " in source_of(FetchResponse, 12)
