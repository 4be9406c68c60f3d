"""`kompakt pipeline table ...`: write a table of last values, keep it up to date, print its offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from cli.base.output import print_json, print_table
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.source_options import CommandConfig, SourceOptions, source_options
from pipeline.spark.jars import AVRO, CONNECTOR, DELTA
from pipeline.spark.job import run_job
from pipeline.spark.session_options import Conf, Jars, Master, Packages, SessionOptions
from pipeline.tables.avro_fields import former_names
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.options import (
    CatalogProperties,
    ConfluentHeader,
    DeadLetterPath,
    Enveloped,
    Every,
    Evolving,
    Filled,
    Format,
    Group,
    KeepsHistory,
    KeyColumn,
    Keys,
    KeySchema,
    KeySchemaIds,
    MissingKey,
    OffsetsPerBatch,
    PartitionBy,
    RegistryConfig,
    Renamed,
    RetainHours,
    SchemaIds,
    SchemaRegistry,
    Selected,
    SmallFiles,
    SourceTableName,
    TableFormat,
    TablePath,
    Topics,
    Truncated,
    Unavailable,
    Unparsable,
    Values,
    ValueSchema,
    Where,
    WriteOptions,
)
from pipeline.tables.payload_options import (
    UNAVAILABLE,
    Envelope,
    OnMissingKey,
    OnTruncate,
    OnUnavailable,
    OnUnparsable,
    Payload,
    PayloadFormat,
)
from pipeline.tables.place import Place
from pipeline.tables.summary import Summary, show
from pipeline.tables.typed_payload import payload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.dead_letters import DeadLetters
    from pipeline.tables.formats.table import Table, Upkeep
    from pipeline.tables.job import Run

app = typer.Typer(
    name="table",
    help="The last value of each key, as a Delta, Iceberg or Parquet table.",
    no_args_is_help=True,
)


@app.command()
def batch(
    topic: Topics,
    table: TablePath,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    table_format: Format = TableFormat.DELTA,
    value_format: Values = PayloadFormat.BYTES,
    value_schema: ValueSchema = None,
    renamed: Renamed = None,
    envelope: Enveloped = Envelope.NONE,
    source_table: SourceTableName = None,
    unavailable: Unavailable = UNAVAILABLE,
    on_truncate: Truncated = OnTruncate.STOP,
    on_unparsable: Unparsable = OnUnparsable.FAIL,
    dead_letters: DeadLetterPath = None,
    confluent_header: ConfluentHeader = False,
    schema_id: SchemaIds = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_config: RegistryConfig = None,
    key_format: Keys = PayloadFormat.BYTES,
    key_schema: KeySchema = None,
    key_schema_id: KeySchemaIds = None,
    key_column: KeyColumn = "key",
    on_missing_key: MissingKey = OnMissingKey.FAIL,
    select: Selected = None,
    where: Where = None,
    partition_by: PartitionBy = None,
    write_option: WriteOptions = None,
    catalog_property: CatalogProperties = None,
    command_config: CommandConfig = None,
    option: SourceOptions = None,
    as_json: AsJson = False,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Read the topics up to their current ends, and write that as the table."""
    said = locals()
    run_job(lambda: refusing(lambda: write_whole(Order.typed(said))))


