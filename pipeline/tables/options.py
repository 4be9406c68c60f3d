"""Command line options for tables."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.offsets.source_options import READING
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.payload_options import (
    Envelope,
    OnMissingKey,
    OnTruncate,
    OnUnavailable,
    OnUnparsable,
    PayloadFormat,
)

VALUES = "Keys and values"
WRITING = "Writing"


class TableFormat(enum.StrEnum):
    """The storage format of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


Topics = Annotated[
    list[str],
    typer.Option("--topic", "-t", metavar="TOPIC", help="A compacted topic. Repeatable."),
]
TablePath = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="PATH|NAME",
        help="The table's path. Parquet: read PATH/current. Iceberg: CATALOG.NAMESPACE.TABLE.",
    ),
]
Format = Annotated[
    TableFormat,
    typer.Option(
        "--format",
        help="A change rewrites a whole Parquet table. Iceberg needs PySpark 4.1: it has no runtime for"
        " 4.2.",
    ),
]
Values = Annotated[
    PayloadFormat,
    typer.Option("--value-format", help="The format of values.", rich_help_panel=VALUES),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="DDL|FILE|subject:NAME[:VERSION]",
        help="As `id BIGINT, name STRING`, or a file with that or with Spark's JSON form "
        "[default: the table's, or inferred]. Avro: a file. Avro, Protobuf: a subject of the registry.",
        rich_help_panel=VALUES,
    ),
]
Enveloped = Annotated[
    Envelope,
    typer.Option(
        "--envelope",
        help="What stands around a row in a value: nothing, or a change event of Debezium (its `after`"
        " is the row) or Maxwell (its `data` is). With JSON --value-schema is that of the row, with Avro"
        " that of the event.",
        rich_help_panel=VALUES,
    ),
]
SourceTableName = Annotated[
    str | None,
    typer.Option(
        "--source-table",
        metavar="DATABASE.TABLE",
        help="For Maxwell: the table of the database whose rows are read; other tables' are left out.",
        rich_help_panel=VALUES,
    ),
]
Unavailable = Annotated[
    str,
    typer.Option(
        "--unavailable-value-placeholder",
        metavar="TEXT",
        help="Debezium's property of this name; a row that has it ends the job.",
        rich_help_panel=VALUES,
    ),
]
Filled = Annotated[
    OnUnavailable,
    typer.Option(
        "--on-unavailable",
        help="For a value that the database did not send, because it had not changed: end the job, or"
        " take that of the key's earlier event, unless an event in between may be missing.",
        rich_help_panel=VALUES,
    ),
]
Truncated = Annotated[
    OnTruncate,
    typer.Option(
        "--on-truncate",
        help="For an event of Debezium that says that the table has lost all its rows: end the job, or"
        " delete the rows. It has no key, so its topic is not compacted; that must have one partition.",
        rich_help_panel=VALUES,
    ),
]
Unparsable = Annotated[
    OnUnparsable,
    typer.Option(
        help="For a value that cannot be parsed: end the job, keep its bytes in `_unparsed`, or remove"
        " its key's row and add the record to --dead-letters.",
        rich_help_panel=VALUES,
    ),
]
DeadLetterPath = Annotated[
    str | None,
    typer.Option(
        "--dead-letters",
        metavar="PATH",
        help="The path of a Delta table for records whose values cannot be parsed, with the reason.",
        rich_help_panel=VALUES,
    ),
]
ConfluentHeader = Annotated[
    bool,
    typer.Option(
        "--confluent-header",
        help="Avro values begin with the five bytes of Confluent's wire format. Implied by the options"
        " below, of which it needs one.",
        rich_help_panel=VALUES,
    ),
]
SchemaIds = Annotated[
    list[int] | None,
    typer.Option(
        "--schema-id",
        min=0,
        metavar="ID",
        help="An id that --value-schema has in the registry; other values are not parsed. Repeatable.",
        rich_help_panel=VALUES,
    ),
]
SchemaRegistry = Annotated[
    list[str] | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        help="Keys and values in avro, json-schema and protobuf are read by the schemas that they name,"
        " which this registry has (Confluent's API), and become columns of --key-schema and"
        " --value-schema. Repeatable: the nodes of one registry.",
        rich_help_panel=VALUES,
    ),
]
RegistryConfig = Annotated[
    Path | None,
    typer.Option(
        "--schema-registry-config",
        metavar="FILE",
        help="Properties: schema.registry.basic.auth.user.info=USER:PASSWORD,"
        " schema.registry.ssl.truststore.location=FILE.pem.",
        rich_help_panel=VALUES,
    ),
]
Keys = Annotated[
    PayloadFormat,
    typer.Option("--key-format", help="The format of keys.", rich_help_panel=VALUES),
]
KeySchema = Annotated[
    str | None,
    typer.Option(
        "--key-schema",
        metavar="DDL|FILE|subject:NAME[:VERSION]",
        help="As --value-schema, for keys that are records.",
        rich_help_panel=VALUES,
    ),
]
KeySchemaIds = Annotated[
    list[int] | None,
    typer.Option(
        "--key-schema-id",
        min=0,
        metavar="ID",
        help="As --schema-id, for keys. Repeatable.",
        rich_help_panel=VALUES,
    ),
]
MissingKey = Annotated[
    OnMissingKey,
    typer.Option(
        "--on-missing-key",
        help="For a record without a key: end the job, or leave it out.",
        rich_help_panel=VALUES,
    ),
]
KeyColumn = Annotated[
    str, typer.Option(metavar="NAME", help="The key's column.", rich_help_panel=VALUES)
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="A column that a new table is partitioned by, in Iceberg also a transform, such as"
        " `bucket(16, key)`. Repeatable.",
        rich_help_panel=WRITING,
    ),
]
Evolving = Annotated[
    Evolution,
    typer.Option(
        "--evolution",
        help="For values with other columns than the table: end the job; `add` those that the table"
        " lacks; `all`: besides, widen, rename (by Avro's aliases) and drop columns of the table.",
        rich_help_panel=WRITING,
    ),
]
Renamed = Annotated[
    list[str] | None,
    typer.Option(
        "--renamed",
        metavar="OLD=NEW",
        help="A column of values in Avro that had another name before, if --value-schema has no alias"
        " that says so: earlier values are read by it. With --evolution all a stream renames the"
        " table's column. Repeatable.",
        rich_help_panel=VALUES,
    ),
]
Selected = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="EXPRESSION",
        help="A column of the table, in Spark SQL, such as `city` or `upper(city) AS city`. Repeatable."
        " [default: all of the value]",
        rich_help_panel=WRITING,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="In Spark SQL: which rows the table has. A key has no row if its last value does not fulfil"
        " it.",
        rich_help_panel=WRITING,
    ),
]
KeepsHistory = Annotated[
    bool,
    typer.Option(
        "--history",
        help="Keep a row for each value that a key has had, until `_valid_to`, the time of its next"
        " record. Needs Delta or Iceberg.",
        rich_help_panel=WRITING,
    ),
]
WriteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--write-option",
        metavar="NAME=VALUE",
        help="For Spark's writer of a new table (compression=zstd, delta.enableChangeDataFeed=true), in"
        " Iceberg a property of the table (write.merge.mode=copy-on-write). Repeatable.",
        rich_help_panel=WRITING,
    ),
]
CatalogProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="NAME=VALUE",
        help="A property of the catalog of an Iceberg table, in Spark's names: type=rest, uri=URL,"
        " warehouse=PATH. As `--conf spark.sql.catalog.CATALOG.NAME=VALUE`. Repeatable.",
        rich_help_panel=WRITING,
    ),
]
SmallFiles = Annotated[
    int | None,
    typer.Option(
        "--small-files-max",
        min=1,
        metavar="N",
        help="After a micro-batch, rewrite the table's small files as large ones if it has more than N."
        " Needs Delta or Iceberg.",
        rich_help_panel=WRITING,
    ),
]
RetainHours = Annotated[
    int | None,
    typer.Option(
        "--retain-hours",
        min=0,
        metavar="HOURS",
        help="After such a rewrite, delete files that only older versions of the table than this need:"
        " readers that began before it, and queries of an earlier time. Delta refuses less than 168."
        " [default: delete nothing]",
        rich_help_panel=WRITING,
    ),
]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="INTERVAL",
        help="Run until stopped, with a micro-batch each INTERVAL (`10 seconds`). "
        "[default: read the current records and end]",
        rich_help_panel=READING,
    ),
]
OffsetsPerBatch = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="At most N offsets per micro-batch.", rich_help_panel=READING
    ),
]

Group = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="Commit the table's offsets to this consumer group, so that Kafka's tools show its lag."
        " It must have no members.",
        rich_help_panel=READING,
    ),
]


def schema_text(said: str | None) -> str | None:
    """Returns a schema, or the contents of the file with that name."""
    if said is None:
        return None
    path = Path(said)
    return path.read_text() if is_file(path) else said


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a name: it is a schema
        return False
