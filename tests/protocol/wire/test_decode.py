"""Strict decoding: each way in which bytes can be wrong is refused with a sentence."""

from __future__ import annotations

import tracemalloc

import pytest

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.wire.decode import decode, source_of
from protocol.wire.errors import DecodeError
from protocol.wire.primitives import ELEMENTS_MAX, write_unsigned_varint
from protocol.wire.schema import Message
from tests.harness.examples import not_quick

PRODUCE_V9 = b"\x00" + b"\x00\x01" + b"\x00\x00\x00\x01"
"""The start of a request: no transactional id, acks, timeout_ms; topics follow."""

A_TOPIC = b"\x02" + b"\x02a"
"""One topic, with its name; partitions follow."""


def refuse(message_type: type[Message], version: int, data: bytes, match: str) -> None:
    with pytest.raises(DecodeError, match=match) as raised:
        decode(message_type, version, memoryview(data))
    assert str(raised.value).startswith(f"{message_type.__name__} v{version}: ")


def test_trailing_bytes_are_refused() -> None:
    refuse(ApiVersionsRequest, 0, b"\0\0", match="2 bytes too many")


@pytest.mark.parametrize(
    ("version", "data"),
    [
        pytest.param(3, b"\xff\xfe", id="string"),
        pytest.param(3, b"\xff\xff" + b"\0\1\0\0\0\1" + b"\xff\xff\xff\xfe", id="array"),
        pytest.param(
            3,
            b"\xff\xff" + b"\0\1\0\0\0\1" + b"\0\0\0\1\0\1a" + b"\0\0\0\1\0\0\0\0\xff\xff\xff\xfe",
            id="records",
        ),
    ],
)
def test_lengths_below_minus_one_are_refused(version: int, data: bytes) -> None:
    refuse(ProduceRequest, version, data, match=r"-2")


@pytest.mark.parametrize(
    ("version", "data", "what"),
    [
        pytest.param(9, PRODUCE_V9 + b"\x00\x00", "topic_data", id="compact_array"),
        pytest.param(9, PRODUCE_V9 + b"\x02" + b"\x00\x01\x00", "name", id="compact_string"),
        pytest.param(3, b"\xff\xff\0\1\0\0\0\1\xff\xff\xff\xff", "topic_data", id="array"),
        pytest.param(
            3, b"\xff\xff\0\1\0\0\0\1\0\0\0\1\xff\xff\0\0\0\0", "name is null", id="string"
        ),
    ],
)
def test_null_where_none_may_be_is_refused(version: int, data: bytes, what: str) -> None:
    refuse(ProduceRequest, version, data, match=what)


def test_null_is_refused_up_to_the_version_that_allows_it() -> None:
    assert decode(MetadataRequest, 1, memoryview(b"\xff\xff\xff\xff")).topics is None
    refuse(MetadataRequest, 0, b"\xff\xff\xff\xff", match="topics is null")


def test_string_of_bytes_that_are_not_utf8_is_refused() -> None:
    refuse(FindCoordinatorRequest, 0, b"\x00\x01\xff", match="not UTF-8")


def test_compact_string_longer_than_an_int16_can_say_is_refused() -> None:
    data = bytearray()
    write_unsigned_varint(data, 0x8000 + 1)
    refuse(ApiVersionsRequest, 3, bytes(data) + bytes(0x8000) + b"\1\0", match="32768 bytes")


def test_length_beyond_the_frame_is_refused() -> None:
    data = PRODUCE_V9 + A_TOPIC + b"\x02" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff\x0f" + bytes(9)
    refuse(ProduceRequest, 9, data, match="truncated in records")


def test_varint_of_six_bytes_is_refused() -> None:
    refuse(ApiVersionsRequest, 3, b"\x80" * 6, match="5 bytes")


def test_count_beyond_the_frame_is_refused_before_anything_is_allocated() -> None:
    tracemalloc.start()
    refuse(DeleteTopicsRequest, 5, b"\xff\xff\xff\xff\x0f" + bytes(100), match="elements in 100")
    refuse(DeleteTopicsRequest, 1, b"\x7f\xff\xff\xff" + bytes(100), match="elements in 100")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@not_quick
