"""An Apache Kafka as the source of mirrors: its cleaner looks for work ten times a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.base.apache_kafka import kafka_command
from bench.base.processes import running

START_SECONDS_MAX = 240
EAGER = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0"}


@contextmanager
def running_kafka(
    folder: Path, port: int, properties: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run an Apache Kafka on a port, with its data in `folder`/data. Yields its bootstrap address.

    Raises:
        JarsUnavailable: Java or Maven is missing, or Maven cannot fetch the jars.
    """
    command = kafka_command(port, folder, properties={**EAGER, **(properties or {})})
    with running(command, port, start_seconds_max=START_SECONDS_MAX):
        yield f"127.0.0.1:{port}"
