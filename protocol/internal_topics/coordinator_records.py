"""The common format of records in coordinators' topics, as Kafka writes them.

    key    type: int16 | the fields of that key                 never flexible
    value  version: int16 | the fields in that version          absent in a tombstone

A key's type identifies the subject of its record. The modules of the topics list the types and their
versions: `group_records.py`, `transaction_records.py`.

Source: Apache Kafka 4.3, CoordinatorRecordSerde.java, TransactionLog.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.errors import DecodeError
from protocol.wire.schema import NEVER, Message

PREFIX = struct.Struct(">h")
"""The prefix: a key's type, or a value's version."""


class UnknownRecord(DecodeError):
    """A key's type or a value's version is unknown to this release: a later one wrote the record."""


class UnknownRecordType(UnknownRecord):
    """The key's type is unknown: the record is about a feature that this release does not have."""


class CoordinatorKey(Message):
    """A record's key: the subject of the record."""

    __slots__ = ()
    versions = (0, 0)
    flexible_since = NEVER
    record_type: ClassVar[int]


class CoordinatorValue(Message):
    """A record's value: the new state of its subject."""

    __slots__ = ()
    versions = (0, 0)
    flexible_since = 0

    @property
    def written_version(self) -> int:
        """The version that Kafka 4.3 writes."""
        return 0

    @property
    def payload_bytes(self) -> int:
        """The bytes of its payloads: the encoded value is larger."""
        return 0


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record; without a value it is a tombstone."""

    key: CoordinatorKey
    value: CoordinatorValue | None


K = TypeVar("K", bound=CoordinatorKey)
V = TypeVar("V", bound=CoordinatorValue)


def write_key(key: CoordinatorKey) -> bytes:
    """Encode a key.

    Raises:
        EncodeError: one of its strings is longer than 32,767 bytes.
    """
    return _written(key, PREFIX.pack(key.record_type), 0)


def write_value(value: CoordinatorValue) -> bytes:
    """Encode a value in the version that Kafka 4.3 writes. Raises as `write_key`."""
    version = value.written_version
    return _written(value, PREFIX.pack(version), version)


def _written(message: Message, prefix: bytes, version: int) -> bytes:
    return b"".join((prefix, *encode(message, version)))  # type: ignore[arg-type]


def key_type(key: bytes) -> int:
    """Returns the type of an encoded key. Raises DecodeError."""
    return _prefix(key, "key")


def read_key(key_class: type[K], key: bytes) -> K:
    """Decode a key. Raises DecodeError."""
    return decode(key_class, 0, memoryview(key), PREFIX.size)


def read_value(value_class: type[V], value: bytes) -> V:
    """Decode a value.

    Raises:
        UnknownRecord: a later release wrote it.
        DecodeError: the bytes are not such a value.
    """
    version = _prefix(value, "value")
    first, last = value_class.versions
    if not first <= version <= last:
        raise UnknownRecord(f"{value_class.__name__} of version {version}")
    return decode(value_class, version, memoryview(value), PREFIX.size)


def _prefix(data: bytes, what: str) -> int:
    if len(data) < PREFIX.size:
        raise DecodeError(f"a {what} of {len(data)} bytes")
    prefix: int = PREFIX.unpack_from(data)[0]
    return prefix
