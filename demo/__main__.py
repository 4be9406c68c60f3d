"""Produce, clean, read with everything, compare; exit non-zero on any difference."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cleaner.rules.text import count_text
from demo.flights import Changelog, load_changelog
from demo.produce import Advance, Delivered, produce
from demo.readers import (
    CLIENTS,
    SPARK_MODES,
    Reading,
    differences,
    read_with_client,
    read_with_spark,
)
from metrics import partition_names
from pipeline.spark.jars import CONNECTOR, JarsUnavailable, jars, require_command
from tests.harness.broker_process import BrokerFailed, BrokerProcess, samples, scrape
from tests.harness.cleaning import NotCleaned, wait_until_clean
from tests.harness.clients import create_topic

PARTITIONS = 4
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # Many small segments, also rolled by the clock, so that the demo's cleaner has work at once.
    "segment.bytes": str(1 << 20),
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
}
BROKER_CONFIG = {"log.cleaner.backoff.ms": "200", "log.cleaner.enable": "false"}
"""The broker starts without the cleaner, and restarts with it once the whole topic has been read."""

T = TypeVar("T")
console = Console()


class DemoFailed(Exception):
    """A check of the demo failed. The message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker that the demo talks to."""

    bootstrap: str
    metrics: str | None
    """host:port of its HTTP endpoint; None: neither sizes nor the end of cleaning are visible."""
    start_cleaner: Callable[[], None]
    """Starts the cleaner; does nothing for an existing broker, whose cleaner runs as configured."""

    def bytes_of(self, topic: str) -> int | None:
        if self.metrics is None:
            return None
        return int(sum(samples(scrape(self.metrics), partition_names.LOG_SIZE.name, topic=topic)))


def main(
    *,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="An existing broker; without it the demo starts its own.")
    ] = None,
    metrics_url: Annotated[
        str | None, typer.Option(help="host:port of that broker's HTTP endpoint.")
    ] = None,
) -> None:
    """Real flights through real clients, the cleaner and Spark; compared with pandas."""
    started = time.monotonic()
    try:
        require_what_the_demo_uses()
        with target(bootstrap_servers, metrics_url) as broker:
            same = run(broker)
    except (DemoFailed, JarsUnavailable, BrokerFailed, NotCleaned, KafkaException) as error:
        console.print(f"demo: {error}", style="bold red", markup=False)
        raise SystemExit(1) from error
    console.print(f"{time.monotonic() - started:.0f} s in all.")
    sys.exit(0 if same else 1)


def require_what_the_demo_uses() -> None:
    """Report missing requirements before the work, not after it."""
    require_command("kcat", "kcat")
    require_command("java", "openjdk-17-jre-headless")
    jars(CONNECTOR)


@contextlib.contextmanager
def target(bootstrap: str | None, metrics: str | None) -> Iterator[Target]:
    """Yields the named broker, or starts one and stops it at the end."""
    if bootstrap is not None:
        address = (metrics or "").removeprefix("http://").removesuffix("/metrics").rstrip("/")
        yield Target(bootstrap=bootstrap, metrics=address or None, start_cleaner=lambda: None)
        return
    folder = Path(tempfile.mkdtemp(prefix="kompakt-demo-"))
    try:
        with BrokerProcess(folder, BROKER_CONFIG) as broker:
            console.print(f"Broker on {broker.bootstrap_servers}, its data in {broker.data_dir}")
            yield Target(
                bootstrap=broker.bootstrap_servers,
                metrics=f"127.0.0.1:{broker.http_port}",
                start_cleaner=lambda: start_cleaner(broker),
            )
        console.print("Broker stopped with SIGTERM: exit code 0")
    finally:
        shutil.rmtree(folder)


def start_cleaner(broker: BrokerProcess) -> None:
    """Stop the broker with SIGTERM and start it on the same data, now with the cleaner."""
    broker.overrides["log.cleaner.enable"] = "true"
    broker.restart()


def run(broker: Target) -> bool:
    """Run the demo. Returns whether every reader found the same values as pandas."""
    topic = f"aircraft-{uuid.uuid4().hex[:8]}"
    with bars() as progress:
        changelog = step(progress, "Read the data set", 1, lambda _: load_changelog())
        create_topic(broker.bootstrap, topic, partitions=PARTITIONS, config=TOPIC_CONFIG)
        produce_all(progress, broker.bootstrap, topic, changelog)
        before = measure(progress, "before", broker, topic)
        broker.start_cleaner()
        wait_for_the_cleaner(progress, broker, topic)
        after = measure(progress, "after", broker, topic)
        readings = read_with_all(progress, broker.bootstrap, topic)
    expected = changelog.expected()
    show_size(before, after)
    return show_comparison([*readings], expected)


def produce_all(progress: Progress, bootstrap: str, topic: str, changelog: Changelog) -> None:
    """Produce flights, then keyless flights (which must all be refused), then tombstones."""
    flights = step(
        progress,
        "Produce flights",
        len(changelog.keyed),
        lambda advance: produce(bootstrap, topic, changelog.records(), advance),
    )
    require_all_acknowledged("flights", flights, len(changelog.keyed))
    keyless = step(
        progress,
        "Produce flights without a tail number",
        len(changelog.keyless),
        lambda advance: produce(
            bootstrap,
            topic,
            ((None, value.encode()) for value in changelog.keyless["value"]),
            advance,
        ),
    )
    require_all_refused(keyless, len(changelog.keyless))
    tombstones = step(
        progress,
        "Produce tombstones",
        len(changelog.retired),
        lambda advance: produce(
            bootstrap, topic, ((key.encode(), None) for key in changelog.retired), advance
        ),
    )
    require_all_acknowledged("tombstones", tombstones, len(changelog.retired))


def require_all_acknowledged(what: str, delivered: Delivered, sent: int) -> None:
    if delivered.acknowledged != sent:
        refused = f"{dict(delivered.refused)} ({delivered.reason})"
        raise DemoFailed(f"of {sent} {what} only {delivered.acknowledged} were taken: {refused}")


def require_all_refused(delivered: Delivered, sent: int) -> None:
    """Check that the compacted topic refused every record without a key, with error code 87."""
    count = delivered.refused[KafkaError.INVALID_RECORD]
    if count != sent or delivered.acknowledged:
        raise DemoFailed(
            f"of {count_text(sent, 'keyless record')} {count} were refused with INVALID_RECORD, "
            f"{delivered.acknowledged} were taken: {dict(delivered.refused)}"
        )
    console.print(
        f"Refused as expected: {count:,} of {count_text(sent, 'keyless record')}, error code "
        f"{KafkaError.INVALID_RECORD} INVALID_RECORD"
    )
    console.print(f"  {delivered.reason}", style="dim", markup=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The topic's size, and the time that one reader takes from its start to its end."""

    records: int
    bytes: int | None
    seconds: float


