"""`kompakt pipeline audit`: is a cleaned log still the table that its original is?"""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.audit_span import AuditOptions
from pipeline.job import run_job
from pipeline.session_options import Conf, Jars, Master, Packages, SessionOptions
from server.command_end import EXIT_FAILED
from server.command_options import AsJson, parse_pair

SIDE = "HOST:PORT/TOPIC|FOLDER|URL/TOPIC"

Original = Annotated[
    str, typer.Option("--original", metavar=SIDE, help="The log as it was: all its records.")
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
            help="How long tombstones stay.  [default: as the cleaned topic says, else a day]",
        ),
    ] = None,
    may_end_early: Annotated[
        bool,
        typer.Option("--may-end-early", help="The cleaned log may be older than the original."),
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="List at most so many differences.")] = 100,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="An option of Spark's Kafka source, for topics. Repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
    master: Master = None,
    packages: Packages = None,
    jars: Jars = None,
    conf: Conf = None,
) -> None:
    """Prove a cleaned log against its original, and print the keys that differ.

    A side is a topic (HOST:PORT/TOPIC), segment files (a topic's or a partition's FOLDER, of a backup
    or of a running broker), or a broker's own word for its log (http://HOST:PORT/TOPIC), which is
    compared as one number and moves no data. The same last value of each key at the same offset,
    every record as it was and where it was, nothing else, and tombstones until their time is over:
    exit code 0; else 1.
    """

    options = AuditOptions(
        delete_retention_ms=delete_retention_ms, may_end_early=may_end_early, differences_max=show
    )

    def work() -> int:
        from pipeline.audit_job import run_audit
        from pipeline.audit_report import print_outcome
        from pipeline.audit_side import TopicSide, parse_sides
        from pipeline.jars import CONNECTOR
        from pipeline.spark import job_session

        session_options = SessionOptions.parse(master, packages, jars, conf)
        kafka_options = dict(parse_pair("--option", text) for text in option or ())
        sides = parse_sides(original, cleaned, kafka_options)
        pins = (CONNECTOR,) if any(isinstance(side, TopicSide) for side in sides) else ()
        with job_session("audit", session_options, pins=pins) as session:
            outcome = run_audit(session, *sides, options)
        print_outcome(outcome, as_json=as_json)
        return 0 if outcome.is_same else EXIT_FAILED

    run_job(work)
