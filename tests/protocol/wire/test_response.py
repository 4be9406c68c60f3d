"""Responses: size, header version, and parts that are sent as they are."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.wire.errors import EncodeError
from protocol.wire.request import RequestHeader
from protocol.wire.response import Region, encode_response
from protocol.wire.schema import Message, Payload, part_size


@dataclasses.dataclass(frozen=True)
class FileRegion:
    size: int


def asked(key: int, version: int) -> RequestHeader:
    return RequestHeader(api_key=key, api_version=version, correlation_id=77, client_id=None)


def answer(key: int, version: int, message: Message) -> bytes:
    (part,) = encode_response(asked(key, version), message)
    assert isinstance(part, bytearray)
    return bytes(part)


def fetched(records: Payload) -> FetchResponse:
    partition = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(partition,)),))


def test_size_and_correlation_id_stand_in_front() -> None:
    body = struct.pack(">ii", 0, 0)
    expected = struct.pack(">ii", 4 + len(body), 77) + body
    assert answer(2, 5, ListOffsetsResponse(topics=())) == expected


def test_flexible_versions_have_a_header_with_tagged_fields() -> None:
    assert answer(2, 6, ListOffsetsResponse(topics=())) == (
        struct.pack(">ii", 11, 77) + b"\0" + struct.pack(">i", 0) + b"\x01\0"
    )


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_has_a_header_without_tagged_fields_always(version: int) -> None:
    """KIP-511: the error code must stand where a client of any version looks for it."""
    encoded = answer(18, version, ApiVersionsResponse(error_code=0, api_keys=()))
    assert encoded[8:] == b"\0\0" + b"\x01" + b"\0\0\0\0" + b"\0"


@pytest.mark.parametrize("version", [5, 0x7FFF, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    supported = ApiVersion(api_key=18, min_version=0, max_version=4)
    feature = SupportedFeatureKey(name="f", min_version=1, max_version=1)
    response = ApiVersionsResponse(
        error_code=35, api_keys=(supported,), supported_features=(feature,)
    )
    assert answer(18, version, response)[8:] == struct.pack(">hihhh", 35, 1, 18, 0, 4)


def test_size_counts_regions_that_are_not_in_memory() -> None:
    region: Region = FileRegion(1_000_000)

    before, sent, after = encode_response(asked(1, 12), fetched((region,)))

    assert sent is region
    assert isinstance(before, bytearray)
    (size,) = struct.unpack_from(">i", before)
    assert size == part_size(before) + 1_000_000 + part_size(after) - 4


def test_response_beyond_a_frames_size_is_refused() -> None:
    with pytest.raises(EncodeError, match="bytes"):
        encode_response(asked(1, 12), fetched((FileRegion(0x7FFFFFF0), FileRegion(1))))
