"""A user's options for a topic's keys and values; without Spark."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipeline.offsets.cut import TableRefused
from pipeline.tables.source_table import SourceTable
from schemas.registry_access import RegistryAccess
from schemas.schema import SchemaType


class PayloadFormat(enum.StrEnum):
    """The format in which keys or values are parsed."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    """JSON with the header of a registry."""
    PROTOBUF = "protobuf"


class OnUnparsable(enum.StrEnum):
    """The treatment of a value that cannot be parsed: no value is lost silently."""

    FAIL = "fail"
    KEEP = "keep"
    DEAD_LETTER = "dead-letter"


class OnMissingKey(enum.StrEnum):
    """The treatment of a record without a key, which no compacted topic takes."""

    FAIL = "fail"
    SKIP = "skip"


class OnUnavailable(enum.StrEnum):
    """The treatment of a value that the database did not send, because it had not changed."""

    FAIL = "fail"
    FILL = "fill"
    """It is that of the key's earlier event, unless that may be missing."""


class OnTruncate(enum.StrEnum):
    """The treatment of an event that says that the database's table has lost all its rows."""

    STOP = "stop"
    APPLY = "apply"
    """The rows of its topic are deleted."""


class Envelope(enum.StrEnum):
    """What stands around a row in a value."""

    NONE = "none"
    DEBEZIUM = "debezium"
    MAXWELL = "maxwell"


