"""Reads values in JSON, which need their schema only to be known as such. The value is not validated."""

from __future__ import annotations

import msgspec

from schemas.outcomes import BadValue
from schemas.wire_header import HEADER_BYTES


def decode_json(data: bytes) -> bytes:
    """Returns a value as compact JSON, its numbers as they were written. Raises BadValue."""
    try:
        return msgspec.json.format(data[HEADER_BYTES:].decode(), indent=-1).encode()
    except (ValueError, RecursionError) as error:
        raise BadValue(f"it is no JSON: {error}") from error
