"""A user's options for a topic's keys and values; without Spark."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipeline.offsets.cut import TableRefused
from schemas.registry_access import RegistryAccess
from schemas.schema import SchemaType


class ValueFormat(enum.StrEnum):
    """The format in which values are parsed."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


class KeyFormat(enum.StrEnum):
    """The format in which keys are parsed."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


class OnUnparsable(enum.StrEnum):
    """The treatment of a value that cannot be parsed: no value is lost silently."""

    FAIL = "fail"
    KEEP = "keep"


class OnMissingKey(enum.StrEnum):
    """The treatment of a record without a key, which no compacted topic takes."""

    FAIL = "fail"
    SKIP = "skip"


REGISTERED = {"json": SchemaType.JSON, "avro": SchemaType.AVRO}
"""By format: the type that a registry has of its schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How keys or values become columns."""

    part: str
    """`key` or `value`."""
    format: str
    schema: str | None
    """JSON: DDL or Spark's JSON form of a schema. Avro: the schema."""
    schema_ids: tuple[int, ...]
    """The ids that the schema has, without a registry."""
    registry: RegistryAccess | None
    """Where the writers' schemas come from; `schema` is the reader's then."""

    def __post_init__(self) -> None:
        if self.format == "avro" and self.schema is None:
            raise TableRefused(f"{self.part}s in Avro need --{self.part}-schema")
        if self.schema_ids and self.format != "avro":
            raise TableRefused(f"{self.schema_ids_option} goes with {self.part}s in Avro")
        if self.schema_ids and self.registry is not None:
            raise TableRefused(
                f"{self.schema_ids_option} is for {self.part}s without --schema-registry"
            )

    @property
    def has_header(self) -> bool:
        """Whether each one begins with the id of a schema."""
        return bool(self.schema_ids) or (self.registry is not None and self.format in REGISTERED)

    @property
    def schema_ids_option(self) -> str:
        return "--schema-id" if self.part == "value" else "--key-schema-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The user's options for keys and values."""

    value_format: ValueFormat = ValueFormat.BYTES
    value_schema: str | None = None
    """As in `Encoding`; JSON: None to take it from the table or the values."""
    schema_ids: tuple[int, ...] = ()
    key_format: KeyFormat = KeyFormat.BYTES
    key_schema: str | None = None
    key_schema_ids: tuple[int, ...] = ()
    key_column: str = "key"
    on_unparsable: OnUnparsable = OnUnparsable.FAIL
    on_missing_key: OnMissingKey = OnMissingKey.FAIL
    confluent_header: bool = False
    """Whether values begin with the id of their writer's schema."""
    registry: RegistryAccess | None = None

    def __post_init__(self) -> None:
        value, key = self.value, self.key
        if self.key_format is KeyFormat.JSON and self.key_schema is None:
            raise TableRefused("keys in JSON need --key-schema")
        if self.registry is not None and not (value.has_header or key.has_header):
            raise TableRefused("--schema-registry goes with keys or values in Avro or JSON")
        if self.confluent_header and not value.has_header:
            raise TableRefused(
                "--confluent-header needs --schema-registry URL, or --schema-id with the ids that"
                " --value-schema has: a value of another schema would be misread"
            )

    @property
    def value(self) -> Encoding:
        """How values become columns. Raises TableRefused."""
        return Encoding(
            part="value",
            format=self.value_format.value,
            schema=self.value_schema,
            schema_ids=self.schema_ids,
            registry=self.registry,
        )

    @property
    def key(self) -> Encoding:
        """How keys become columns. Raises TableRefused."""
        return Encoding(
            part="key",
            format=self.key_format.value,
            schema=self.key_schema,
            schema_ids=self.key_schema_ids,
            registry=self.registry,
        )