REGISTERED = {
    PayloadFormat.AVRO: SchemaType.AVRO,
    PayloadFormat.JSON_SCHEMA: SchemaType.JSON,
    PayloadFormat.PROTOBUF: SchemaType.PROTOBUF,
}
"""By format: the type that a registry has of its schemas."""
NEEDS_REGISTRY = frozenset({PayloadFormat.JSON_SCHEMA, PayloadFormat.PROTOBUF})
HAS_NO_FIELDS = frozenset({PayloadFormat.BYTES, PayloadFormat.STRING})
ENVELOPED = {
    Envelope.DEBEZIUM: frozenset(
        {PayloadFormat.AVRO, PayloadFormat.JSON, PayloadFormat.JSON_SCHEMA}
    ),
    Envelope.MAXWELL: frozenset({PayloadFormat.JSON}),
}
"""By envelope: the formats in which it is written."""
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default of `unavailable.value.placeholder`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How keys or values become columns."""

    part: str
    """`key` or `value`."""
    format: PayloadFormat
    schema: str | None
    """Avro: the schema. Other formats: DDL or Spark's JSON form of a schema."""
    message: str | None
    """Protobuf: the full name that each message must have; None: any."""
    schema_ids: tuple[int, ...]
    """The ids that the schema has, without a registry."""
    registry: RegistryAccess | None
    """Where the writers' schemas come from; `schema` is the reader's then."""

    def __post_init__(self) -> None:
        if self.format is PayloadFormat.AVRO and self.schema is None:
            raise TableRefused(f"{self.part}s in Avro need --{self.part}-schema")
        if self.format in NEEDS_REGISTRY and self.registry is None:
            raise TableRefused(f"{self.part}s in {self.format} need --schema-registry")
        if self.schema is not None and self.format in HAS_NO_FIELDS:
            raise TableRefused(
                f"--{self.part}-schema does not go with {self.part}s in {self.format}"
            )
        if self.schema_ids and self.format is not PayloadFormat.AVRO:
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
    def takes_its_schema_from_the_table(self) -> bool:
        """Whether the columns of an existing table say what is read."""
        return self.format not in HAS_NO_FIELDS and self.schema is None

    @property
    def misfit(self) -> str:
        """Says that one does not fit the schema, as a clause."""
        language = PayloadFormat.JSON if self.format is PayloadFormat.JSON_SCHEMA else self.format
        return f"the {self.part} is not {language} of this schema"

    @property
    def schema_ids_option(self) -> str:
        return "--schema-id" if self.part == "value" else "--key-schema-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The user's options for keys and values."""

    value_format: PayloadFormat = PayloadFormat.BYTES
    value_schema: str | None = None
    """As in `Encoding`; None to take it from the table or the values, which Avro cannot. With an
    envelope: JSON: that of the row; Avro: that of the whole value."""
    value_message: str | None = None
    schema_ids: tuple[int, ...] = ()
    key_format: PayloadFormat = PayloadFormat.BYTES
    key_schema: str | None = None
    key_message: str | None = None
    key_schema_ids: tuple[int, ...] = ()
    key_column: str = "key"
    on_unparsable: OnUnparsable = OnUnparsable.FAIL
    on_missing_key: OnMissingKey = OnMissingKey.FAIL
    confluent_header: bool = False
    """Whether values begin with the id of their writer's schema."""
    registry: RegistryAccess | None = None
    envelope: Envelope = Envelope.NONE
    source_table: SourceTable | None = None
    """Maxwell: the table of the database whose rows are read; a topic may have the rows of several."""
    select: tuple[str, ...] = ()
    """Spark SQL: the columns of the table beside the key; none: those of the value."""
    where: str | None = None
    """Spark SQL: which rows the table has; None: all."""
    history: bool = False
    """Whether the table has a row for each value of a key, and not only for the last one."""
    unavailable: str = UNAVAILABLE
    """What Debezium writes for a value that the database did not send."""
    on_unavailable: OnUnavailable = OnUnavailable.FAIL
    on_truncate: OnTruncate = OnTruncate.STOP

    def __post_init__(self) -> None:
        value, key = self.value, self.key
        if key.format not in HAS_NO_FIELDS and key.schema is None:
            raise TableRefused(f"keys in {key.format} need --key-schema")
        if key.format is PayloadFormat.PROTOBUF and key.message is None:
            raise TableRefused(
                "keys in protobuf need --key-schema subject:NAME, which says the message"
            )
        if self.envelope is not Envelope.NONE and value.format not in ENVELOPED[self.envelope]:
            known = "Avro or JSON" if self.envelope is Envelope.DEBEZIUM else "JSON"
            raise TableRefused(f"--envelope {self.envelope} goes with values in {known}")
        if (self.envelope is Envelope.MAXWELL) != (self.source_table is not None):
            raise TableRefused("--envelope maxwell and --source-table DATABASE.TABLE go together")
        if self.registry is not None and not (value.has_header or key.has_header):
            raise TableRefused(f"--schema-registry goes with {', '.join(REGISTERED)}")
        if self.on_truncate is OnTruncate.APPLY and self.envelope is not Envelope.DEBEZIUM:
            raise TableRefused("--on-truncate apply goes with --envelope debezium")
        if self.fills and self.envelope is not Envelope.DEBEZIUM:
            raise TableRefused("--on-unavailable fill goes with --envelope debezium")
        if self.fills and (self.history or self.select or self.where):
            raise TableRefused(
                "--on-unavailable fill takes earlier values from the table, so it does not go with"
                " --history, --select and --where"
            )
        if self.select and value.takes_its_schema_from_the_table:
            raise TableRefused("--select needs --value-schema: the table has other columns")
        if self.confluent_header and not value.has_header:
            raise TableRefused(
                "--confluent-header needs --schema-registry URL, or --schema-id with the ids that"
                " --value-schema has: a value of another schema would be misread"
            )

    @property
    def fills(self) -> bool:
        """Whether values that the database did not send are filled in."""
        return self.on_unavailable is OnUnavailable.FILL

    @property
    def looks_for_truncations(self) -> bool:
        """Whether records without a key are read before the others. Without one of these options such a
        record ends the job anyway."""
        has_choice = (
            self.on_truncate is OnTruncate.APPLY or self.on_missing_key is OnMissingKey.SKIP
        )
        return self.envelope is Envelope.DEBEZIUM and has_choice

    @property
    def reads_all_of_a_key(self) -> bool:
        """Whether a micro-batch needs all records of a key, and not only the last one."""
        return self.history or self.fills

    @property
    def value(self) -> Encoding:
        """How values become columns. Raises TableRefused."""
        return Encoding(
            part="value",
            format=self.value_format,
            schema=self.value_schema,
            message=self.value_message,
            schema_ids=self.schema_ids,
            registry=self.registry,
        )

    @property
    def key(self) -> Encoding:
        """How keys become columns. Raises TableRefused."""
        return Encoding(
            part="key",
            format=self.key_format,
            schema=self.key_schema,
            message=self.key_message,
            schema_ids=self.key_schema_ids,
            registry=self.registry,
        )
