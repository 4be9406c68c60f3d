"""The messages that members of a group of protocol type `consumer` exchange through the coordinator.

    subscription  version: int16 | topics | user data | v1 owned partitions | v2 generation | v3 rack
    assignment    version: int16 | partitions by topic | user data             (0-3 are alike)

Never flexible. A later version begins like the last one known here; the rest is not read, as in
Kafka. For the coordinator these are opaque bytes; it parses them only to find out which topics a
stable group reads, and to describe the group.

Source: Apache Kafka, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json,
ConsumerProtocol.java.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TypeVar

from protocol.wire.decode import decode_in_steps, decoder_of
from protocol.wire.encode import encode
from protocol.wire.errors import DecodeError
from protocol.wire.schema import (
    BYTES,
    INT32,
    NEVER,
    STRING,
    Message,
    Payload,
    array,
    wire,
    wire_class,
)

PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3

_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


@wire_class
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class Subscription(Message):
    """The topics that a member wants to read, and the partitions that it has."""

    api_key = -1
    versions = (0, VERSION_MAX)
    flexible_since = NEVER

    topics: tuple[str, ...] = wire(array(STRING))
    user_data: Payload | None = wire(BYTES, nullable_since=0, default=None)
    """Data of the assignor."""
    owned_partitions: tuple[TopicPartitions, ...] = wire(
        array(TopicPartitions), since=1, default=(), ignorable=True
    )
    """Partitions that the member keeps until an assignment takes them away (cooperative rebalances)."""
    generation_id: int = wire(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, since=3, nullable_since=3, default=None, ignorable=True)


@wire_class
class Assignment(Message):
    """The partitions that a member should read."""

    api_key = -1
    versions = (0, VERSION_MAX)
    flexible_since = NEVER

    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))
    user_data: Payload | None = wire(BYTES, nullable_since=0, default=None)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """Decode a member's subscription. Raises DecodeError."""
    return _decoded(Subscription, data)


def decode_subscription_in_steps(data: bytes | memoryview) -> Generator[None, None, Subscription]:
    """Decode as `decode_subscription` does, with a pause after each step. Raises DecodeError."""
    view = memoryview(data)
    version = _version(Subscription, view)
    subscription, _ = yield from decode_in_steps(Subscription, version, view, _VERSION.size)
    return subscription


def decode_assignment(data: bytes | memoryview) -> Assignment:
    """Decode a member's assignment; empty for no bytes, which a leader may send. Raises DecodeError."""
    return _decoded(Assignment, data) if len(data) else Assignment(assigned_partitions=())


def write(message: Subscription | Assignment, version: int = VERSION_MAX) -> bytes:
    """Returns the message's bytes in a version."""
    parts = encode(message, version, bytearray(_VERSION.pack(version)))
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # no regions


def _decoded(message_type: type[M], data: bytes | memoryview) -> M:
    view = memoryview(data)
    try:
        decoder = decoder_of(message_type, _version(message_type, view))
        message, _ = decoder(view, _VERSION.size)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"{message_type.__name__}: {error}") from error
    decoded: M = message
    return decoded


def _version(message_type: type[Message], view: memoryview) -> int:
    """Returns the version by which to decode the message. Raises DecodeError."""
    if len(view) < _VERSION.size:
        raise DecodeError(f"{message_type.__name__} without a version")
    (version,) = _VERSION.unpack_from(view)
    if version < 0:
        raise DecodeError(f"{message_type.__name__} of version {version}")
    return min(int(version), VERSION_MAX)
