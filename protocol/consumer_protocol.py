"""What members of a group of protocol type `consumer` tell each other, by way of the coordinator.

    subscription  version: int16 | topics | user data | v1 owned partitions | v2 generation | v3 rack
    assignment    version: int16 | partitions by topic | user data             (0-3 are alike)

Never flexible. A later version begins as the last one known here: what follows is left unread, as
Kafka does. To the coordinator these are opaque bytes; it looks into them only to know which topics a
stable group reads, and for who describes the group.

Source: Apache Kafka, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json,
ConsumerProtocol.java.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from protocol.decode import compile_decoder
from protocol.encode import encode
from protocol.errors import DecodeError
from protocol.schema import BYTES, INT32, NEVER, STRING, Message, Payload, array, wire, wire_class

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
    """What a member wants to read, and what it has."""

    api_key = -1
    versions = (0, VERSION_MAX)
    flexible_since = NEVER

    topics: tuple[str, ...] = wire(array(STRING))
    user_data: Payload | None = wire(BYTES, nullable_since=0, default=None)
    """The assignor's own."""
    owned_partitions: tuple[TopicPartitions, ...] = wire(
        array(TopicPartitions), since=1, default=(), ignorable=True
    )
    """Kept until the member is told to give them up (cooperative rebalances)."""
    generation_id: int = wire(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, since=3, nullable_since=3, default=None, ignorable=True)


@wire_class
class Assignment(Message):
    """What a member shall read."""

    api_key = -1
    versions = (0, VERSION_MAX)
    flexible_since = NEVER

    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))
    user_data: Payload | None = wire(BYTES, nullable_since=0, default=None)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """What a member wants. Raises DecodeError."""
    return _decoded(Subscription, data)


def decode_assignment(data: bytes | memoryview) -> Assignment:
    """What a member shall read: nothing for no bytes, as a leader may answer. Raises DecodeError."""
    return _decoded(Assignment, data) if len(data) else Assignment(assigned_partitions=())


def write(message: Subscription | Assignment, version: int = VERSION_MAX) -> bytes:
    """The message's bytes in a version."""
    parts = encode(message, version, bytearray(_VERSION.pack(version)))
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # no regions


def _decoded(message_type: type[M], data: bytes | memoryview) -> M:
    view = memoryview(data)
    try:
        (version,) = _VERSION.unpack_from(view)
        if version < 0:
            raise DecodeError(f"{message_type.__name__} of version {version}")
        decoder = compile_decoder(message_type, min(version, VERSION_MAX))
        message, _ = decoder(view, _VERSION.size)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"{message_type.__name__}: {error}") from error
    decoded: M = message
    return decoded
