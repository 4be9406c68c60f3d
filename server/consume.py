"""Reads what `kompakt consume` was asked for, and prints it while it comes."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cleaner.text import count_text
from server.broker_client import connected
from server.command_output import progress_bars
from server.consume_group import GroupReader
from server.consume_range import Bounds, Range, ranges_of
from server.consume_records import Reader, TopicReader
from server.latest_records import LatestRecords
from server.latest_table import LatestTable
from server.produce_input import parse_separator
from server.record_text import LineWriter, ReadRecord, TextFormat, details_line, json_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read."""

    bootstrap: str
    topic: str
    group: str | None
    """Whose member reads; None: nobody's."""
    bounds: Bounds
    key: bytes | None
    """Only its records; None: all."""
    count_max: int | None
    is_followed: bool
    patience_seconds: float
    """How long nothing may come though there is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """How it is printed."""

    separator: str | None
    null: str
    is_hex: bool
    is_detailed: bool
    is_json: bool

    def line_of(self, topic: str) -> LineWriter:
        """What makes a record's line."""
        if self.is_json:
            return json_line(topic)
        return details_line if self.is_detailed else self._text().line

    @property
    def is_table(self) -> bool:
        """Nothing was said, so the last values are a table for people."""
        return not (self.is_json or self.is_detailed or self.is_hex) and self.separator is None

    def _text(self) -> TextFormat:
        return TextFormat(
            separator=None if self.separator is None else parse_separator(self.separator),
            null=self.null.encode(),
            is_hex=self.is_hex,
            is_for_terminal=sys.stdout.isatty(),
        )


def consume_topic(reading: Reading, printing: Printing, *, latest_memory_mib: int | None) -> int:
    """Read and print; the exit code."""
    reader = _opened(reading, asyncio.run(_ranges(reading)))
    with reader, _ended_pipe():
        if latest_memory_mib is None:
            _print_records(reader, reading, printing)
        else:
            _print_latest(reader, reading, printing, latest_memory_mib << 20)
    return 0


def _opened(reading: Reading, ranges: dict[int, Range]) -> GroupReader | TopicReader:
    if reading.group is None:
        return TopicReader(
            reading.bootstrap,
            reading.topic,
            ranges,
            is_committed=reading.bounds.is_committed,
            patience_seconds=reading.patience_seconds,
        )
    return GroupReader(
        reading.bootstrap,
        reading.topic,
        reading.group,
        ranges,
        from_end=reading.bounds.begin == "end",
        is_committed=reading.bounds.is_committed,
        patience_seconds=reading.patience_seconds,
    )


async def _ranges(reading: Reading) -> dict[int, Range]:
    async with connected(reading.bootstrap) as client:
        await client.check_advertised()
        return await ranges_of(client, reading.topic, reading.bounds)


def _print_records(reader: Reader, reading: Reading, printing: Printing) -> None:
    line, left = printing.line_of(reading.topic), reading.count_max
    for batch in _batches(reader, reading, is_shown=not sys.stdout.isatty()):
        wanted, rest = _cut(batch, reading.key, left)
        _write(map(line, wanted))
        if batch:
            reader.commit(rest)
        if left is not None:
            left -= len(wanted)
            if not left:
                return


def _print_latest(reader: Reader, reading: Reading, printing: Printing, memory_bytes: int) -> None:
    with LatestRecords(memory_bytes=memory_bytes) as latest:
        for batch in _watched(reader, reading.topic, is_shown=True):
            latest.add(_of_key(batch, reading.key))
        line = printing.line_of(reading.topic)
        if printing.is_table:
            table = LatestTable(key_bytes_max=latest.key_bytes_max())
            _write([table.titles])
            line = table.line
        _write(map(line, itertools.islice(latest, reading.count_max)))
        typer.echo(_totals(latest, reading.topic), err=True)
    for batch in reader.follow() if reading.is_followed else ():
        _write(map(line, _of_key(batch, reading.key)))


def _totals(latest: LatestRecords, topic: str) -> str:
    """What was read for the table."""
    keyless, count = latest.keyless_count, len(latest)
    without = f"; without a key, and left out: {keyless:,}" if keyless else ""
    keys, records = count_text(count, "key"), count_text(latest.records_count, "record")
    return f"{topic}: {keys} with a value, by {records}{without}"


def _batches(reader: Reader, reading: Reading, *, is_shown: bool) -> Iterator[list[ReadRecord]]:
    yield from _watched(reader, reading.topic, is_shown=is_shown)
    if reading.is_followed:
        yield from reader.follow()


def _watched(reader: Reader, topic: str, *, is_shown: bool) -> Iterator[list[ReadRecord]]:
    """The ranges' records; on a terminal somebody sees how far that is."""
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with progress_bars(TextColumn("{task.description}"), *columns, is_shown=is_shown) as bars:
        task = bars.add_task(topic, total=reader.planned)
        for batch in reader.read_to_end():
            yield batch
            bars.update(task, completed=reader.passed)


def _cut(
    batch: list[ReadRecord], key: bytes | None, count_max: int | None
) -> tuple[list[ReadRecord], list[ReadRecord]]:
    """What is printed of a batch, and what is left of it when that is enough."""
    wanted = _of_key(batch, key)[:count_max]
    if count_max is None or len(wanted) < count_max:
        return wanted, []
    return wanted, batch[batch.index(wanted[-1]) + 1 :]


def _of_key(batch: list[ReadRecord], key: bytes | None) -> list[ReadRecord]:
    return batch if key is None else [record for record in batch if record.key == key]


def _write(lines: Iterable[bytes]) -> None:
    """As bytes: values are what they are."""
    out = sys.stdout.buffer
    out.writelines(line + b"\n" for line in lines)
    out.flush()


@contextmanager
def _ended_pipe() -> Iterator[None]:
    """Whoever reads us may have enough, as head has."""
    try:
        yield
    except BrokenPipeError:
        # What is still buffered would fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
