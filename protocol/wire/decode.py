"""Decodes messages: one function per message class and version, compiled at its first use.

A message of many elements is decoded in steps: the same source as a generator, which pauses every
few hundred elements, so that its caller can let other tasks run in between.

The compiled source is the straight-line code that one would write by hand: neighbouring fields of
fixed size, and the first byte of a length after them, are one `struct` unpacking; lengths
are checked against the available bytes before anything is sliced or allocated. Decoded BYTES
and RECORDS are slices of the frame, not copies. `source_of` returns it:

    def decode(buffer, position):
        budget = ELEMENTS_MAX
        v1, n2 = unpack_bB(buffer, position)
        ...
        return ListOffsetsRequest(isolation_level=v1, ...), position
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from protocol.wire.codec_source import CodecCache, CodecSource
from protocol.wire.errors import DecodeError
from protocol.wire.primitives import (
    ELEMENTS_MAX,
    STRING_BYTES_MAX,
    read_tag,
    read_unsigned_varint,
    skip_tagged_fields,
    take_elements,
    take_tags,
)
from protocol.wire.schema import UUID, Kind, Message, NamedField, WireType, fields_of

M = TypeVar("M", bound=Message)

Decoder = Callable[[memoryview, int], tuple[Any, int]]
"""Takes a buffer and a position, returns the message and the position after it."""

StepDecoder = Callable[[memoryview, int], Generator[None, None, tuple[Any, int]]]
"""The same, with pauses."""

STEP_ELEMENTS = 256
"""Elements between two pauses: 0.1 to 0.6 ms of decoding."""

FIXED_STEP_ELEMENTS = 16_384
"""The same for numbers, of which one call reads many at once: 0.2 ms."""

TUPLE_ELEMENTS_MAX = 1_024
"""A larger array that is decoded in steps stays a list: copying it into a tuple is one call, which
for the largest array takes a hundred times as long as a step."""


def decode(message_type: type[M], version: int, buffer: memoryview, position: int = 0) -> M:
    """Decode the message that fills `buffer` from `position` to its end.

    Raises:
        DecodeError: the bytes are not exactly such a message. No bytes raise anything else.
    """
    message, end = decode_prefix(message_type, version, buffer, position)
    if end != len(buffer):
        surplus = f"{len(buffer) - end} bytes too many"
        raise DecodeError(f"{message_type.__name__} v{version}: {surplus}")
    return message


def decode_prefix(
    message_type: type[M], version: int, buffer: memoryview, position: int = 0
) -> tuple[M, int]:
    """Decode the message that begins at `position`. Also returns its end.

    BYTES and RECORDS of the result refer to the buffer's memory.

    Raises:
        DecodeError: the bytes do not begin with such a message. No bytes raise anything else.
    """
    decoder = _decoders[message_type, version]
    try:
        message, end = decoder(buffer, position)
    except _WRONG_BYTES as error:
        raise _as_decode_error(error, message_type, version) from error
    return message, end


def decode_in_steps(
    message_type: type[M], version: int, buffer: memoryview, position: int = 0
) -> Generator[None, None, tuple[M, int]]:
    """Decode as `decode_prefix` does, with a pause after each step.

    The generator returns the message and its end. Arrays of more than `TUPLE_ELEMENTS_MAX`
    elements are lists.

    Raises:
        DecodeError: as `decode_prefix`.
    """
    decoder = _step_decoders[message_type, version]
    try:
        message, end = yield from decoder(buffer, position)
    except _WRONG_BYTES as error:
        raise _as_decode_error(error, message_type, version) from error
    return message, end


_WRONG_BYTES = (struct.error, IndexError, UnicodeDecodeError, DecodeError)


def _as_decode_error(error: Exception, message_type: type[Message], version: int) -> DecodeError:
    """Returns the error about a message's bytes, with the message's name."""
    match error:
        case struct.error() | IndexError():
            reason = "truncated"
        case UnicodeDecodeError():
            reason = f"string is not UTF-8: {error.reason}"
        case _:
            reason = str(error)
    return DecodeError(f"{message_type.__name__} v{version}: {reason}")


def decoder_of(message_type: type[Message], version: int) -> Decoder:
    """Returns the decoder of one version. Compiling it the first time takes about a millisecond."""
    return _decoders[message_type, version]


def source_of(message_type: type[Message], version: int) -> str:
    """Returns the Python source of a decoder, for people to read."""
    return _DecoderSource(message_type, version).text


def size_min(wire_type: WireType[Any], version: int, *, flexible: bool) -> int:
    """Returns the least number of bytes that a value of this type takes."""
    match wire_type.kind:
        case Kind.FIXED:
            return struct.calcsize(">" + wire_type.format)
        case Kind.STRING:
            return 1 if flexible else 2
        case Kind.BYTES | Kind.ARRAY:
            return 1 if flexible else 4
        case Kind.STRUCT:
            assert wire_type.struct is not None
            return int(flexible) + sum(
                1
                if _is_nullable_struct(field, version)
                else size_min(field.wire.type, version, flexible=flexible)
                for field in fields_of(wire_type.struct)
                if field.wire.exists_in(version) and not field.wire.is_tagged_in(version)
            )


def _is_nullable_struct(field: NamedField, version: int) -> bool:
    return field.wire.type.kind is Kind.STRUCT and field.wire.is_nullable_in(version)


def truncated(what: str) -> DecodeError:
    return DecodeError(f"truncated in {what}")


def null(what: str) -> DecodeError:
    return DecodeError(f"{what} is null")


class _DecoderSource(CodecSource):
    """Writes the source of one decoder. `text` is the source, `names` the objects it refers to."""

    def __init__(
        self, message_type: type[Message], version: int, *, in_steps: bool = False
    ) -> None:
        names = {
            "DecodeError": DecodeError,
            "UUID": uuid.UUID,
            "null": null,
            "read_tag": read_tag,
            "read_unsigned_varint": read_unsigned_varint,
            "skip_tagged_fields": skip_tagged_fields,
            "take_elements": take_elements,
            "take_tags": take_tags,
            "truncated": truncated,
            "unpack_from": struct.unpack_from,
        }
        super().__init__(message_type, version, names)
        self._in_steps = in_steps

        self._emit(f"budget = {ELEMENTS_MAX}")
        if in_steps:
            # Makes the function a generator even if the message has no array.
            self._emit("if False:", "    yield", f"left = {STEP_ELEMENTS}")
        message = self._struct(message_type)
        self._flush()
        self._emit(f"return {message}, position")
        self.text = "\n".join(["def decode(buffer, position):", *self._lines, ""])

    def _flush(self) -> None:
        """Read the pending values into one variable each, with one unpacking."""
        if not self._pending:
            return
        if [format_ for _, format_ in self._pending] == ["B"]:
            ((variable, _),) = self._pending
            self._pending = []
            self._emit(f"{variable} = buffer[position]", "position += 1")
            return
        targets = ", ".join(variable for variable, _ in self._pending)
        layout = struct.Struct(">" + "".join(format_ for _, format_ in self._pending))
        self._pending = []
        name = "unpack_" + layout.format[1:].replace("?", "bool")
        self.names[name] = layout.unpack_from
        self._emit(f"{targets}, = {name}(buffer, position)", f"position += {layout.size}")

    # Values: each method emits the lines that read one value, and returns the expression for it.

    def _value(self, wire_type: WireType[Any], what: str, *, nullable: bool) -> str:
        match wire_type.kind:
            case Kind.FIXED:
                variable = self._variable("v")
                self._pending.append((variable, wire_type.format))
                return f"UUID(bytes={variable})" if wire_type is UUID else variable
            case Kind.STRING:
                return self._bytes_like(what, prefix="h", nullable=nullable, is_string=True)
            case Kind.BYTES:
                return self._bytes_like(what, prefix="i", nullable=nullable, is_string=False)
            case Kind.ARRAY:
                assert wire_type.element is not None
                return self._array(wire_type.element, what, nullable=nullable)
            case Kind.STRUCT:
                assert wire_type.struct is not None
                if nullable:
                    return self._nullable_struct(wire_type.struct)
                return self._struct(wire_type.struct)

    def _length(self, prefix: str) -> str:
        """Read a length or a count; afterwards -1 means null, in either encoding."""
        length = self._variable("n")
        self._pending.append((length, "B" if self.flexible else prefix))
        self._flush()
        if self.flexible:
            self._emit(
                f"if {length} > 127:",
                f"    {length}, position = read_unsigned_varint(buffer, position - 1)",
                f"{length} -= 1",
            )
        return length

    def _bytes_like(self, what: str, *, prefix: str, nullable: bool, is_string: bool) -> str:
        length, value = self._length(prefix), self._variable("v")

        def body() -> None:
            self._emit(
                f"end = position + {length}",
                "if end > len(buffer):",
                f"    raise truncated({what!r})",
                f"{value} = str(buffer[position:end], 'utf-8')"
                if is_string
                else f"{value} = buffer[position:end]",
                "position = end",
            )

        if is_string and self.flexible:
            self._emit(
                f"if {length} > {STRING_BYTES_MAX}:",
                f"    raise DecodeError(f'{what} of {{{length}}} bytes')",
            )
        self._emit(f"if {length} < 0:")
        self._null(value, length, what, nullable=nullable)
        self._block("else:", body)
        return value

    def _null(self, value: str, length: str, what: str, *, nullable: bool) -> None:
        """Emit the branch for a negative length."""
        if nullable:
            self._emit(
                f"    if {length} != -1:",
                f"        raise DecodeError(f'{what} of length {{{length}}}')",
                f"    {value} = None",
            )
        else:
            self._emit(f"    raise null({what!r})")

    def _array(self, element: WireType[Any], what: str, *, nullable: bool) -> str:
        count, value = self._length("i"), self._variable("v")
        least = size_min(element, self.version, flexible=self.flexible)

        def body() -> None:
            self._emit(f"budget = take_elements(budget, {count}, {least}, len(buffer) - position)")
            if element.kind is Kind.FIXED and element is not UUID and self._in_steps:
                self._fixed_in_steps(element, count, value)
            elif element.kind is Kind.FIXED and element is not UUID:
                self._emit(
                    f"{value} = unpack_from(f'>{{{count}}}{element.format}', buffer, position)",
                    f"position += {count} * {least}",
                )
            else:
                self._loop(element, what, count, value)

        if nullable:
            self._emit(f"if {count} == -1:", f"    {value} = None")
            self._block("else:", body)
        else:
            self._emit(f"if {count} == -1:", f"    raise null({what!r})")
            body()
        return value

    def _loop(self, element: WireType[Any], what: str, count: str, value: str) -> None:
        def body() -> None:
            item = self._value(element, what, nullable=False)
            self._flush()
            self._emit(f"{items}.append({item})")
            if self._in_steps:
                self._emit("left -= 1", "if left <= 0:", "    yield", f"    left = {STEP_ELEMENTS}")

        items = self._variable("items")
        self._emit(f"{items} = []")
        self._block(f"for _ in range({count}):", body)
        self._emit(f"{value} = {self._whole(items)}")

    def _fixed_in_steps(self, element: WireType[Any], count: str, value: str) -> None:
        """Read numbers, `FIXED_STEP_ELEMENTS` at a time."""
        items, many = self._variable("items"), self._variable("n")
        size = struct.calcsize(">" + element.format)
        self._emit(
            f"{items} = []",
            f"while len({items}) < {count}:",
            f"    {many} = min({FIXED_STEP_ELEMENTS}, {count} - len({items}))",
            f"    {items} += unpack_from(f'>{{{many}}}{element.format}', buffer, position)",
            f"    position += {many} * {size}",
            f"    if {many} == {FIXED_STEP_ELEMENTS}:",
            "        yield",
            f"{value} = {self._whole(items)}",
        )

    def _whole(self, items: str) -> str:
        """Returns the expression that turns a collected list into the array."""
        if self._in_steps:
            return f"{items} if len({items}) > {TUPLE_ELEMENTS_MAX} else tuple({items})"
        return f"tuple({items})"

    def _nullable_struct(self, declared: type) -> str:
        """Read a struct after a byte that is negative for null, in both encodings."""
        sign, value = self._variable("n"), self._variable("v")
        self._pending.append((sign, "b"))
        self._flush()

        def body() -> None:
            expression = self._struct(declared)
            self._flush()
            self._emit(f"{value} = {expression}")

        self._emit(f"if {sign} < 0:", f"    {value} = None")
        self._block("else:", body)
        return value

    def _struct(self, declared: type) -> str:
        """Read a structure's fields. Returns the expression that builds it."""
        fields = self._fields(declared)
        arguments = [f"{field.name}={self._field(field)}" for field in fields.plain]
        if self.flexible:
            arguments += self._tagged(fields.tagged)
        self.names[declared.__name__] = declared
        return f"{declared.__name__}({', '.join(arguments)})"

    def _field(self, field: NamedField) -> str:
        nullable = field.wire.is_nullable_in(self.version)
        return self._value(field.wire.type, field.name, nullable=nullable)

    def _tagged(self, fields: list[NamedField]) -> Iterable[str]:
        """Read a section of tagged fields. Returns the known ones as arguments."""
        count = self._variable("n")
        self._pending.append((count, "B"))
        self._flush()
        if not fields:
            skip = "position, budget = skip_tagged_fields(buffer, position - 1, budget)"
            self._emit(f"if {count}:", f"    {skip}")
            if self._in_steps:
                self._emit(f"    left -= {count}")
            return []
        values = {field.name: self._variable("v") for field in fields}
        for field in fields:
            self._emit(f"{values[field.name]} = {self._refer(field.default, 'default')}")
        self._block(f"if {count}:", lambda: self._known_tags(fields, values, count))
        return [f"{name}={variable}" for name, variable in values.items()]

    def _known_tags(self, fields: list[NamedField], values: dict[str, str], count: str) -> None:
        tag, end = self._variable("tag"), self._variable("end")

        def one_tag() -> None:
            self._emit(f"{tag}, position, {end} = read_tag(buffer, position, {tag})")
            for index, field in enumerate(fields):
                keyword = "elif" if index else "if"
                self._block(f"{keyword} {tag} == {field.wire.tag}:", partial(known, field))
            self._emit("else:", f"    position = {end}")

        def known(field: NamedField) -> None:
            value = self._field(field)
            self._flush()
            wrong = f"tagged field {field.name} has another size than announced"
            self._emit(
                f"{values[field.name]} = {value}",
                f"if position != {end}:",
                f"    raise DecodeError({wrong!r})",
            )

        self._emit(
            f"{count}, position = read_unsigned_varint(buffer, position - 1)",
            f"budget = take_tags(budget, {count}, len(buffer) - position)",
            f"{tag} = -1",
        )
        self._block(f"for _ in range({count}):", one_tag)


_decoders = CodecCache[Decoder](_DecoderSource, "decode")
_step_decoders = CodecCache[StepDecoder](partial(_DecoderSource, in_steps=True), "decode")
