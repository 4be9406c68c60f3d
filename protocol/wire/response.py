"""Encodes responses: a frame as a list of parts, to be sent in order.

    frame     := size: int32 | header | body
    header v0 := correlation_id: int32
    header v1 := header v0 | tagged fields              (when the API's version is flexible)

The header of an ApiVersions response always has version 0: a client that used a version unknown to us
must find the error code at the place where it expects it (KIP-511).

Source: ResponseHeader.json, KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.encode import encode, encode_in_steps
from protocol.wire.errors import EncodeError
from protocol.wire.request import RequestHeader
from protocol.wire.schema import Message, Part, part_size
from protocol.wire.schema import Payload as Payload
from protocol.wire.schema import Region as Region

_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
FRAME_BYTES_MAX = 0x7FFFFFFF


def encode_response(header: RequestHeader, message: Message) -> list[Part]:
    """Encode the answer to a request, starting with the frame's size.

    Large payloads and regions become their own parts and are not copied: they must not change
    until they are sent.

    Raises:
        EncodeError: the message has a value that the request's version cannot carry.
    """
    out, version = _begun(header)
    return _finished(out, encode(message, version, out))


def encode_response_in_steps(
    header: RequestHeader, message: Message
) -> Generator[int, None, list[Part]]:
    """Encode as `encode_response` does, with a pause after each step. Returns the parts.

    Each pause yields the size of a part completed since the last pause, or 0.

    Raises:
        EncodeError: as `encode_response`.
    """
    out, version = _begun(header)
    parts = yield from encode_in_steps(message, version, out)
    return _finished(out, parts)


def _begun(header: RequestHeader) -> tuple[bytearray, int]:
    """Returns a placeholder for the size with the header, and the version of the body that follows."""
    api, version = APIS[header.api_key], header.api_version
    out = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, header.correlation_id))
    if header.api_key == ApiKey.API_VERSIONS:
        # The only API of which unknown versions are answered, always in version 0.
        return out, version if api.serves(version) else 0
    assert api.serves(version)
    if version >= api.flexible_since:
        out.append(0)
    return out, version


def _finished(out: bytearray, parts: list[Part]) -> list[Part]:
    """Write the frame's size into the first part."""
    size = sum(map(part_size, parts)) - _SIZE.size
    if size > FRAME_BYTES_MAX:
        raise EncodeError(f"response of {size} bytes")
    _SIZE.pack_into(out, 0, size)
    return parts
