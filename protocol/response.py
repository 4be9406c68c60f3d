"""Responses: a frame as a list of parts, ready to be sent in order.

    frame     := size: int32 | header | body
    header v0 := correlation_id: int32
    header v1 := header v0 | tagged fields              (when the API's version is flexible)

The header of an ApiVersions response is version 0 always: a client that asked with a version we
do not know has to find the error code where it expects it (KIP-511).

Source: ResponseHeader.json, KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

from protocol.api_keys import APIS, ApiKey
from protocol.encode import encode, encode_in_steps
from protocol.errors import EncodeError
from protocol.request import RequestHeader
from protocol.schema import Message, Part, part_size
from protocol.schema import Payload as Payload
from protocol.schema import Region as Region

_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
FRAME_BYTES_MAX = 0x7FFFFFFF


def encode_response(header: RequestHeader, message: Message) -> list[Part]:
    """Encode the answer to a request, with its frame's size in front.

    Large payloads and regions are parts of their own and are not copied: they must not change
    until they are sent.

    Raises:
        EncodeError: the message has a value that the request's version cannot carry.
    """
    out, version = _begun(header)
    return _finished(out, encode(message, version, out))


def encode_response_in_steps(
    header: RequestHeader, message: Message
) -> Generator[int, None, list[Part]]:
    """Encode as `encode_response` does, with a pause after each step; return the parts.

    Each pause yields the bytes of a part that was completed since the last one, or 0.

    Raises:
        EncodeError: as `encode_response`.
    """
    out, version = _begun(header)
    parts = yield from encode_in_steps(message, version, out)
    return _finished(out, parts)


def _begun(header: RequestHeader) -> tuple[bytearray, int]:
    """The size, still open, and the header; and the version in which the body follows."""
    api = APIS[header.api_key]
    is_api_versions = header.api_key == ApiKey.API_VERSIONS
    # Only ApiVersions is answered in a version that is not served, and then in version 0.
    assert is_api_versions or api.serves(header.api_version)
    version = header.api_version if api.serves(header.api_version) else 0
    out = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, header.correlation_id))
    if version >= api.flexible_since and not is_api_versions:
        out.append(0)
    return out, version


def _finished(out: bytearray, parts: list[Part]) -> list[Part]:
    """Write the frame's size into its first part."""
    size = sum(map(part_size, parts)) - _SIZE.size
    if size > FRAME_BYTES_MAX:
        raise EncodeError(f"response of {size} bytes")
    _SIZE.pack_into(out, 0, size)
    return parts
