"""`kompakt pipeline load`: write a table into a compacted topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cleaner.rules.text import count_text, size_text
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from cli.base.output import print_json
from pipeline.load.formats import RecordFormat, SourceFormat
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.source_options import (
    READING,
    CommandConfig,
    SourceOptions,
    source_options,
)
from pipeline.spark.jars import CONNECTOR, DELTA
from pipeline.spark.job import run_job
from pipeline.spark.session_options import Conf, Jars, Master, Packages, SessionOptions
from pipeline.tables.command import refusing

if TYPE_CHECKING:
    from pipeline.load.difference import Plan
    from pipeline.load.job import Load

RECORDS = "Records"

Path = Annotated[str, typer.Option("--from", metavar="PATH", help="The table to load.")]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="A compacted topic.")]
From = Annotated[
    SourceFormat,
    typer.Option("--from-format", help="The table's format.", rich_help_panel=READING),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="DDL",
        help="As `id BIGINT, name STRING`, for csv and json. [default: all text, or inferred]",
        rich_help_panel=READING,
    ),
]
ReadOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--read-option",
        metavar="NAME=VALUE",
        help="For Spark's reader of the table (versionAsOf=7, delimiter=;). Repeatable.",
        rich_help_panel=READING,
    ),
]
Selected = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="EXPRESSION",
        help="A column, in Spark SQL, such as `city` or `upper(city) AS city`. Repeatable."
        " [default: all of the table]",
        rich_help_panel=READING,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="In Spark SQL: which rows to load.",
        rich_help_panel=READING,
    ),
]
Key = Annotated[
    list[str],
    typer.Option(
        "--key", metavar="COLUMN", help="A column of the key. Repeatable.", rich_help_panel=RECORDS
    ),
]
KeyFormat = Annotated[
    RecordFormat,
    typer.Option(
        help="text: one column, as it is. json: an object of the columns.", rich_help_panel=RECORDS
    ),
]
Value = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="COLUMN",
        help="A column of the value. Repeatable. [default: all columns]",
        rich_help_panel=RECORDS,
    ),
]
ValueFormat = Annotated[
    RecordFormat, typer.Option(help="As --key-format.", rich_help_panel=RECORDS)
]
Sync = Annotated[
    bool, typer.Option("--sync", help="Delete the topic's keys that the table does not have.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")
]
Create = Annotated[
    int | None,
    typer.Option(
        "--create",
        metavar="PARTITIONS",
        min=1,
        help="Create the topic, compacted, if it does not exist.",
    ),
]


def load(
    path: Path,
    topic: Topic,
    key: Key,
    source_format: From = SourceFormat.DELTA,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    sync: Sync = False,
    dry_run: DryRun = False,
    create: Create = None,
    as_json: AsJson = False,
    schema: Schema = None,
    read_option: ReadOptions = None,
    select: Selected = None,
    where: Where = None,
    key_format: KeyFormat = RecordFormat.TEXT,
    value: Value = None,
    value_format: ValueFormat = RecordFormat.JSON,
    command_config: CommandConfig = None,
    option: SourceOptions = None,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Write a table into a compacted topic: the rows that are new or differ.

    The topic is compared with the table first, so the command can be repeated: what is there already is
    not written again, also after it was killed. Each task of Spark writes one transaction; readers with
    read_committed see its records at its end.
    """
    said = locals()
    run_job(lambda: refusing(lambda: run(said)))


def run(said: Mapping[str, Any]) -> int:
    """Load, with the parameters of the command. Returns the exit code."""
    from pipeline.load.job import planned, write
    from pipeline.load.source import TableToLoad
    from pipeline.load.topic import end_earlier_loads
    from pipeline.spark.session import job_session

    table = TableToLoad(
        path=said["path"],
        source_format=said["source_format"],
        schema=said["schema"],
        options=parse_pairs("--read-option", said["read_option"]),
        select=said["select"] or (),
        where=said["where"],
    )
    wanted = load_of(said)
    is_delta = said["source_format"] is SourceFormat.DELTA
    pins = [CONNECTOR, *([DELTA] if is_delta else [])]
    options = SessionOptions.parse(said["master"], said["packages"], said["jars"], said["conf"])
    with job_session(f"load {said['topic']}", options, pins=pins) as session:
        rows = table.rows(session)
        if not said["dry_run"]:
            end_earlier_loads(session, wanted.topic)
        with planned(session, rows, wanted) as (found, plan):
            if not said["dry_run"]:
                write(session, found, plan, wanted)
    report(plan, said["topic"], is_dry=said["dry_run"], as_json=said["as_json"])
    return 0


def load_of(said: Mapping[str, Any]) -> Load:
    """Returns what to load, of the command's parameters. Raises CommandFailed and TableRefused."""
    from pipeline.load.job import Load
    from pipeline.load.records import RecordShape

    return Load(
        topic=KafkaSource(
            bootstrap_servers=said["bootstrap_server"],
            topics=(said["topic"],),
            options=source_options(said["command_config"], said["option"]),
        ),
        shape=RecordShape(
            key=said["key"],
            value=said["value"] or (),
            key_format=said["key_format"],
            value_format=said["value_format"],
        ),
        sync=said["sync"],
        create_partitions=said["create"],
    )


def report(plan: Plan, topic: str, *, is_dry: bool, as_json: bool) -> None:
    """Print how many keys are of each kind."""
    counts = {kind.value: count for kind, count in plan.counts.items()}
    if as_json:
        print_json({"topic": topic, "dry_run": is_dry, **counts, "bytes": plan.bytes_count})
        return
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    sent = "to write" if is_dry else "written"
    size = f"{count_text(plan.records, 'record')} of {size_text(plan.bytes_count)} {sent}"
    typer.echo(f"{topic}: {kinds}; {size}")
