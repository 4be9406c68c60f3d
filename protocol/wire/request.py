"""Decodes requests: the header, which says what the body is, and the body.

    header v1 := api_key: int16 | api_version: int16 | correlation_id: int32
                 | client_id: nullable string
    header v2 := header v1 | tagged fields               (when the API's version is flexible)

The client id has an int16 length in both, because a broker must be able to read the header of an
ApiVersions request with an unknown version. Header v0 (ControlledShutdown v0) is not supported.

Source: RequestHeader.json, KIP-482, KIP-511.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Generator

from protocol.wire.api_keys import APIS, Api, ApiKey
from protocol.wire.decode import decode, decode_in_steps, decode_prefix
from protocol.wire.errors import DecodeError, UnsupportedApi
from protocol.wire.primitives import ELEMENTS_MAX, read_nullable_string, skip_tagged_fields
from protocol.wire.schema import Message
from protocol.wire.value_class import value_class

_FIXED = struct.Struct(
    ">"
    "h"  # api_key
    "h"  # api_version
    "i"  # correlation_id
)


@value_class(kw_only=True)
class RequestHeader:
    """A request's API, version, client, and the number that identifies its answer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@value_class(kw_only=True)
class Request:
    """A request from one frame."""

    header: RequestHeader
    api: Api
    body: Message | None
    """None only for an ApiVersions request of an unsupported version: its layout is unknown,
    and the answer is UNSUPPORTED_VERSION in version 0."""
    surplus_bytes: int = 0
    """Number of bytes after the body's end. They are ignored, as in Kafka: some clients send one."""


def parse_request(frame: bytes | bytearray | memoryview) -> Request:
    """Decode the payload of one frame. Records in the body refer to the frame's memory.

    Raises:
        UnsupportedApi: the key or the version is not served; nothing after them was read.
        DecodeError: the bytes are not such a request.
    """
    view = memoryview(frame)
    header, position = parse_header(view)
    api = APIS[header.api_key]
    if _has_unknown_body(header):
        return Request(header=header, api=api, body=None)
    body, end = parse_body(header, view, position)
    return Request(header=header, api=api, body=body, surplus_bytes=len(view) - end)


def parse_request_in_steps(
    frame: bytes | bytearray | memoryview,
) -> Generator[None, None, Request]:
    """Decode a frame as `parse_request` does, with a pause after each step. Returns the request.

    Raises:
        UnsupportedApi, DecodeError: as `parse_request`.
    """
    view = memoryview(frame)
    header, position = parse_header(view)
    api = APIS[header.api_key]
    if _has_unknown_body(header):
        return Request(header=header, api=api, body=None)
    request_type = api.request_type
    body, end = yield from decode_in_steps(request_type, header.api_version, view, position)
    return Request(header=header, api=api, body=body, surplus_bytes=len(view) - end)


def parse_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read the header. Also returns the position of the body.

    Raises:
        UnsupportedApi: the key or the version is not served; ApiVersions is served in any version.
        DecodeError: the bytes are not a header.
    """
    if len(frame) < _FIXED.size:
        raise DecodeError(f"request of {len(frame)} bytes has no header")
    key, version, correlation_id = _FIXED.unpack_from(frame)
    api = APIS.get(key)
    if api is None or not (api.serves(version) or key == ApiKey.API_VERSIONS):
        raise UnsupportedApi(key, version)
    client_id, position = read_nullable_string(frame, _FIXED.size)
    if version >= api.flexible_since:
        position, _ = skip_tagged_fields(frame, position, ELEMENTS_MAX)
    header = RequestHeader(
        api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return header, position


def _has_unknown_body(header: RequestHeader) -> bool:
    """Returns whether it is ApiVersions in a version that is not served, which alone gets an answer."""
    is_api_versions = header.api_key == ApiKey.API_VERSIONS
    return is_api_versions and not APIS[ApiKey.API_VERSIONS].serves(header.api_version)


def parse_body(header: RequestHeader, frame: memoryview, position: int) -> tuple[Message, int]:
    """Decode the body after a header with a served version. Also returns the body's end.

    Raises:
        DecodeError: the bytes do not begin with such a request.
    """
    request_type, version = APIS[header.api_key].request_type, header.api_version
    if header.api_key == ApiKey.METADATA and version >= request_type.flexible_since:
        with contextlib.suppress(DecodeError):
            if _is_padded_null(frame, position):
                return decode(request_type, version, frame, position + _PADDING_BYTES), len(frame)
    return decode_prefix(request_type, version, frame, position)


_PADDING_BYTES = 3
_ALL_TOPICS_BYTES_MAX = 8
"""Size of a Metadata request for all topics with its padding; a longer body is another request."""


def _is_padded_null(frame: memoryview, position: int) -> bool:
    """Returns whether a Metadata request begins with a null of four bytes instead of one.

    librdkafka (2.16 and before) requests all topics in this way in the flexible versions: it
    reserves the four bytes of the older versions' length. Kafka reads the flags from the padding and
    ignores the surplus at the end; we remove the padding.
    """
    is_short = len(frame) - position <= _ALL_TOPICS_BYTES_MAX
    return is_short and frame[position : position + 1 + _PADDING_BYTES] == bytes(1 + _PADDING_BYTES)
