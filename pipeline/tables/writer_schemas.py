"""The schemas with which values were written, by the ids in their headers.

A value names the schema of its writer (Confluent's wire format). Read with another one it may become
something else, such as a null where a text was. So each id must be known: from a registry, or from the
user, who says which ids the schema has.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import REGISTERED, Encoding, OnUnparsable
from schemas.avro_schema import missing_fields, whole_avro_schema
from schemas.outcomes import (
    UNKNOWN_SCHEMA,
    UNSUPPORTED_SCHEMA,
    DecodingFailed,
    NotInstalled,
    UnsupportedSchema,
)
from schemas.registry_access import RegistryAccess
from schemas.registry_answers import Unavailable
from schemas.registry_client import RegistryClient
from schemas.schema import Schema, SchemaType


class NoWriterSchema(Exception):
    """A schema cannot be had. The text is a clause that says why."""

    def __init__(self, reason: str, *, is_down: bool = False) -> None:
        super().__init__(reason)
        self.is_down = is_down
        """Whether the registry may still have it."""


class WriterSchemas(Protocol):
    """Where the schemas of writers come from."""

    def text(self, schema_id: int) -> str:
        """Returns a schema's text; of Protobuf: the compiled files, in base64. Raises NoWriterSchema."""


class GivenSchemas:
    """The user's schema, for the ids that the user names."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def text(self, schema_id: int) -> str:
        encoding = self._encoding
        if schema_id in encoding.schema_ids:
            return encoding.schema or ""
        ids = ", ".join(map(str, sorted(encoding.schema_ids)))
        raise NoWriterSchema(
            f"--{encoding.part}-schema is that of {ids} ({encoding.schema_ids_option})"
        )


class RegisteredSchemas:
    """The schemas of one type in a registry, each fetched once."""

    def __init__(self, client: RegistryClient, wanted: SchemaType) -> None:
        self._client = client
        self._wanted = wanted
        self._texts: dict[int, str] = {}

    def text(self, schema_id: int) -> str:
        if schema_id not in self._texts:
            self._texts[schema_id] = self._fetched(schema_id)
        return self._texts[schema_id]

    def _fetched(self, schema_id: int) -> str:
        try:
            found = self._client.schema(schema_id)
        except Unavailable as error:
            is_sure = error.code in {UNKNOWN_SCHEMA, UNSUPPORTED_SCHEMA}
            raise NoWriterSchema(str(error), is_down=not is_sure) from error
        if found.type is not self._wanted:
            raise NoWriterSchema(
                f"the registry has it as {found.type.value}, not as {self._wanted.value}"
            )
        try:
            return _text_of(found)
        except NotInstalled as error:
            raise NoWriterSchema(str(error), is_down=True) from error
        except ImportError as error:
            raise NoWriterSchema(str(lacks(error.name, found.type)), is_down=True) from error
        except DecodingFailed as error:
            raise NoWriterSchema(str(error)) from error


def _text_of(schema: Schema) -> str:
    """Returns a schema as readers take it. Raises DecodingFailed."""
    match schema.type:
        case SchemaType.AVRO:
            return whole_avro_schema(schema)
        case SchemaType.JSON:
            return schema.text
        case SchemaType.PROTOBUF:
            # Few jobs need the library.
            from schemas.protobuf_values import compiled

            return b64encode(compiled(schema)).decode()


@cache
def registered(access: RegistryAccess, wanted: SchemaType) -> RegisteredSchemas:
    """Returns the schemas of a registry; the same for all micro-batches of a job."""
    return RegisteredSchemas(RegistryClient(access), wanted)


def schemas_for(encoding: Encoding) -> WriterSchemas:
    """Returns where the schemas of keys or values come from, which have headers."""
    if encoding.registry is not None:
        return registered(encoding.registry, REGISTERED[encoding.format])
    return GivenSchemas(encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenId:
    """An id that values or keys name, and the first of them."""

    part: str
    """`key` or `value`."""
    schema_id: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}, offset {self.offset}: the {self.part} has the schema with"
            f" id {self.schema_id}"
        )


@dataclass(frozen=True, slots=True)
class Writers:
    """The schemas that keys or values name."""

    texts: Mapping[int, str]
    """By their ids."""
    refusals: Mapping[int, str]
    """Why the others are not available, as clauses."""
    gaps: Mapping[int, str] = field(default_factory=dict)
    """Why some of the schemas may be unable to become the reader's, as clauses."""


def writers_by_id(
    seen: Iterable[SeenId], schemas: WriterSchemas, on_unparsable: OnUnparsable
) -> Writers:
    """Returns the schemas by their ids.

    Raises:
        TableRefused: one is not available, and the job is to end then; nothing was written.
    """
    texts: dict[int, str] = {}
    refusals: dict[int, str] = {}
    for each in sorted(seen, key=lambda its: (its.topic, its.partition, its.offset)):
        try:
            texts[each.schema_id] = schemas.text(each.schema_id)
        except NoWriterSchema as error:
            if error.is_down or on_unparsable is OnUnparsable.FAIL:
                raise TableRefused(f"{each}: {error}") from error
            refusals[each.schema_id] = str(error)
    return Writers(texts, refusals)


def why_unreadable(writer: str, reader: str, part: str) -> str | None:
    """Returns why a schema in Avro may not read what a writer wrote, as a clause; None if it does."""
    try:
        missing = missing_fields(writer, reader)
    except UnsupportedSchema:
        return None
    if not missing:
        return None
    return f"it lacks the field {missing[0]}, for which --{part}-schema has no default"


def lacks(module: str | None, schema_type: SchemaType) -> NotInstalled:
    """Returns the error of a missing library."""
    return NotInstalled(
        f"{module} is missing, which reads {schema_type.value}:"
        ' install it with `pip install "kompakt[schemas]"`'
    )
