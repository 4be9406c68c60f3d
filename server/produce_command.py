"""`kompakt produce`: records from standard input or files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cleaner.text import count_text, duration_text, size_text
from server.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, end
from server.command_options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, parse_pair

if TYPE_CHECKING:
    from server.input_lines import InputLines
    from server.produce_input import LineReader
    from server.produce_records import Destination, Sent

CODECS = ("gzip", "snappy", "lz4", "zstd")
LOOK_SECONDS = 0.1
PARTITIONS_SHOWN = 8


def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]",
            exists=True,
            dir_okay=False,
            help="Read these; standard input without them.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE; \\t is a tab."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of every record.")] = None,
    null_value: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A value of just TEXT is null: a tombstone."),
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Lines are keys, and their values are null.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Lines are JSON, as `kompakt consume --json` prints it.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of every record. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Instead of the key's choice.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="At most so many records a second.")
    ] = None,
    compression: Annotated[
        str | None, typer.Option(metavar="CODEC", help=f"{', '.join(CODECS)}; none without it.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="Give up when the broker is silent for so long."
        ),
    ] = 60.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send a record a line, and say what is stored when the lines are over.

    Every record is acknowledged by the broker, with acks=all and without duplicates. The first line
    that is no record, or that the broker refuses, ends it with exit code 1; lines before it are sent.
    """
    from server.input_lines import InputLines
    from server.produce_input import TextFormat, parse_separator, read_json
    from server.produce_records import Destination

    def work() -> int:
        _refuse_both(json=json, separator=key_separator, key=key, null=null_value, keys=tombstones)
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
            patience_seconds=timeout,
        )
        return _send(InputLines(files or ()), read_json if json else text.read, destination)

    end(work)


def _send(lines: InputLines, read: LineReader, destination: Destination) -> int:
    """Send all, show how far it is, and say what is stored."""
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from server.command_output import progress_bars
    from server.produce_records import produce as send

    if lines.is_typed:
        typer.echo("a line is a record; Ctrl-D ends", err=True)
    start, sent, next_look = time.monotonic(), None, 0.0
    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if lines.total_bytes is not None:
        columns += [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    with progress_bars(*columns) as bar:
        task = bar.add_task("", total=lines.total_bytes)
        for sent in send(lines, read, destination):
            now = time.monotonic()
            if now >= next_look:
                told = _told(sent, now - start)
                bar.update(task, description=told, completed=lines.read_bytes)
                next_look = now + LOOK_SECONDS
    assert sent is not None
    typer.echo(f"{destination.topic}: {_told(sent, time.monotonic() - start)}{_places(sent)}")
    return 0


def _told(sent: Sent, seconds: float) -> str:
    """How much, and how fast."""
    count = sent.count
    rate = f", {count / seconds:,.0f} records/s" if seconds >= 1 else ""
    stored = f"{count_text(count, 'record')} stored, {size_text(sent.bytes_count)}"
    return f"{stored}, {duration_text(seconds)}{rate}"


def _places(sent: Sent) -> str:
    """In which partitions, where there are several."""
    counts = sorted(sent.by_partition.items())
    if len(counts) < 2:
        return ""
    shown = ", ".join(f"{partition}: {count:,}" for partition, count in counts[:PARTITIONS_SHOWN])
    return f" (partitions {shown}{', ...' if len(counts) > PARTITIONS_SHOWN else ''})"


def _refuse_both(
    *, json: bool, separator: str | None, key: str | None, null: str | None, keys: bool
) -> None:
    """Refuse options of which one leaves the other no meaning."""
    given = {
        "--json": json,
        "--tombstones": keys,
        "--key-separator": separator is not None,
        "--key": key is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise CommandFailed(EXIT_USAGE, f"{' and '.join(names)} do not go together")
    if null is not None and (json or keys):
        raise CommandFailed(EXIT_USAGE, f"--null-value and {names[0]} do not go together")
    if separator == "":
        raise CommandFailed(EXIT_USAGE, "--key-separator is empty")


def _codec(name: str | None) -> str | None:
    if name in (None, "none", *CODECS):
        return None if name == "none" else name
    raise CommandFailed(EXIT_USAGE, f"--compression {name}: one of none, {', '.join(CODECS)}")


async def _is_compacted(bootstrap: str, topic: str, partition: int | None) -> bool:
    """Whether its records need keys. Raises CommandFailed: there is no such topic or partition."""
    from server.broker_client import connected
    from server.topic_facts import describe, is_compacted

    async with connected(bootstrap) as client:
        (found,) = await describe(client, [topic])
        count = len(found.partitions)
        if partition is not None and partition >= count:
            raise CommandFailed(
                EXIT_FAILED, f"{topic} has no partition {partition}: it has {count}"
            )
        await client.check_advertised()
        return await is_compacted(client, topic)
