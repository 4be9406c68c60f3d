"""Records of a coordinator's topic, as Kafka writes them: what they have in common.

    key    type: int16 | the fields of that key                 never flexible
    value  version: int16 | the fields in that version          absent in a tombstone

A key's type says what its record is about; what the types and their versions are, the topics' own
modules say: `group_records.py`, `transaction_records.py`.

Source: Apache Kafka 4.3, CoordinatorRecordSerde.java, TransactionLog.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from protocol.decode import decode
from protocol.encode import encode
from protocol.errors import DecodeError
from protocol.schema import NEVER, Message

PREFIX = struct.Struct(">h")
"""A key's type, a value's version."""


class UnknownRecord(DecodeError):
    """A key's type, or a value's version, that this release does not know: a later one wrote it."""


class UnknownRecordType(UnknownRecord):
    """It is the key's type: the record is about something that this release does not have."""


class CoordinatorKey(Message):
    """What a record is about."""

    __slots__ = ()
    versions = (0, 0)
    flexible_since = NEVER
    record_type: ClassVar[int]


class CoordinatorValue(Message):
    """What a record says."""

    __slots__ = ()
    versions = (0, 0)
    flexible_since = 0

    @property
    def written_version(self) -> int:
        """The version that Kafka 4.3 writes."""
        return 0


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record; with no value a tombstone."""

    key: CoordinatorKey
    value: CoordinatorValue | None


K = TypeVar("K", bound=CoordinatorKey)
V = TypeVar("V", bound=CoordinatorValue)


def write_key(key: CoordinatorKey) -> bytes:
    """A key's bytes.

    Raises:
        EncodeError: a string of it is longer than 32,767 bytes.
    """
    return _written(key, PREFIX.pack(key.record_type), 0)


def write_value(value: CoordinatorValue) -> bytes:
    """A value's bytes, in the version that Kafka 4.3 writes. Raises as `write_key`."""
    version = value.written_version
    return _written(value, PREFIX.pack(version), version)


def _written(message: Message, prefix: bytes, version: int) -> bytes:
    return b"".join((prefix, *encode(message, version)))  # type: ignore[arg-type]


def key_type(key: bytes) -> int:
    """What type of key these bytes are. Raises DecodeError."""
    return _prefix(key, "key")


def read_key(key_class: type[K], key: bytes) -> K:
    """The key that these bytes are. Raises DecodeError."""
    return decode(key_class, 0, memoryview(key), PREFIX.size)


def read_value(value_class: type[V], value: bytes) -> V:
    """The value that these bytes are.

    Raises:
        UnknownRecord: a later release wrote it.
        DecodeError: the bytes are no such value.
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
