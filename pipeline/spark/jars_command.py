"""`kompakt pipeline jars`: fetch the jars that Spark needs, once, so that jobs work offline."""

from __future__ import annotations

from typing import Annotated

import typer

from cleaner.rules.text import count_text
from pipeline.spark.jars import ALL_PINS, ICEBERG, has_iceberg, jars, pins_for_this_spark
from pipeline.spark.job import run_job


def fetch_jars(
    as_list: Annotated[
        bool,
        typer.Option(
            "--list", help="Print their paths, separated by commas, for `spark-submit --jars`."
        ),
    ] = False,
) -> None:
    """Fetch and verify Spark's Kafka source, Delta, Avro and, for Spark 4.1, Iceberg; print where.

    Maven fetches them. Their SHA-256 is checked against the pinned one, now and before each job.
    """
    run_job(lambda: show_jars(as_list=as_list), needs=())


def show_jars(*, as_list: bool) -> int:
    """Fetch the jars and print their places. Raises JarsUnavailable."""
    wanted = (*ALL_PINS, ICEBERG) if has_iceberg() else ALL_PINS
    brought = {pins: jars(pins_for_this_spark(pins)) for pins in wanted}
    if as_list:
        typer.echo(",".join(str(jar) for paths in brought.values() for jar in paths))
        return 0
    for pins, paths in brought.items():
        size = sum(path.stat().st_size for path in paths)
        typer.echo(
            f"{pins.name}: {count_text(len(paths), 'jar')}, {size / 1e6:.1f} MB, in {paths[0].parent}"
        )
    return 0
