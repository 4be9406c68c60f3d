"""`kompakt produce`: sends records from standard input or from files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cleaner.rules.text import count_text, duration_text, size_text
from cli.base.access import with_access
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, end
from cli.base.options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, parse_pair

if TYPE_CHECKING:
    from cli.produce.input_lines import InputLines
    from cli.produce.parse import LineReader
    from cli.produce.send import Destination, Sent

CODECS = ("gzip", "snappy", "lz4", "zstd")
PROGRESS_SECONDS = 0.1
PARTITIONS_SHOWN = 8


@with_access
def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]",
            exists=True,
            dir_okay=False,
            help="Files to read. Without any, standard input is read.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="This text separates key and value in a line. \\t is a tab.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Use this key for every record.")
    ] = None,
    null_value: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A value equal to TEXT is null: a tombstone."),
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Each line is a key. Send tombstones for them.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Lines are JSON, as `kompakt consume --json` prints them."),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Add a header to every record. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="Send to this partition instead of choosing by key."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Send at most this many records per second.")
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="CODEC", help=f"One of none (the default), {', '.join(CODECS)}."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="Give up if the broker is silent for this long."
        ),
    ] = 60.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send one record per line, and print at the end how many are stored.

    The broker acknowledges every record, with acks=all and without duplicates. The first line that is
    not a valid record, or that the broker refuses, ends the command with exit code 1. The lines before
    it are sent.
    """
    from cli.produce.input_lines import InputLines
    from cli.produce.parse import TextFormat, parse_separator, read_json
    from cli.produce.send import Destination

    def work() -> int:
        _check_options(
            json=json, separator=key_separator, key=key, null=null_value, keys=tombstones
        )
        pairs = [parse_pair("--header", text) for text in header or ()]
        text = TextFormat(
            separator=None if key_separator is None else parse_separator(key_separator),
            key=None if key is None else key.encode(),
            null_value=None if null_value is None else null_value.encode(),
            is_keys=tombstones,
            headers=tuple((name, value.encode()) for name, value in pairs),
        )
        destination = Destination(
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            is_compacted=asyncio.run(_is_compacted(bootstrap, topic, partition)),
            compression=_codec(compression),
            rate=rate,
            stall_seconds_max=timeout,
        )
        return _send(InputLines(files or ()), read_json if json else text.read, destination)

    end(work)


def _send(lines: InputLines, read: LineReader, destination: Destination) -> int:
    """Send all lines with a progress bar, and print what is stored."""
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from cli.base.output import progress_bars
    from cli.produce.send import produce as send

    if lines.is_typed:
        typer.echo("type one record per line; end with Ctrl-D", err=True)
    start, sent, next_update = time.monotonic(), None, 0.0
    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if lines.total_bytes is not None:
        columns += [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    with progress_bars(*columns) as bar:
        task = bar.add_task("", total=lines.total_bytes)
        for sent in send(lines, read, destination):
            now = time.monotonic()
            if now >= next_update:
                text = _summary(sent, now - start)
                bar.update(task, description=text, completed=lines.read_bytes)
                next_update = now + PROGRESS_SECONDS
    assert sent is not None
    summary = _summary(sent, time.monotonic() - start)
    typer.echo(f"{destination.topic}: {summary}{_partitions_text(sent)}")
    return 0


def _summary(sent: Sent, seconds: float) -> str:
    """Returns how many records and bytes are stored, and the rate."""
    count = sent.count
    rate = f", {count / seconds:,.0f} records/s" if seconds >= 1 else ""
    stored = f"{count_text(count, 'record')} stored, {size_text(sent.bytes_count)}"
    return f"{stored}, {duration_text(seconds)}{rate}"


def _partitions_text(sent: Sent) -> str:
    """Returns the number of records in each partition, or "" if all went to one."""
    counts = sorted(sent.by_partition.items())
    if len(counts) < 2:
        return ""
    shown = ", ".join(f"{partition}: {count:,}" for partition, count in counts[:PARTITIONS_SHOWN])
    return f" (partitions {shown}{', ...' if len(counts) > PARTITIONS_SHOWN else ''})"


def _check_options(
    *, json: bool, separator: str | None, key: str | None, null: str | None, keys: bool
) -> None:
    """Raise CommandFailed for options that cannot be combined."""
    given = {
        "--json": json,
        "--tombstones": keys,
        "--key-separator": separator is not None,
        "--key": key is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise CommandFailed(EXIT_USAGE, f"{' and '.join(names)} cannot be combined")
    if null is not None and (json or keys):
        raise CommandFailed(EXIT_USAGE, f"--null-value and {names[0]} cannot be combined")
    if separator == "":
        raise CommandFailed(EXIT_USAGE, "--key-separator is empty")


def _codec(name: str | None) -> str | None:
    if name in (None, "none", *CODECS):
        return None if name == "none" else name
    raise CommandFailed(EXIT_USAGE, f"--compression {name}: one of none, {', '.join(CODECS)}")


async def _is_compacted(bootstrap: str, topic: str, partition: int | None) -> bool:
    """Returns whether the topic is compacted, so its records need keys.

    Raises:
        CommandFailed: there is no such topic or partition, or clients cannot reach the broker.
    """
    from cli.base.broker_client import connected
    from cli.base.topic_facts import describe, is_compacted

    async with connected(bootstrap) as client:
        (found,) = await describe(client, [topic])
        count = len(found.partitions)
        if partition is not None and partition >= count:
            raise CommandFailed(
                EXIT_FAILED, f"{topic} has no partition {partition}: it has {count}"
            )
        await client.check_advertised()
        return await is_compacted(client, topic)
