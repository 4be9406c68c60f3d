"""`kompakt pipeline audit`: check that a cleaned log is still the same table as its original."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.options import AsJson
from pipeline.audit.span import AuditOptions
from pipeline.offsets.source_options import CommandConfig, SourceOptions, source_options
from pipeline.spark.job import run_job
from pipeline.spark.session_options import Conf, Jars, Master, Packages, SessionOptions
from storage.formats.compaction_strategy import CompactionStrategy

SIDE = "HOST:PORT/TOPIC|FOLDER|URL/TOPIC"

Original = Annotated[
    str,
    typer.Option("--original", metavar=SIDE, help="The log before cleaning, with all its records."),
]
Cleaned = Annotated[
    str, typer.Option("--cleaned", metavar=SIDE, help="The same log, after the cleaner.")
]


def audit(
    *,
    original: Original,
    cleaned: Cleaned,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Retention of tombstones.  [default: the cleaned topic's setting, else a day]",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="STRATEGY",
            help="What makes a record a key's last: offset, timestamp or 'header NAME'."
            "  [default: the topic's compaction.strategy]",
        ),
    ] = None,
    may_end_early: Annotated[
        bool,
        typer.Option("--may-end-early", help="The cleaned log may be older than the original."),
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="List at most this many differences.")] = 100,
    command_config: CommandConfig = None,
    option: SourceOptions = None,
    as_json: AsJson = False,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Compare a cleaned log with its original, and print the keys that differ.

    A side is a topic (HOST:PORT/TOPIC), segment files (a topic's or a partition's FOLDER, of a backup
    or of a running broker), or a broker's own digest of its log (http://HOST:PORT/TOPIC), which is
    compared as one number and moves no data. The exit code is 0 if each key has the same last value at
    the same offset, every record of the cleaned log is in the original at the same offset, and no
    tombstone went too early; else 1.
    """

    def work() -> int:
        from pipeline.audit.job import run_audit
        from pipeline.audit.report import print_outcome
        from pipeline.audit.side import TopicSide, parse_sides
        from pipeline.spark.jars import CONNECTOR
        from pipeline.spark.session import job_session

        options = AuditOptions(
            delete_retention_ms=delete_retention_ms,
            strategy=None if strategy is None else strategy_of(strategy),
            may_end_early=may_end_early,
            differences_max=show,
        )
        session_options = SessionOptions.parse(master, packages, jars, conf)
        sides = parse_sides(original, cleaned, source_options(command_config, option))
        pins = (CONNECTOR,) if any(isinstance(side, TopicSide) for side in sides) else ()
        with job_session("audit", session_options, pins=pins) as session:
            outcome = run_audit(session, *sides, options)
        print_outcome(outcome, as_json=as_json)
        return 0 if outcome.is_same else EXIT_FAILED

    run_job(work)


def strategy_of(text: str) -> CompactionStrategy:
    """Parse --strategy. Raises CommandFailed."""
    try:
        return CompactionStrategy.parse(text)
    except ValueError as error:
        raise CommandFailed(EXIT_USAGE, f"--strategy: {error}") from error
