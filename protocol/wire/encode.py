"""Encodes messages: one function per message class and version, compiled at its first use.

Like a decoder, an encoder also exists as a generator, which pauses every few hundred elements.

A message becomes a list of parts. Small values are packed into bytearrays, neighbouring fields
of fixed size with one `struct` packing; a large BYTES or RECORDS value is its own part, so it
is not copied, and a `Region` always is. `source_of` returns the compiled source:

    def encode(m0, out):
        parts = [out]
        out += pack_bB(m0.isolation_level, ...)
        ...
        return parts
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from protocol.wire.codec_source import CodecCache, CodecSource
from protocol.wire.encoded_strings import EncodedStrings
from protocol.wire.errors import EncodeError
from protocol.wire.primitives import STRING_BYTES_MAX, write_unsigned_varint
from protocol.wire.schema import (
    STRING,
    UUID,
    Kind,
    Message,
    NamedField,
    Part,
    Payload,
    WireType,
    part_size,
)

INLINE_BYTES_MAX = 1024
"""Payloads up to this size are copied, which costs less than sending one more part."""

Encoder = Callable[[Any, bytearray], list[Part]]
"""Takes a message and the bytearray to start with, which becomes the first part."""

StepEncoder = Callable[[Any, bytearray], Generator[int, None, list[Part]]]
"""The same, with pauses; each yields the size of a part completed since the last pause, or 0."""

STEP_ELEMENTS = 256
"""Elements between two pauses: 0.1 to 0.5 ms of encoding."""

FIXED_STEP_ELEMENTS = 16_384
"""The same for numbers, of which one call writes many at once."""

STEP_PART_BYTES = 64 << 10
"""When encoding in steps, a new part begins after a part has reached this size: the sent parts of a
large answer can then be freed before the rest."""


def encode(message: Message, version: int, out: bytearray | None = None) -> list[Part]:
    """Encode a message. Returns the parts, which in order are its bytes.

    Args:
        out: bytes before the message, such as a header. It becomes the first part.

    Raises:
        EncodeError: a value is null, of another type, or out of range for its field, or is set
            and not ignorable while its field does not exist in this version.
    """
    message_type = type(message)
    encoder = _encoders[message_type, version]
    try:
        return encoder(message, bytearray() if out is None else out)
    except _WRONG_VALUES as error:
        raise _as_encode_error(error, message_type, version) from error


def encode_in_steps(
    message: Message, version: int, out: bytearray
) -> Generator[int, None, list[Part]]:
    """Encode as `encode` does, with a pause after each step. The generator returns the parts.

    Each pause yields the size of a part completed since the last pause, or 0.

    Raises:
        EncodeError: as `encode`.
    """
    message_type = type(message)
    encoder = _step_encoders[message_type, version]
    try:
        return (yield from encoder(message, out))
    except _WRONG_VALUES as error:
        raise _as_encode_error(error, message_type, version) from error


_WRONG_VALUES = (struct.error, TypeError, AttributeError, UnicodeEncodeError, EncodeError)


def _as_encode_error(error: Exception, message_type: type[Message], version: int) -> EncodeError:
    """Returns the error about one of a message's values, with the message's name."""
    return EncodeError(f"{message_type.__name__} v{version}: {error}")


def source_of(message_type: type[Message], version: int) -> str:
    """Returns the Python source of an encoder, for people to read."""
    return _EncoderSource(message_type, version).text


def payload_size(payload: Payload) -> int:
    """Returns the size in bytes of the value of a BYTES or RECORDS field."""
    if isinstance(payload, tuple):
        return sum(map(part_size, payload))
    return part_size(payload)


def append_payload(parts: list[Part], out: bytearray, payload: Payload, size: int) -> bytearray:
    """Append a payload after its length. Returns the bytearray for the next fields."""
    if not isinstance(payload, tuple):
        if size <= INLINE_BYTES_MAX:
            out += payload
            return out
        payload = (payload,)
    if size == 0:
        return out
    parts.extend(payload)
    following = bytearray()
    parts.append(following)
    return following


def joined(payload: Payload) -> Part:
    """Returns a payload in one piece, for a tagged field: its size is known only once it is written."""
    return b"".join(payload) if isinstance(payload, tuple) else payload  # type: ignore[arg-type]


def null(what: str) -> EncodeError:
    return EncodeError(f"{what} is null")


class _EncoderSource(CodecSource):
    """Writes the source of one encoder. `text` is the source, `names` the objects it refers to."""

    def __init__(
        self, message_type: type[Message], version: int, *, in_steps: bool = False
    ) -> None:
        names = {
            "EncodeError": EncodeError,
            "EncodedStrings": EncodedStrings,
            "append_payload": append_payload,
            "joined": joined,
            "null": null,
            "pack": struct.pack,
            "payload_size": payload_size,
            "write_unsigned_varint": write_unsigned_varint,
        }
        super().__init__(message_type, version, names)
        # The bytearray to write to: the message's, or that of a tagged field.
        self._out = "out"
        self._in_steps = in_steps

        self._emit("parts = [out]")
        if in_steps:
            # Makes the function a generator even if the message has no array.
            self._emit("if False:", "    yield 0", f"left = {STEP_ELEMENTS}")
        self._struct(message_type, "m0")
        self._flush()
        self._emit("if not out and len(parts) > 1:", "    parts.pop()", "return parts")
        self.text = "\n".join(["def encode(m0, out):", *self._lines, ""])

    def _flush(self) -> None:
        """Write the pending values with one packing: an expression each, "" for a zero byte."""
        if not self._pending:
            return
        if self._pending == [("", "x")]:
            self._pending = []
            self._emit(f"{self._out}.append(0)")
            return
        values = ", ".join(expression for expression, _ in self._pending if expression)
        layout = "".join(format_ for _, format_ in self._pending)
        self._pending = []
        name = "pack_" + layout.replace("?", "bool")
        self.names[name] = struct.Struct(">" + layout).pack
        self._emit(f"{self._out} += {name}({values})")

    # Values: each method emits the lines that write one value.

    def _value(self, wire_type: WireType[Any], value: str, what: str, *, nullable: bool) -> None:
        """Write the value of an expression, which is a variable except for fixed-size values."""
        match wire_type.kind:
            case Kind.FIXED if wire_type is UUID:
                self._pending.append((f"{value}.bytes", wire_type.format))
            case Kind.FIXED if wire_type.format == "?":
                # struct accepts any value as a boolean; a null must not be written as false.
                self._pending.append((f"{value} | False", "?"))
            case Kind.FIXED:
                self._pending.append((value, wire_type.format))
            case Kind.STRING:
                self._string(value, what, nullable=nullable)
            case Kind.BYTES:
                self._payload(value, what, nullable=nullable)
            case Kind.ARRAY:
                assert wire_type.element is not None
                self._array(wire_type.element, value, what, nullable=nullable)
            case Kind.STRUCT:
                assert wire_type.struct is not None
                if nullable:
                    self._nullable_struct(wire_type.struct, value)
                else:
                    self._struct(wire_type.struct, value)

    def _length(self, length: str, prefix: str) -> None:
        """Write a length or a count that is not null."""
        if not self.flexible:
            self._pending.append((length, prefix))
            self._flush()
            return
        self._flush()
        self._emit(
            f"if {length} < 127:",
            f"    {self._out}.append({length} + 1)",
            "else:",
            f"    write_unsigned_varint({self._out}, {length} + 1)",
        )

    def _unless_null(
        self, value: str, what: str, prefix: str, body: Callable[[], None], *, nullable: bool
    ) -> None:
        """Write a null if the value is None and may be; otherwise run `body`."""
        if not nullable:
            self._flush()
            self._emit(f"if {value} is None:", f"    raise null({what!r})")
            body()
            return
        null_bytes = b"\0" if self.flexible else struct.pack(">" + prefix, -1)
        self._flush()
        self._emit(f"if {value} is None:", f"    {self._out} += {null_bytes!r}")
        self._block("else:", body)

    def _string(self, value: str, what: str, *, nullable: bool) -> None:
        def body() -> None:
            data, size = self._variable("data"), self._variable("n")
            self._emit(
                f"{data} = {value}.encode()",
                f"{size} = len({data})",
                f"if {size} > {STRING_BYTES_MAX}:",
                f"    raise EncodeError(f'{what} of {{{size}}} bytes')",
            )
            self._length(size, "h")
            self._emit(f"{self._out} += {data}")

        self._unless_null(value, what, "h", body, nullable=nullable)

    def _payload(self, value: str, what: str, *, nullable: bool) -> None:
        def body() -> None:
            size = self._variable("n")
            self._emit(f"{size} = payload_size({value})")
            self._length(size, "i")
            if self._out == "out":
                self._emit(f"out = append_payload(parts, out, {value}, {size})")
            else:
                self._emit(f"{self._out} += joined({value})")

        self._unless_null(value, what, "i", body, nullable=nullable)

    def _array(self, element: WireType[Any], value: str, what: str, *, nullable: bool) -> None:
        def body() -> None:
            count = self._variable("n")
            self._emit(f"{count} = len({value})")
            self._length(count, "i")
            if element.kind is Kind.FIXED and element is not UUID and self._in_steps:
                self._fixed_in_steps(element, value, count)
            elif element.kind is Kind.FIXED and element is not UUID:
                layout = f"f'>{{{count}}}{element.format}'"
                self._emit(f"{self._out} += pack({layout}, *{value})")
            elif element is STRING and self.flexible:
                self._emit(
                    f"if {value}.__class__ is EncodedStrings:",
                    f"    {self._out} += {value}.compact",
                )
                self._block("else:", each)
            else:
                each()

        def each() -> None:
            item = self._variable("m")
            self._block(f"for {item} in {value}:", partial(one, item))

        def one(item: str) -> None:
            self._value(element, item, what, nullable=False)
            if self._in_steps:
                self._flush()
                self._emit("left -= 1", "if left <= 0:", *self._pause)

        self._unless_null(value, what, "i", body, nullable=nullable)

    @property
    def _pause(self) -> list[str]:
        """Returns the lines that yield, and begin a new part if the last one is large."""
        renew = f"    left = {STEP_ELEMENTS}"
        if self._out != "out":
            return ["    yield 0", renew]
        return [
            f"    if len(out) > {STEP_PART_BYTES}:",
            "        yield len(out)",
            "        out = bytearray()",
            "        parts.append(out)",
            "    else:",
            "        yield 0",
            renew,
        ]

    def _fixed_in_steps(self, element: WireType[Any], value: str, count: str) -> None:
        """Write numbers, `FIXED_STEP_ELEMENTS` at a time."""
        some, start = self._variable("v"), self._variable("n")
        self._emit(
            f"for {start} in range(0, {count}, {FIXED_STEP_ELEMENTS}):",
            f"    {some} = {value}[{start} : {start} + {FIXED_STEP_ELEMENTS}]",
            f"    {self._out} += pack(f'>{{len({some})}}{element.format}', *{some})",
            f"    if len({some}) == {FIXED_STEP_ELEMENTS}:",
            "        yield 0",
        )

    def _nullable_struct(self, declared: type, value: str) -> None:
        """Write a struct after a byte that is -1 for null and 1 otherwise, in both encodings."""

        def body() -> None:
            self._emit(f"{self._out}.append(1)")
            self._struct(declared, value)
            self._flush()

        self._emit(f"if {value} is None:", f"    {self._out}.append(255)")
        self._block("else:", body)

    def _struct(self, declared: type, value: str) -> None:
        fields = self._fields(declared)
        for field in fields.absent:
            self._absent(field, value)
        for field in fields.plain:
            self._field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(fields.tagged, value)

    def _absent(self, field: NamedField, value: str) -> None:
        """Refuse a value that this version cannot carry, unless it may be dropped."""
        if field.wire.ignorable:
            return
        self._flush()
        default = self._refer(field.default, "default")
        expression = f"{value}.{field.name}"
        self._emit(
            # The identity check spares most structures the comparison of their values.
            f"if {expression} is not {default} and {expression} != {default}:",
            f"    raise EncodeError('{field.name} does not exist in this version')",
        )

    def _field(self, field: NamedField, expression: str) -> None:
        if field.wire.type.kind in (Kind.STRING, Kind.BYTES, Kind.ARRAY, Kind.STRUCT):
            self._flush()
            variable = self._variable("v")
            self._emit(f"{variable} = {expression}")
            expression = variable
        nullable = field.wire.is_nullable_in(self.version)
        self._value(field.wire.type, expression, field.name, nullable=nullable)

    def _tagged(self, fields: list[NamedField], value: str) -> None:
        """Write the section of tagged fields: those that differ from their defaults."""
        if not fields:
            self._pending.append(("", "x"))
            return
        self._flush()
        count, section = self._variable("n"), self._variable("tags")
        self._emit(f"{count} = 0", f"{section} = bytearray()")
        for field in sorted(fields, key=lambda field: field.wire.tag or 0):
            self._tagged_field(field, f"{value}.{field.name}", count, section)
        self._emit(f"{self._out}.append({count})", f"{self._out} += {section}")

    def _tagged_field(self, field: NamedField, expression: str, count: str, section: str) -> None:
        def body() -> None:
            outer, self._out = self._out, self._variable("tag")
            self._emit(f"{self._out} = bytearray()")
            self._field(field, expression)
            self._flush()
            self._emit(
                f"{count} += 1",
                f"write_unsigned_varint({section}, {field.wire.tag})",
                f"write_unsigned_varint({section}, len({self._out}))",
                f"{section} += {self._out}",
            )
            self._out = outer

        assert field.default is not dataclasses.MISSING, field.name
        default = self._refer(field.default, "default")
        self._block(f"if {expression} is not {default} and {expression} != {default}:", body)


_encoders = CodecCache[Encoder](_EncoderSource, "encode")
_step_encoders = CodecCache[StepEncoder](partial(_EncoderSource, in_steps=True), "encode")
