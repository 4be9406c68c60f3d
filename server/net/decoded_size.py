"""Estimates the memory of a large request once it is decoded, and says which bound counts it.

A small request takes little more than its frame, and only its frame counts (`RequestMemory`). The
decoded form of a large one may take far more, so it counts too: for most APIs in `DecodedMemory`, where
the request waits for its share before it is decoded. `EXCEPTIONS` lists the others.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from protocol.wire.api_keys import ApiKey

LARGE_FRAME_BYTES = 64 << 10
"""A larger request may have so many elements that its decoded form takes far more than the frame."""

DECODED_FACTOR = 24
"""Estimated memory per byte of a large request, decoded and answered: 3 to 20 bytes become an element
of 100 to 300 bytes, and another one in the answer."""


class CountedIn(enum.Enum):
    """The bound that counts the decoded form of a large request."""

    DECODED_MEMORY = enum.auto()
    """`DecodedMemory`; the request waits there before it is decoded."""
    REQUEST_MEMORY = enum.auto()
    """`RequestMemory`, like its frame, until it is answered; it is decoded at once."""
    NONE = enum.auto()
    """Only its frame counts; it is decoded at once."""


EXCEPTIONS: Mapping[int, CountedIn] = {
    # It may wait for records with all of its decoded partitions.
    ApiKey.FETCH: CountedIn.REQUEST_MEMORY,
    # Its decoded form is no larger than its frame: the records stay in there.
    ApiKey.PRODUCE: CountedIn.NONE,
    # They may wait for other clients, and must not hold memory that those clients need.
    ApiKey.JOIN_GROUP: CountedIn.NONE,
    ApiKey.SYNC_GROUP: CountedIn.NONE,
}
"""The APIs whose large requests do not wait for `DecodedMemory`, with the reasons."""


def request_memory_bytes(frame: bytearray) -> int:
    """Returns the bytes that a request counts in `RequestMemory` until it is answered."""
    size = len(frame)
    if size > LARGE_FRAME_BYTES and _counted_in(frame) is CountedIn.REQUEST_MEMORY:
        return size * DECODED_FACTOR
    return size


def decoded_memory_bytes(frame: bytearray) -> int:
    """Returns the bytes that a request counts in `DecodedMemory`; 0 if it need not wait there."""
    size = len(frame)
    if size > LARGE_FRAME_BYTES and _counted_in(frame) is CountedIn.DECODED_MEMORY:
        return size * DECODED_FACTOR
    return 0


def _counted_in(large_frame: bytearray) -> CountedIn:
    # The broker may not serve this key.
    api_key = large_frame[0] << 8 | large_frame[1]
    return EXCEPTIONS.get(api_key, CountedIn.DECODED_MEMORY)