def measure(progress: Progress, when: str, broker: Target, topic: str) -> Size:
    reading = step(
        progress,
        f"Read {when} cleaning",
        1,
        lambda _: read_with_client("confluent-kafka", broker.bootstrap, topic),
    )
    assert reading.records is not None
    return Size(records=reading.records, bytes=broker.bytes_of(topic), seconds=reading.seconds)


def wait_for_the_cleaner(progress: Progress, broker: Target, topic: str) -> None:
    """Wait for the cleaner by the broker's metrics; without metrics do not wait."""
    if broker.metrics is None:
        console.print("This broker's metrics are not available: not waiting for the cleaner.")
        return
    address = broker.metrics
    task = progress.add_task("Clean", total=100)
    wait_until_clean(
        address, topic, on_look=lambda share: progress.update(task, completed=int(100 * share))
    )
    progress.update(task, completed=100)


def read_with_all(progress: Progress, bootstrap: str, topic: str) -> list[Reading]:
    """Returns one reading per reader."""
    task = progress.add_task("Read with everything", total=len(CLIENTS) + len(SPARK_MODES))
    readings = []
    for name in CLIENTS:
        readings.append(read_with_client(name, bootstrap, topic))
        progress.advance(task)
    with tempfile.TemporaryDirectory(prefix="kompakt-demo-spark-") as folder:
        for mode in SPARK_MODES:
            try:
                readings.append(read_with_spark(mode, bootstrap, topic, Path(folder)))
            except RuntimeError as error:
                raise DemoFailed(str(error)) from error
            progress.advance(task)
    return readings


def step(progress: Progress, text: str, total: int, work: Callable[[Advance], T]) -> T:
    """Run `work` with its own progress bar, which it advances."""
    task = progress.add_task(text, total=total)
    result = work(lambda count: progress.advance(task, count))
    progress.update(task, completed=total)
    return result


def bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def show_size(before: Size, after: Size) -> None:
    table = Table(title="The topic")
    for column in ("", "records", "bytes", "seconds to read it"):
        table.add_column(column, justify="right" if column else "left")
    for name, size in (("before cleaning", before), ("after cleaning", after)):
        held = "unknown" if size.bytes is None else f"{size.bytes:,}"
        table.add_row(name, f"{size.records:,}", held, f"{size.seconds:.2f}")
    console.print(table)


def show_comparison(readings: list[Reading], expected: dict[bytes, bytes]) -> bool:
    """Print one row per reader. Returns whether all found exactly the expected last values."""
    table = Table(title=f"Last value of each aircraft, against pandas ({len(expected):,} aircraft)")
    for column in ("reader", "records", "aircraft", "seconds", "difference"):
        table.add_column(column, justify="left" if column in ("reader", "difference") else "right")
    wrong = 0
    for reading in readings:
        found = {
            what: count
            for what, count in differences(reading.last_values, expected).items()
            if count
        }
        wrong += bool(found)
        said = ", ".join(f"{count:,} {what}" for what, count in found.items()) or "none"
        records = "" if reading.records is None else f"{reading.records:,}"
        aircraft = f"{len(reading.last_values):,}"
        table.add_row(
            reading.reader,
            records,
            aircraft,
            f"{reading.seconds:.2f}",
            said,
            style="red" if found else "green",
        )
    console.print(table)
    return not wrong


if __name__ == "__main__":
    typer.run(main)
