"""Reads the records for `kompakt consume` and prints them as they arrive."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cleaner.rules.text import count_text
from cli.base.broker_client import connected
from cli.base.output import progress_bars, tolerated_closed_pipe, write_lines
from cli.base.record_text import LineWriter, ReadRecord, TextFormat, details_line, json_line
from cli.base.topic_facts import strategy_of
from cli.consume.arrow_file import write_arrow
from cli.consume.group_member import GroupReader
from cli.consume.latest_records import LatestRecords
from cli.consume.latest_table import LatestTable
from cli.consume.range import Bounds, Range, ranges_of
from cli.consume.records import Reader, TopicReader
from cli.produce.parse import parse_separator
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read."""

    bootstrap: str
    topic: str
    group: str | None
    """The consumer group to join. None: read without a group."""
    bounds: Bounds
    key: bytes | None
    """Print only records with this key. None: all records."""
    count_max: int | None
    is_followed: bool
    stall_seconds_max: float
    """Give up after this time without progress before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """How to print records."""

    separator: str | None
    null: str
    is_hex: bool
    is_detailed: bool
    is_json: bool

    def line_writer(self, topic: str) -> LineWriter:
        """Returns the function that formats a record as a line."""
        if self.is_json:
            return json_line(topic)
        return details_line if self.is_detailed else self._text().line

    @property
    def is_table(self) -> bool:
        """Whether --latest prints a table: no option chose another format."""
        return not (self.is_json or self.is_detailed or self.is_hex) and self.separator is None

    def _text(self) -> TextFormat:
        return TextFormat(
            separator=None if self.separator is None else parse_separator(self.separator),
            null=self.null.encode(),
            is_hex=self.is_hex,
            is_for_terminal=sys.stdout.isatty(),
        )


def consume_topic(
    reading: ReadOptions,
    printing: PrintOptions,
    *,
    latest_memory_mib: int | None,
    arrow: Path | None = None,
) -> int:
    """Read and print records, and return the exit code.

    Args:
        latest_memory_mib: print the last value of each key, kept in that much memory.
        arrow: write these to an Arrow file instead.
    """
    is_latest = latest_memory_mib is not None
    ranges, strategy = asyncio.run(_begin(reading, is_latest=is_latest))
    with _open_reader(reading, ranges) as reader, tolerated_closed_pipe():
        if latest_memory_mib is None:
            _print_records(reader, reading, printing)
            return 0
        with LatestRecords(memory_bytes=latest_memory_mib << 20, strategy=strategy) as latest:
            _read_latest(reader, reading, latest)
            if arrow is None:
                _print_latest(reader, reading, printing, latest)
                return 0
            rows = itertools.islice(latest, reading.count_max)
            write_arrow(arrow, rows, topic=reading.topic, strategy=str(strategy))
            typer.echo(_totals(latest, reading.topic), err=True)
    return 0


@contextmanager
def latest_of(
    bootstrap: str, topic: str, *, memory_bytes: int, stall_seconds_max: float
) -> Iterator[LatestRecords]:
    """Read the committed records of a whole topic, with progress. Yields the last one of each key.

    Raises:
        CommandFailed: the topic cannot be read.
    """
    bounds = Bounds(
        partitions=(), begin="beginning", since_ms=None, until_ms=None, is_committed=True
    )
    reading = ReadOptions(
        bootstrap=bootstrap,
        topic=topic,
        group=None,
        bounds=bounds,
        key=None,
        count_max=None,
        is_followed=False,
        stall_seconds_max=stall_seconds_max,
    )
    ranges, strategy = asyncio.run(_begin(reading, is_latest=True))
    with LatestRecords(memory_bytes=memory_bytes, strategy=strategy) as latest:
        with _open_reader(reading, ranges) as reader:
            _read_latest(reader, reading, latest)
        yield latest


def _open_reader(reading: ReadOptions, ranges: dict[int, Range]) -> GroupReader | TopicReader:
    if reading.group is None:
        return TopicReader(
            reading.bootstrap,
            reading.topic,
            ranges,
            is_committed=reading.bounds.is_committed,
            stall_seconds_max=reading.stall_seconds_max,
        )
    return GroupReader(
        reading.bootstrap,
        reading.topic,
        reading.group,
        ranges,
        from_end=reading.bounds.begin == "end",
        is_committed=reading.bounds.is_committed,
        stall_seconds_max=reading.stall_seconds_max,
    )


async def _begin(
    reading: ReadOptions, *, is_latest: bool
) -> tuple[dict[int, Range], CompactionStrategy]:
    """Returns what to read of each partition and, for --latest, which record of a key is its last."""
    async with connected(reading.bootstrap) as client:
        await client.check_advertised()
        ranges = await ranges_of(client, reading.topic, reading.bounds)
        return ranges, await strategy_of(client, reading.topic) if is_latest else BY_OFFSET


def _print_records(reader: Reader, reading: ReadOptions, printing: PrintOptions) -> None:
    line, left = printing.line_writer(reading.topic), reading.count_max
    for batch in _batches(reader, reading, is_shown=not sys.stdout.isatty()):
        wanted, unread = _cut(batch, reading.key, left)
        write_lines(map(line, wanted))
        if batch:
            reader.commit(unread)
        if left is not None:
            left -= len(wanted)
            if not left:
                return


def _read_latest(reader: Reader, reading: ReadOptions, latest: LatestRecords) -> None:
    for batch in _read_with_progress(reader, reading.topic, is_shown=True):
        latest.add(_with_key(batch, reading.key))


def _print_latest(
    reader: Reader, reading: ReadOptions, printing: PrintOptions, latest: LatestRecords
) -> None:
    line = printing.line_writer(reading.topic)
    if printing.is_table:
        table = LatestTable(key_bytes_max=latest.key_bytes_max())
        write_lines([table.titles])
        line = table.line
    write_lines(map(line, itertools.islice(latest, reading.count_max)))
    typer.echo(_totals(latest, reading.topic), err=True)
    for batch in reader.follow() if reading.is_followed else ():
        write_lines(map(line, _with_key(batch, reading.key)))


def _totals(latest: LatestRecords, topic: str) -> str:
    keyless, count = latest.keyless_count, len(latest)
    skipped = f"; skipped without a key: {keyless:,}" if keyless else ""
    keys, records = count_text(count, "key"), count_text(latest.records_count, "record")
    return f"{topic}: {keys} with a value, from {records}{skipped}"


def _batches(reader: Reader, reading: ReadOptions, *, is_shown: bool) -> Iterator[list[ReadRecord]]:
    yield from _read_with_progress(reader, reading.topic, is_shown=is_shown)
    if reading.is_followed:
        yield from reader.follow()


def _read_with_progress(
    reader: Reader, topic: str, *, is_shown: bool
) -> Iterator[list[ReadRecord]]:
    """Yield the records up to the end, with a progress bar on a terminal."""
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with progress_bars(TextColumn("{task.description}"), *columns, is_shown=is_shown) as bars:
        task = bars.add_task(topic, total=reader.planned)
        for batch in reader.read_to_end():
            yield batch
            bars.update(task, completed=reader.passed)


def _cut(
    batch: list[ReadRecord], key: bytes | None, count_max: int | None
) -> tuple[list[ReadRecord], list[ReadRecord]]:
    """Returns the records of a batch to print and, if `count_max` is reached, those after them."""
    wanted = _with_key(batch, key)[:count_max]
    if count_max is None or len(wanted) < count_max:
        return wanted, []
    return wanted, batch[batch.index(wanted[-1]) + 1 :]


def _with_key(batch: list[ReadRecord], key: bytes | None) -> list[ReadRecord]:
    return batch if key is None else [record for record in batch if record.key == key]
