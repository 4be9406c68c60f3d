"""Decodes keys or values in Avro, by the schema of the user or by that of each record's writer.

fastavro resolves the writer's schema to the reader's. It reads logical types as what stores them: a
reader's column may be of another one than the writer's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import fastavro
import msgspec

from pipeline.export.columns.avro_shapes import AvroShapes
from pipeline.export.columns.decoded import Decoded
from pipeline.export.columns.shapes import Struct
from pipeline.export.columns.writers import Unread, Writers
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding
from pipeline.tables.writer_schemas import NoWriterSchema, why_unreadable
from schemas.avro_schema import field_paths
from schemas.outcomes import UnsupportedSchema
from schemas.wire_header import HEADER_BYTES, schema_id_of

WHOLE, FIELD = "KompaktValue", "value"
NO_SCHEMA = (
    fastavro.schema.SchemaParseException,
    msgspec.DecodeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)
NOT_DECODED = (
    fastavro.schema.SchemaParseException,
    fastavro.read.SchemaResolutionError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    RecursionError,
)
Read: TypeAlias = Callable[[bytes], Any]
"""Returns the object of a key or a value, header included. Raises one of NOT_DECODED."""


class AvroDecoder:
    """Decodes what becomes one schema. Any thread may call."""

    def __init__(self, encoding: Encoding, misfit: str, reader: str | None = None) -> None:
        """Raises TableRefused: the schema is none, or has what is no column.

        Args:
            misfit: says of a value that it is none of the schema, as a clause.
            reader: the schema of what comes out; None: that of the encoding.
        """
        given = encoding.schema or ""
        self._encoding, self._misfit = encoding, misfit
        self._reader_text = reader or given
        option = f"--{encoding.part}-schema"
        try:
            self._reader, _ = _parsed(self._reader_text, with_logical_types=False)
            whole, named = _parsed(self._reader_text, with_logical_types=True)
            found = AvroShapes(named).of(whole["fields"][0]["type"])
            self.is_record = isinstance(found, Struct)
            """Whether each field is a column. Otherwise there is one, `value`."""
            own = self._by(given)
        except NO_SCHEMA as error:
            raise TableRefused(f"{option} is no Avro schema that makes columns: {error}") from error
        self.shape = (
            found if isinstance(found, Struct) else Struct(((FIELD, itemgetter(0), found),))
        )
        self._read = self._by_its_writer() if encoding.has_header else own

    def decode(self, data: Sequence[bytes | None]) -> Decoded:
        """Decode keys or values. Raises TableRefused: the registry does not answer."""
        objects: list[Any] = [None] * len(data)
        whys, read = {}, self._read
        for row, each in enumerate(data):
            if each is None:
                continue
            try:
                objects[row] = read(each)
            except Unread as error:
                whys[row] = str(error)
            except NOT_DECODED:
                whys[row] = self._misfit
            else:
                if objects[row] is None:
                    whys[row] = self._misfit
        return Decoded(objects, whys)

    def _by_its_writer(self) -> Read:
        writers = Writers(self._encoding, self._prepared)
        return lambda data: writers.of(data)(data)

    def _prepared(self, text: str) -> Read:
        """Returns the function that reads what a writer's schema has written. Raises NoWriterSchema."""
        try:
            if self._encoding.part == "key":
                refuse_wider_key(text, self._reader_text)
            gap = why_unreadable(text, self._reader_text, self._encoding.part)
            read = self._by(text)
            return read if gap is None else explained(read, gap, self._encoding.part)
        except NO_SCHEMA as error:
            raise NoWriterSchema(f"it is no Avro schema: {error}") from error

    def _by(self, text: str) -> Read:
        """Raises one of NO_SCHEMA."""
        writer, _ = _parsed(text, with_logical_types=False)
        reader = None if text == self._reader_text else self._reader
        start = HEADER_BYTES if self._encoding.has_header else 0
        schemaless_reader, is_record = fastavro.schemaless_reader, self.is_record

        def read(data: bytes) -> Any:
            stream = io.BytesIO(data)
            stream.seek(start)
            found = schemaless_reader(stream, writer, reader)[FIELD]
            if stream.tell() != len(data):
                raise ValueError("more follows the value")
            return found if is_record else (found,)

        return read


def explained(read: Read, gap: str, part: str) -> Read:
    """Returns a function that says why it cannot read: its writer's schema lacks something."""

    def read_or_say(data: bytes) -> Any:
        try:
            return read(data)
        except NOT_DECODED as error:
            raise Unread(
                f"the {part} has the schema with id {schema_id_of(data)}: {gap}"
            ) from error

    return read_or_say


def refuse_wider_key(writer: str, reader: str) -> None:
    """Raise NoWriterSchema if keys that differ would be read as equal ones."""
    try:
        more = sorted(field_paths(writer) - field_paths(reader, with_aliases=True))
    except UnsupportedSchema as error:
        raise NoWriterSchema(str(error)) from error
    if more:
        raise NoWriterSchema(
            f"it has the field {more[0]}, which --key-schema lacks: keys that differ in it would become"
            " one row"
        )


def _parsed(text: str, *, with_logical_types: bool) -> tuple[Any, dict[str, Any]]:
    """Returns a record with one field of a schema, parsed, and its named types.

    Raises:
        ...: one of NO_SCHEMA.
    """
    named: dict[str, Any] = {}
    content = text.strip() if text.strip().isidentifier() else msgspec.json.decode(text)
    if not with_logical_types:
        content = _bare(content)
    whole = {"type": "record", "name": WHOLE, "fields": [{"name": FIELD, "type": content}]}
    return fastavro.parse_schema(whole, named), named


def _bare(node: Any) -> Any:
    """Returns a schema without logical types."""
    if isinstance(node, list):
        return [_bare(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {"default", "symbols", "aliases"}
    return {
        name: each if name in kept else _bare(each)
        for name, each in node.items()
        if name != "logicalType"
    }