@app.command()
def stream(
    topic: Topics,
    table: TablePath,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    table_format: Format = TableFormat.DELTA,
    every: Every = None,
    offsets_per_batch: OffsetsPerBatch = None,
    group: Group = None,
    value_format: Values = PayloadFormat.BYTES,
    value_schema: ValueSchema = None,
    renamed: Renamed = None,
    envelope: Enveloped = Envelope.NONE,
    source_table: SourceTableName = None,
    unavailable: Unavailable = UNAVAILABLE,
    on_unavailable: Filled = OnUnavailable.FAIL,
    on_truncate: Truncated = OnTruncate.STOP,
    on_unparsable: Unparsable = OnUnparsable.FAIL,
    dead_letters: DeadLetterPath = None,
    confluent_header: ConfluentHeader = False,
    schema_id: SchemaIds = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_config: RegistryConfig = None,
    key_format: Keys = PayloadFormat.BYTES,
    key_schema: KeySchema = None,
    key_schema_id: KeySchemaIds = None,
    key_column: KeyColumn = "key",
    on_missing_key: MissingKey = OnMissingKey.FAIL,
    select: Selected = None,
    where: Where = None,
    partition_by: PartitionBy = None,
    evolution: Evolving = Evolution.STRICT,
    history: KeepsHistory = False,
    small_files_max: SmallFiles = None,
    retain_hours: RetainHours = None,
    write_option: WriteOptions = None,
    catalog_property: CatalogProperties = None,
    command_config: CommandConfig = None,
    option: SourceOptions = None,
    as_json: AsJson = False,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Merge the records since the table's last update, once or continuously.

    The table is its own checkpoint: after a batch, a stream or a crash, the next stream continues from
    the offsets that the table holds.
    """
    said = locals()
    run_job(lambda: refusing(lambda: follow(Order.typed(said), said)))


@app.command()
def offsets(
    table: TablePath,
    table_format: Format = TableFormat.DELTA,
    catalog_property: CatalogProperties = None,
    as_json: AsJson = False,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Print up to which offsets a table holds its topics."""

    def show() -> int:
        place = place_of(table, table_format, catalog_property)
        options = SessionOptions.parse(master, packages, jars, conf)
        return show_offsets(place, options, as_json=as_json)

    run_job(lambda: refusing(show))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The table and the topics of a command line."""

    source: KafkaSource
    payload: Payload
    place: Place
    dead_letters: str | None
    partition_by: Sequence[str]
    write_options: Mapping[str, str]
    evolution: Evolution
    session_options: SessionOptions
    as_json: bool

    @classmethod
    def typed(cls, said: Mapping[str, Any]) -> Self:
        """Build it from the parameters of `batch` or `stream`. Raises CommandFailed and TableRefused."""
        place = place_of(said["table"], said["table_format"], said["catalog_property"])
        options = SessionOptions.parse(said["master"], said["packages"], said["jars"], said["conf"])
        return cls(
            source=KafkaSource(
                bootstrap_servers=said["bootstrap_server"],
                topics=tuple(said["topic"]),
                options=source_options(said["command_config"], said["option"]),
            ),
            payload=payload_of(said),
            place=place,
            dead_letters=dead_letters_path(said["on_unparsable"], said["dead_letters"]),
            partition_by=said["partition_by"] or (),
            write_options=parse_pairs("--write-option", said["write_option"]),
            evolution=said.get("evolution", Evolution.STRICT),
            session_options=place.session_options(options),
            as_json=said["as_json"],
        )

    def pins(self) -> list[Path]:
        """Returns the pins of the jars that it needs."""
        is_avro = PayloadFormat.AVRO in {self.payload.value_format, self.payload.key_format}
        needed = [CONNECTOR, *self.place.pins()]
        if self.dead_letters is not None and DELTA not in needed:
            needed.append(DELTA)
        return [*needed, AVRO] if is_avro else needed

    def table(self, session: SparkSession) -> Table:
        """Returns the table. Raises TableRefused: it cannot be one."""
        from pipeline.tables.formats.table import Layout

        layout = Layout(
            key_column=self.payload.key_column,
            partition_by=self.partition_by,
            write_options=self.write_options,
            former_names=former_names(self.payload),
        )
        is_history = self.payload.history
        return self.place.table(session, layout, self.evolution, is_history=is_history)

    def letters(self, session: SparkSession) -> DeadLetters | None:
        from pipeline.tables.dead_letters import DeadLetters

        if self.dead_letters is None:
            return None
        return DeadLetters(session, self.dead_letters, beside=self.place.path)


def dead_letters_path(on_unparsable: OnUnparsable, path: str | None) -> str | None:
    if (on_unparsable is OnUnparsable.DEAD_LETTER) != (path is not None):
        raise TableRefused("--on-unparsable dead-letter and --dead-letters PATH go together")
    return path


def place_of(table: str, table_format: TableFormat, catalog_property: list[str] | None) -> Place:
    """Returns where a table is, by the command line. Raises CommandFailed and TableRefused."""
    catalog = parse_pairs("--catalog-property", catalog_property)
    return Place(path=table, format=table_format, catalog=catalog)


def refusing(work: Callable[[], int]) -> int:
    """Run work that may raise TableRefused, and end the command with its message."""
    try:
        return work()
    except TableRefused as refused:
        raise CommandFailed(EXIT_FAILED, str(refused)) from refused


def write_whole(order: Order) -> int:
    from pipeline.tables.job import write_whole as write

    def work(session: SparkSession, table: Table) -> Run:
        return write(session, order.source, table, order.payload, order.letters(session))

    return summarized(order, work)


def follow(order: Order, said: Mapping[str, Any]) -> int:
    from pipeline.tables.job import Pace
    from pipeline.tables.job import follow as run

    pace = Pace(
        every=said["every"],
        offsets_per_batch=said["offsets_per_batch"],
        group=said["group"],
        upkeep=upkeep_of(order.place, said),
    )

    def work(session: SparkSession, table: Table) -> Run:
        return run(session, order.source, table, order.payload, pace, order.letters(session))

    return summarized(order, work)


def upkeep_of(place: Place, said: Mapping[str, Any]) -> Upkeep | None:
    """Returns when small files are rewritten, by the command line. Raises TableRefused."""
    from pipeline.tables.formats.table import Upkeep

    most, retain_hours = said["small_files_max"], said["retain_hours"]
    if most is None:
        if retain_hours is not None:
            raise TableRefused("--retain-hours goes with --small-files-max")
        return None
    if place.format is TableFormat.PARQUET:
        raise TableRefused("--small-files-max needs --format delta or iceberg")
    if place.format is TableFormat.DELTA and retain_hours is not None and retain_hours < 168:
        raise TableRefused("--retain-hours: Delta keeps files for 168 hours at least")
    return Upkeep(small_files_max=most, retain_hours=retain_hours)


def summarized(order: Order, work: Callable[[SparkSession, Table], Run]) -> int:
    """Run a job in a session, and print what it has done. Returns the exit code."""
    from pipeline.tables.job import offsets_behind

    with session_of(order) as session:
        table = order.table(session)
        begin_s = time.monotonic()
        run = work(session, table)
        seconds = time.monotonic() - begin_s
        size = table.size()
        summary = Summary(
            table=order.place.path,
            rows=table.read().count(),
            has_values=order.payload.history,
            files=size.files,
            size=size.size,
            records=run.records,
            micro_batches=run.micro_batches,
            seconds=seconds,
            behind=offsets_behind(session, order.source, run.cut),
            cut=run.cut,
        )
    show(summary, as_json=order.as_json)
    return 0


def session_of(order: Order) -> AbstractContextManager[SparkSession]:
    from pipeline.spark.session import job_session

    return job_session(f"table {order.place.path}", order.session_options, pins=order.pins())


def show_offsets(place: Place, options: SessionOptions, *, as_json: bool) -> int:
    cut = held_by(place, options)
    if cut is None:
        raise TableRefused(f"{place.path} is not a table")
    if as_json:
        print_json(json.loads(cut.to_json())["topics"])
    else:
        rows = [[topic, str(partition), str(offset)] for topic, partition, offset in cut.rows()]
        print_table(["TOPIC", "PARTITION", "NEXT OFFSET"], rows, texts={"TOPIC"})
    return 0


def held_by(place: Place, options: SessionOptions) -> Cut | None:
    """Returns the offsets that a table holds; for a Parquet table without starting Spark."""
    from pipeline.tables.formats.versioned_folder import VersionedFolder

    folder = VersionedFolder(Path(place.path))
    if folder.label() is not None:
        return Cut.from_json(folder.label())
    from pipeline.spark.session import job_session
    from pipeline.tables.formats.table import DEFAULT_LAYOUT

    options = place.session_options(options)
    with job_session(f"offsets of {place.path}", options, pins=place.pins()) as session:
        table = place.table(session, DEFAULT_LAYOUT, Evolution.STRICT, is_history=False)
        return table.held()
