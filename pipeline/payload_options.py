"""What a user says of a topic's keys and values; without Spark."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipeline.cut import TableRefused


class ValueFormat(enum.StrEnum):
    """How values are read."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


class KeyFormat(enum.StrEnum):
    """How keys are shown."""

    BYTES = "bytes"
    STRING = "string"


class OnUnparsable(enum.StrEnum):
    """What becomes of a value that cannot be read: nothing is lost in silence."""

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What the user says of keys and values."""

    value_format: ValueFormat = ValueFormat.BYTES
    value_schema: str | None = None
    """JSON: DDL or Spark's JSON form of a schema, None to take it from the table or the values.
    Avro: the schema."""
    key_format: KeyFormat = KeyFormat.BYTES
    key_column: str = "key"
    on_unparsable: OnUnparsable = OnUnparsable.FAIL
    confluent_header: bool = False

    def __post_init__(self) -> None:
        if self.value_format is ValueFormat.AVRO and self.value_schema is None:
            raise TableRefused("values in Avro need --value-schema")
        if self.confluent_header and self.value_format is not ValueFormat.AVRO:
            raise TableRefused("--confluent-header goes with values in Avro")
