"""Requests: headers of every version, and the gate before the body."""

from __future__ import annotations

import struct

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.wire.api_keys import ApiKey
from protocol.wire.encode import encode
from protocol.wire.errors import DecodeError, UnsupportedApi
from protocol.wire.request import RequestHeader, parse_header, parse_request


def header(key: int, version: int, *, client_id: bytes = b"\0\2me", tags: bytes = b"") -> bytes:
    return struct.pack(">hhi", key, version, 77) + client_id + tags


def test_header_v1_has_no_tagged_fields() -> None:
    frame = memoryview(header(2, 5) + b"body")
    assert parse_header(frame) == (
        RequestHeader(api_key=2, api_version=5, correlation_id=77, client_id="me"),
        12,
    )


def test_header_v2_has_tagged_fields_after_a_plain_client_id() -> None:
    frame = memoryview(header(2, 6, tags=b"\x01\x07\x02zz") + b"body")
    parsed, position = parse_header(frame)
    assert parsed.client_id == "me"
    assert bytes(frame[position:]) == b"body"


def test_client_id_may_be_null() -> None:
    parsed, _ = parse_header(memoryview(header(2, 5, client_id=b"\xff\xff")))
    assert parsed.client_id is None


def test_request_is_header_and_body() -> None:
    body = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=())
    (encoded,) = encode(body, 7)
    assert isinstance(encoded, bytearray)

    request = parse_request(header(2, 7, tags=b"\0") + encoded)

    assert request.api.key is ApiKey.LIST_OFFSETS
    assert request.header.api_version == 7
    assert request.body == body


def test_body_refers_to_the_frames_memory() -> None:
    frame = bytearray(
        header(0, 3) + b"\xff\xff\0\1\0\0\0\1" + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\3abc"
    )
    body = parse_request(frame).body
    assert isinstance(body, ProduceRequest)
    records = body.topic_data[0].partition_data[0].records
    assert records is not None
    records[:] = b"XYZ"
    assert frame.endswith(b"XYZ")


@pytest.mark.parametrize(
    ("key", "version"),
    [(0, 2), (0, 14), (1, 3), (1, 19), (3, 14), (3, -1), (4, 0), (76, 0), (999, 0), (-1, 0)],
)
def test_key_or_version_that_is_not_served_is_unsupported(key: int, version: int) -> None:
    with pytest.raises(UnsupportedApi) as raised:
        parse_request(header(key, version) + b"whatever")
    assert (raised.value.key, raised.value.version) == (key, version)


@pytest.mark.parametrize("version", [5, 99, 0x7FFF])
def test_api_versions_of_an_unknown_version_is_parsed_up_to_its_body(version: int) -> None:
    """KIP-511: it is answered, so the header must be readable; the body may be anything."""
    request = parse_request(header(18, version, tags=b"\0") + b"\xff\xff\xff")
    assert request.header.api_version == version
    assert request.header.correlation_id == 77
    assert request.body is None


def test_api_versions_of_a_known_version_has_a_body() -> None:
    request = parse_request(header(18, 3, tags=b"\0") + b"\x02a\x02b\x00")
    assert request.body == ApiVersionsRequest(client_software_name="a", client_software_version="b")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(header(2, 5)[:7], id="fixed_part_truncated"),
        pytest.param(header(2, 5)[:11], id="client_id_truncated"),
        pytest.param(header(2, 6), id="tagged_fields_missing"),
        pytest.param(header(2, 6, tags=b"\x01\x00"), id="tagged_fields_truncated"),
        pytest.param(header(2, 5, client_id=b"\0\1\xff"), id="client_id_not_utf8"),
        pytest.param(header(2, 5), id="body_missing"),
    ],
)
def test_malformed_requests_are_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_request(frame)


@pytest.mark.parametrize("version", [9, 10, 11, 12])
@pytest.mark.parametrize("allow", [False, True])
def test_librdkafkas_padded_wish_for_all_topics_is_understood(version: int, allow: bool) -> None:
    flags = [allow, False, False] if version <= 10 else [allow, False]
    body = bytes(4) + bytes(flags) + b"\0"
    header = struct.pack(">hhih", 3, version, 7, 2) + b"rd" + b"\0"

    request = parse_request(header + body)

    assert isinstance(request.body, MetadataRequest)
    assert request.body.topics is None
    assert request.body.allow_auto_topic_creation is allow


def test_other_surplus_bytes_of_a_metadata_request_are_ignored() -> None:
    header = struct.pack(">hhih", 3, 12, 7, 2) + b"rd" + b"\0"

    for surplus in (b"", b"\0", b"\0\0", b"\0\0\0\0", b"\1\0\0"):
        request = parse_request(header + b"\1\0\0\0" + surplus)
        assert request.body == MetadataRequest(topics=(), allow_auto_topic_creation=False)
        assert request.surplus_bytes == len(surplus)


@pytest.mark.parametrize("version", [9, 12])
def test_a_wish_for_all_topics_without_padding_stays_what_it_is(version: int) -> None:
    body = bytes(5 if version <= 10 else 4)
    header = struct.pack(">hhih", 3, version, 7, 2) + b"rd" + b"\0"

    for surplus in (b"", b"x"):
        request = parse_request(header + body + surplus)
        wish = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        assert (request.body, request.surplus_bytes) == (wish, len(surplus))