def test_elements_are_bounded_over_all_arrays_of_a_message() -> None:
    half = ELEMENTS_MAX // 2
    count = bytearray()
    write_unsigned_varint(count, half + 1)
    # Two partitions arrays, each within the bound: responses, each with empty topics.
    partition = b"\0\0\0\0" + b"\x00" + b"\x00"
    topic = b"\x02a" + bytes(count) + partition * half + b"\x00"
    refuse(ProduceRequest, 9, PRODUCE_V9 + b"\x03" + topic * 2 + b"\x00", match="more than 2000000")


def test_unknown_tagged_fields_are_skipped_inside_of_tagged_structs() -> None:
    """A later version may add fields to a struct that itself is a tagged field."""
    leader = b"\0\0\0\7\0\0\0\3" + b"\x01" + b"\x63\x02zz"
    partition = b"\0\0\0\0" + b"\0\0" + bytes(24) + b"\x00" + b"\xff\xff\xff\xff" + b"\x00"
    tagged = b"\x02" + b"\x01" + bytes([len(leader)]) + leader + b"\x50\x01z"
    data = b"\0\0\0\0\0\0\0\0\0\0" + A_TOPIC + b"\x02" + partition + tagged + b"\x00\x00"

    response = decode(FetchResponse, 12, memoryview(data))

    current_leader = response.responses[0].partitions[0].current_leader
    assert (current_leader.leader_id, current_leader.leader_epoch) == (7, 3)


@pytest.mark.parametrize(
    ("tags", "match"),
    [
        pytest.param(b"\x02\x01\x08" + bytes(8) + b"\x00\x01\x01", "after", id="out_of_order"),
        pytest.param(
            b"\x02\x01\x08" + bytes(8) + b"\x01\x08" + bytes(8), "tag 1 after tag 1", id="twice"
        ),
        pytest.param(b"\x01\x01\x09" + bytes(9), "another size", id="larger_than_its_value"),
        pytest.param(b"\x01\x01\x07" + bytes(8), "another size", id="smaller_than_its_value"),
        pytest.param(b"\x01\x01\x08" + bytes(7), "truncated", id="truncated"),
    ],
)
def test_malformed_tagged_fields_are_refused(tags: bytes, match: str) -> None:
    refuse(ApiVersionsResponse, 3, b"\0\0" + b"\x01" + b"\0\0\0\0" + tags, match=match)


def test_known_tagged_field_is_read() -> None:
    data = b"\0\0\x01\0\0\0\0" + b"\x01\x01\x08" + bytes(7) + b"\x05"
    assert decode(ApiVersionsResponse, 3, memoryview(data)).finalized_features_epoch == 5


def test_field_that_a_version_lacks_decodes_to_its_default() -> None:
    request = decode(MetadataRequest, 1, memoryview(b"\0\0\0\0"))
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False


def test_records_are_a_slice_of_the_frame() -> None:
    start = PRODUCE_V9 + A_TOPIC + b"\x02" + b"\x00\x00\x00\x00" + b"\x04"
    frame = bytearray(start + b"abc" + b"\x00\x00\x00")

    request = decode(ProduceRequest, 9, memoryview(frame))

    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame
    records[0:1] = b"X"
    assert frame[len(start) :].startswith(b"Xbc")


def test_decoding_a_large_request_copies_nothing() -> None:
    size = 1 << 20
    length = bytearray()
    write_unsigned_varint(length, size + 1)
    frame = bytearray(
        PRODUCE_V9 + A_TOPIC + b"\x02" + b"\x00\x00\x00\x00" + length + bytes(size) + bytes(3)
    )
    decode(ProduceRequest, 9, memoryview(frame))

    tracemalloc.start()
    decode(ProduceRequest, 9, memoryview(frame))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 16 * 1024


def test_compiled_source_reads_neighbouring_fields_at_once() -> None:
    assert "unpack_hiB(buffer, position)" in source_of(ProduceRequest, 9)
