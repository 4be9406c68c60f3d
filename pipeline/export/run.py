"""Carries out `kompakt export`: finds the topic, opens the table, shows progress, prints the summary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cleaner.rules.text import count_text, size_text
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.options import parse_pairs
from cli.base.output import print_json, progress_bars
from pipeline.export.command import ExportFormat
from pipeline.export.export import Summary, export
from pipeline.export.log_export import ExportProgress, Reading
from pipeline.export.target import Target
from pipeline.offsets.cut import TableRefused
from pipeline.source.topic_strategy import configured_strategy, strategies_in
from pipeline.tables.payload_options import OnUnparsable, Payload
from pipeline.tables.typed_payload import payload_of
from protocol.wire.errors import ProtocolError
from storage.files.errors import StorageError
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.open_files import raise_descriptor_limit
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.log_identity import LogIdentity
from storage.log.on_disk import look_at_log
from storage.verify.verify import Found, find_logs

MIB = 1 << 20


def run(said: Mapping[str, Any], *, as_json: bool) -> int:
    """Run an export. Returns the exit code.

    Args:
        said: the parameters of `kompakt export`.

    Raises:
        CommandFailed: see `pipeline.export.export.export`; the table is unchanged.
    """
    began = time.monotonic()
    raise_descriptor_limit()  # The files of two partitions are held.
    try:
        topic = found_topic(said["data_dir"], said["topic"], said["strategy"])
        payload = exportable(payload_of(said))
        target = opened(said)
        reading = Reading(
            strategy=topic.strategy,
            on_missing_key=payload.on_missing_key,
            memory_bytes=said["memory"] * MIB,
            threads=said["threads"],
        )
        with shown_progress() as progress:
            summary = export(topic.logs, reading, target, payload, progress)
    except (TableRefused, StorageError, ProtocolError, OSError) as error:
        raise CommandFailed(EXIT_FAILED, str(error)) from error
    show(summary, target, seconds=time.monotonic() - began, as_json=as_json)
    return 0


def exportable(payload: Payload) -> Payload:
    """Returns the options for keys and values. Raises TableRefused: an export cannot have them."""
    if payload.on_unparsable is OnUnparsable.DEAD_LETTER:
        raise TableRefused("an export has no dead letters: --on-unparsable fail or keep")
    return payload


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic in data directories."""

    logs: Sequence[LogIdentity]
    """Its partitions, in order."""
    strategy: CompactionStrategy


def found_topic(paths: Sequence[Any], topic: str, strategy: str | None) -> FoundTopic:
    """Returns a topic's logs and how its records are ranked.

    Raises:
        TableRefused: there is no such topic, it is there more than once, or its strategy is not known.
        StorageError: the directories cannot be read.
    """
    fs = ReadOnlyFileSystem()
    founds = [(str(path.absolute()), find_logs(fs, str(path.absolute()))) for path in paths]
    for path, found in founds:
        if found is None:
            raise TableRefused(f"{path} is no data directory, and no folder of a topic")
    all_found = [found for _, found in founds if found is not None]
    logs = [
        each for found in all_found for each in found.logs if each.topic_partition.topic == topic
    ]
    logs.sort(key=lambda each: each.topic_partition.partition)
    _refuse_ambiguous(logs, topic, [path for path, _ in founds])
    return FoundTopic(logs, _strategy(fs, all_found, logs, topic, strategy))


def _refuse_ambiguous(logs: Sequence[LogIdentity], topic: str, paths: Sequence[str]) -> None:
    if not logs:
        raise TableRefused(f"{', '.join(paths)} has no topic {topic}")
    if len({each.topic_id for each in logs}) > 1:
        raise TableRefused(f"there are several topics {topic}: one was deleted, or is a copy")
    numbers = [each.topic_partition.partition for each in logs]
    if len(set(numbers)) < len(numbers):
        raise TableRefused(f"a partition of {topic} is in several of these directories")
    missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if missing:
        raise TableRefused(
            f"partition {missing[0]} of {topic} is not here: name all data directories of the broker"
        )


def _strategy(
    fs: ReadOnlyFileSystem,
    founds: Sequence[Found],
    logs: Sequence[LogIdentity],
    topic: str,
    said: str | None,
) -> CompactionStrategy:
    try:
        if said is not None:
            return CompactionStrategy.parse(said)
        for each in founds:
            found = each.metadata and configured_strategy(fs, each.metadata, topic)
            if found:
                return found
    except ValueError as error:
        raise CommandFailed(EXIT_USAGE, f"--strategy: {error}") from error
    looked_at = (look_at_log(fs, each) for each in logs)
    known = strategies_in(fs, (log for log in looked_at if log is not None))
    if len(known) > 1:
        names = " and ".join(map(str, known))
        raise TableRefused(f"{topic} has key sidecars by {names}: give its --strategy")
    return known[0] if known else BY_OFFSET


def opened(said: Mapping[str, Any]) -> Target:
    """Returns the table to write. Raises TableRefused."""
    # Each format has a library of its own.
    match said["table_format"]:
        case ExportFormat.PARQUET:
            from pipeline.export.parquet_target import ParquetTarget

            return ParquetTarget(said["to"])
        case ExportFormat.DELTA:
            from pipeline.export.delta_target import DeltaTarget

            return DeltaTarget(said["to"])
        case _:
            from pipeline.export.iceberg_target import IcebergTarget

            properties = parse_pairs("--catalog-property", said["catalog_property"])
            return IcebergTarget(said["to"], said["catalog"], properties)


@contextmanager
def shown_progress() -> Iterator[ExportProgress]:
    """Show a bar with rate and time left, on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with progress_bars(*columns) as bars:
        task = bars.add_task("last values", total=0)

        def expect(count: int) -> None:
            bars.update(task, total=(bars.tasks[0].total or 0) + count)

        yield ExportProgress(expected=expect, read=lambda count: bars.advance(task, count))


def show(summary: Summary, target: Target, *, seconds: float, as_json: bool) -> None:
    """Print what an export did."""
    if as_json:
        topics = json.loads(summary.cut.to_json())["topics"]
        print_json(
            {
                "table": target.where(),
                "keys": summary.rows,
                "files_written": summary.files_written,
                "files_kept": summary.files_kept,
                "bytes_written": summary.bytes_written,
                "seconds": round(seconds, 3),
                "topics": topics,
            }
        )
        return
    written = count_text(summary.files_written, "file")
    typer.echo(
        f"{count_text(summary.rows, 'key')} in {target.where()}: {written} written"
        f" ({size_text(summary.bytes_written)}), {summary.files_kept} kept, in {seconds:.1f} s"
    )
