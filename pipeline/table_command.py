"""`kompakt pipeline table ...`: tables of last values, written whole, followed, and asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.cut import Cut, TableRefused
from pipeline.jars import AVRO, CONNECTOR, DELTA
from pipeline.job import run_job
from pipeline.kafka_source import KafkaSource
from pipeline.payload_options import KeyFormat, OnUnparsable, Payload, ValueFormat
from pipeline.session_options import Conf, Jars, Master, Packages, SessionOptions
from pipeline.table_options import (
    ConfluentHeader,
    Every,
    Format,
    KeyColumn,
    Keys,
    OffsetsPerBatch,
    PartitionBy,
    SourceOptions,
    TableFormat,
    TablePath,
    Topics,
    Unparsable,
    Values,
    ValueSchema,
    WriteOptions,
    schema_text,
)
from pipeline.versioned_folder import VersionedFolder
from server.command_end import EXIT_FAILED, CommandFailed
from server.command_options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.table import Table
    from pipeline.table_job import Pace

app = typer.Typer(
    name="table", help="The last value of each key, as a Delta or Parquet table.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOrder:
    """What is to be made of which topics, as it was typed."""

    source: KafkaSource
    payload: Payload
    path: str
    table_format: TableFormat
    partition_by: Sequence[str]
    write_options: dict[str, str]
    session_options: SessionOptions

    def pins(self) -> list[Path]:
        """The jars that it takes."""
        is_avro = self.payload.value_format is ValueFormat.AVRO
        is_delta = self.table_format is TableFormat.DELTA
        return [CONNECTOR, *([DELTA] if is_delta else []), *([AVRO] if is_avro else [])]


@app.command()
def batch(
    topic: Topics,
    table: TablePath,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    table_format: Format = TableFormat.DELTA,
    values: Values = ValueFormat.BYTES,
    value_schema: ValueSchema = None,
    on_unparsable: Unparsable = OnUnparsable.FAIL,
    confluent_header: ConfluentHeader = False,
    keys: Keys = KeyFormat.BYTES,
    key_column: KeyColumn = "key",
    partition_by: PartitionBy = None,
    write_option: WriteOptions = None,
    option: SourceOptions = None,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Read the topics up to their present ends, and make that the table."""
    payload = (values, value_schema, on_unparsable, confluent_header, keys, key_column)
    session = SessionOptions.parse(master, packages, jars, conf)
    run_job(
        lambda: write(
            order(
                (bootstrap_server, topic, option), payload, (table, table_format),
                (partition_by, write_option), session,
            )
        )
    )
