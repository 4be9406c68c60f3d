"""A user's options for a topic's keys and values; without Spark."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipeline.offsets.cut import TableRefused
from schemas.registry_access import RegistryAccess


class ValueFormat(enum.StrEnum):
    """The format in which values are parsed."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


class KeyFormat(enum.StrEnum):
    """The form of keys in the table."""

    BYTES = "bytes"
    STRING = "string"


class OnUnparsable(enum.StrEnum):
    """The treatment of a value that cannot be parsed: no value is lost silently."""

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The user's options for keys and values."""

    value_format: ValueFormat = ValueFormat.BYTES
    value_schema: str | None = None
    """JSON: DDL or Spark's JSON form of a schema, None to take it from the table or the values.
    Avro: the schema."""
    key_format: KeyFormat = KeyFormat.BYTES
    key_column: str = "key"
    on_unparsable: OnUnparsable = OnUnparsable.FAIL
    confluent_header: bool = False
    """Whether values begin with the id of their writer's schema."""
    schema_ids: tuple[int, ...] = ()
    """The ids that `value_schema` has, without a registry."""
    registry: RegistryAccess | None = None
    """Where the writers' schemas come from; `value_schema` is the reader's then."""

    def __post_init__(self) -> None:
        if self.value_format is ValueFormat.AVRO and self.value_schema is None:
            raise TableRefused("values in Avro need --value-schema")
        knows_writers = self.registry is not None or bool(self.schema_ids)
        if (self.confluent_header or knows_writers) and self.value_format is not ValueFormat.AVRO:
            raise TableRefused(
                "--confluent-header, --schema-id and --schema-registry go with values in Avro"
            )
        if self.registry is not None and self.schema_ids:
            raise TableRefused("--schema-id is for values without --schema-registry")
        if self.confluent_header and not knows_writers:
            raise TableRefused(
                "--confluent-header needs --schema-registry URL, or --schema-id with the ids that"
                " --value-schema has: a value of another schema would be misread"
            )

    @property
    def has_header(self) -> bool:
        """Whether values begin with the id of a schema."""
        return self.registry is not None or bool(self.schema_ids)
