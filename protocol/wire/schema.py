"""Declares messages: immutable dataclasses whose fields carry their wire type and their versions.

    @wire_class
    class ListOffsetsTopic:
        name: str = wire(STRING)
        partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition))

    @wire_class
    class ListOffsetsRequest(Message):
        api_key = 2
        versions = (1, 7)
        flexible_since = 6

        replica_id: int = wire(INT32)
        isolation_level: int = wire(INT8, since=2, default=0)
        topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic))

Fields are in wire order. A field without `default=` exists in every served version, and the code that
builds the message must set it. The others have Kafka's default, which decoding also uses for a field
that is absent in a version. `decode.py` and `encode.py` turn a declaration into one straight-line
function per version, at its first use; a declaration itself costs no more than the dataclass.

The Python types: integers are int (encoding also takes an IntEnum), STRING is str, UUID is
`uuid.UUID` (zero is legal), arrays are tuples; BYTES and RECORDS decode to memoryviews of the frame
and encode from a `Payload`.

Source: the JSON message schemas of Apache Kafka, clients/src/main/resources/common/message.
"""

from __future__ import annotations

import dataclasses
import enum
import uuid
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, dataclass_transform

T = TypeVar("T")
C = TypeVar("C")


class Region(Protocol):
    """Bytes outside of memory, such as a range of a segment file, that are sent unchanged."""

    @property
    def size(self) -> int:
        """Size in bytes. It must not change once the region was passed to an encoder."""


Part: TypeAlias = bytes | bytearray | memoryview | Region
"""A piece of an encoded message; the pieces in order make up the message."""

Payload: TypeAlias = bytes | bytearray | memoryview | tuple[Part, ...]
"""A value that a BYTES or RECORDS field can encode. Large ones are not copied."""


def part_size(part: Part) -> int:
    """Returns the size in bytes of one piece of an encoded message."""
    if isinstance(part, bytes | bytearray):
        return len(part)
    return part.nbytes if isinstance(part, memoryview) else part.size


def copied(payload: Payload) -> bytes:
    """Returns a decoded payload as its own bytes. Use it to keep a payload: a decoded one is a view
    that holds its whole frame in memory."""
    assert not isinstance(payload, tuple), "a payload in parts was not decoded"
    return bytes(payload)


class Kind(enum.Enum):
    """The layout of a value."""

    FIXED = enum.auto()
    """A `struct` format."""
    STRING = enum.auto()
    BYTES = enum.auto()
    ARRAY = enum.auto()
    STRUCT = enum.auto()


class WireType(Generic[T]):
    """A type of Kafka's wire format; `T` is its Python type."""

    __slots__ = ("element", "format", "kind", "name", "struct")

    def __init__(
        self,
        name: str,
        kind: Kind,
        *,
        format: str = "",  # noqa: A002 - it is what struct calls it.
        element: WireType[Any] | None = None,
        struct: type | None = None,
    ) -> None:
        self.name: Final = name
        """Kafka's name, as in its JSON schemas: `int32`, `[]string`, `[]FetchTopic`."""
        self.kind: Final = kind
        self.format: Final = format
        """`struct` format without the byte order, for FIXED."""
        self.element: Final = element
        """Type of an ARRAY's elements."""
        self.struct: Final = struct
        """Dataclass of a STRUCT."""


BOOL: WireType[bool] = WireType("bool", Kind.FIXED, format="?")
INT8: WireType[int] = WireType("int8", Kind.FIXED, format="b")
INT16: WireType[int] = WireType("int16", Kind.FIXED, format="h")
UINT16: WireType[int] = WireType("uint16", Kind.FIXED, format="H")
INT32: WireType[int] = WireType("int32", Kind.FIXED, format="i")
INT64: WireType[int] = WireType("int64", Kind.FIXED, format="q")
FLOAT64: WireType[float] = WireType("float64", Kind.FIXED, format="d")
UUID: WireType[uuid.UUID] = WireType("uuid", Kind.FIXED, format="16s")
STRING: WireType[str] = WireType("string", Kind.STRING)
BYTES: WireType[Any] = WireType("bytes", Kind.BYTES)
RECORDS: WireType[Any] = WireType("records", Kind.BYTES)


def struct(declared: type[C]) -> WireType[C]:
    """Returns the type of one nested structure."""
    return WireType(declared.__name__, Kind.STRUCT, struct=declared)


def array(element: WireType[C] | type[C]) -> WireType[tuple[C, ...]]:
    """Returns the type of an array of a type, or of a declared class."""
    if isinstance(element, type):
        element = struct(element)
    return WireType(f"[]{element.name}", Kind.ARRAY, element=element)


NEVER: Final = 1 << 15
"""A version beyond all versions."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """The declaration of a field, without its name and its default."""

    type: WireType[Any]
    since: int
    until: int
    """The last version that has the field."""
    nullable_since: int
    tag: int | None
    tagged_since: int
    ignorable: bool

    def exists_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return version >= self.nullable_since

    def is_tagged_in(self, version: int) -> bool:
        return version >= self.tagged_since


def wire(
    type: WireType[T],  # noqa: A002 - reads as Kafka's schemas do.
    *,
    since: int = 0,
    until: int = NEVER,
    nullable_since: int = NEVER,
    default: Any = dataclasses.MISSING,
    tag: int | None = None,
    ignorable: bool = False,
) -> T:
    """Declare a field of a message.

    Args:
        since: first version with this field.
        until: last version with it.
        nullable_since: first version in which it may be None.
        default: the value if none is given, also when a version without the field is decoded.
        tag: makes it a tagged field (KIP-482), which is only sent if it differs from `default`.
        ignorable: encoding for a version without the field drops it silently; otherwise a value
            other than `default` raises `EncodeError`.
    """
    declared = WireField(
        type=type,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        tagged_since=NEVER if tag is None else since,
        ignorable=ignorable,
    )
    result: T = dataclasses.field(default=default, metadata={"wire": declared})
    return result


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def wire_class(cls: type[C]) -> type[C]:
    """Turn a declaration into a dataclass with slots and keyword arguments. It is immutable for mypy,
    as a `value_class` (value_class.py) is.

    All classes share the functions for comparing, hashing and repr: generating them for each class
    took a third of the import time of the messages.
    """
    for name, method in (("__eq__", _is_equal), ("__hash__", _hash), ("__repr__", _show)):
        setattr(cls, name, method)
    make = dataclasses.dataclass(slots=True, kw_only=True, eq=False, repr=False, match_args=False)
    return make(cls)


def _is_equal(self: object, other: object) -> bool:
    return isinstance(other, self.__class__) and _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _show(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__name__}({', '.join(shown)})"


def _values(declared: Any) -> tuple[Any, ...]:
    return tuple(getattr(declared, name) for name in declared.__slots__)


class Message:
    """A request or a response: the top level of a declaration."""

    __slots__ = ()

    api_key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    """First and last version that can be encoded and decoded."""
    flexible_since: ClassVar[int]
    """First version with compact lengths and tagged fields (KIP-482)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedField:
    """A declared field with its name and default, for the compilers."""

    name: str
    wire: WireField
    default: Any
    """`dataclasses.MISSING` if it has none."""


def fields_of(declared: type) -> tuple[NamedField, ...]:
    """Returns the fields of a declared class, in wire order."""
    return tuple(
        NamedField(name=field.name, wire=field.metadata["wire"], default=field.default)
        for field in dataclasses.fields(declared)
    )
