"""`kompakt export`: a topic's last values as a table, from the files of a data directory."""

from __future__ import annotations

import enum
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cli.base.command_end import EXIT_FAILED, CommandFailed, end
from cli.base.options import AsJson
from pipeline.tables.options import (
    WRITING,
    ConfluentHeader,
    Enveloped,
    KeyColumn,
    Keys,
    KeySchema,
    KeySchemaIds,
    MissingKey,
    RegistryConfig,
    Renamed,
    SchemaIds,
    SchemaRegistry,
    SourceTableName,
    Unavailable,
    Unparsable,
    Values,
    ValueSchema,
)
from pipeline.tables.payload_options import (
    UNAVAILABLE,
    Envelope,
    OnMissingKey,
    OnUnparsable,
    PayloadFormat,
)

READING = "Reading"
REQUIREMENT = "kompakt[export]"


class ExportFormat(enum.StrEnum):
    """The format of the table that an export writes."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


MODULES = {
    ExportFormat.PARQUET: ("pyarrow", "deltalake"),
    ExportFormat.DELTA: ("pyarrow", "deltalake"),
    ExportFormat.ICEBERG: ("pyarrow", "pyiceberg"),
}

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="A compacted topic.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PATH|NAMESPACE.TABLE",
        help="The table's path; in Iceberg its name in the catalog. Parquet: read PATH/current.",
    ),
]
Format = Annotated[
    ExportFormat, typer.Option("--format", help="The table's format.", rich_help_panel=WRITING)
]
DataDirs = Annotated[
    list[Path],
    typer.Option(
        "--data-dir",
        metavar="PATH",
        help="A data directory (an entry of log.dirs) of a running or stopped broker, or a copy of one."
        " Repeatable.",
        rich_help_panel=READING,
    ),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        metavar="offset|timestamp|'header NAME'",
        help="The topic's compaction.strategy, where it is set by the broker's default and no pass has"
        " run yet. [default: what the topic's settings or its key sidecars say]",
        rich_help_panel=READING,
    ),
]
Memory = Annotated[
    int,
    typer.Option(
        "--memory",
        min=1,
        metavar="MIB",
        help="Memory for the keys of a partition, 27 bytes each; more keys take more scans. Another 8"
        " bytes for each last record, and 64 MiB for each thread, come on top.",
        rich_help_panel=READING,
    ),
]
Threads = Annotated[
    int,
    typer.Option(min=1, help="Threads that write files.", rich_help_panel=WRITING),
]
Catalog = Annotated[
    str,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="The catalog of an Iceberg table, as PyIceberg's configuration names it (.pyiceberg.yaml,"
        " or PYICEBERG_CATALOG__NAME__URI).",
        rich_help_panel=WRITING,
    ),
]
CatalogProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="NAME=VALUE",
        help="A property of the catalog, such as uri=sqlite:////var/lib/catalog.db or"
        " warehouse=file:///var/lib/tables. Repeatable.",
        rich_help_panel=WRITING,
    ),
]
DEFAULT_DATA_DIR = Path("data")
THREADS = os.cpu_count() or 1


def export(
    topic: Topic,
    to: To,
    table_format: Format = ExportFormat.PARQUET,
    data_dir: DataDirs = [DEFAULT_DATA_DIR],  # noqa: B006
    strategy: Strategy = None,
    memory: Memory = 1024,
    threads: Threads = THREADS,
    value_format: Values = PayloadFormat.BYTES,
    value_schema: ValueSchema = None,
    renamed: Renamed = None,
    envelope: Enveloped = Envelope.NONE,
    source_table: SourceTableName = None,
    unavailable: Unavailable = UNAVAILABLE,
    on_unparsable: Unparsable = OnUnparsable.FAIL,
    confluent_header: ConfluentHeader = False,
    schema_id: SchemaIds = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_config: RegistryConfig = None,
    key_format: Keys = PayloadFormat.BYTES,
    key_schema: KeySchema = None,
    key_schema_id: KeySchemaIds = None,
    key_column: KeyColumn = "key",
    on_missing_key: MissingKey = OnMissingKey.FAIL,
    catalog: Catalog = "default",
    catalog_property: CatalogProperties = None,
    as_json: AsJson = False,
) -> None:
    """Write the last value of each key as a table, from the files of a data directory, without Spark.

    The table holds the topic up to its end at this moment, and says which offsets that are. Run again,
    only what changed is read and written. `kompakt pipeline table stream` continues a Parquet or Delta
    table from there.
    """
    said = locals()

    def work() -> int:
        require(MODULES[table_format])
        from pipeline.export.run import run

        return run(said, as_json=as_json)

    end(work)


def require(modules: Sequence[str]) -> None:
    """Raise CommandFailed, which says what to install, if a module is missing."""
    missing = [each for each in modules if find_spec(each) is None]
    if missing:
        wanted = shlex.join([sys.executable, "-m", "pip", "install", REQUIREMENT])
        raise CommandFailed(
            EXIT_FAILED, f"an export needs {', '.join(missing)}: install it with `{wanted}`"
        )
