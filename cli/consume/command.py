"""`kompakt consume`: the records of a topic, or the last value of each key."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, end
from cli.base.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    PrintedKeySeparator,
    Topic,
    WithDetails,
)
from cli.base.text import NULL
from cli.groups.complete import complete_group


@with_access
def consume(
    topic: Topic,
    latest: Annotated[
        bool,
        typer.Option(
            "--latest",
            "-l",
            help="Print the last value of each key. Keys whose last record is a tombstone are left out.",
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            autocompletion=complete_group,
            help="Join this consumer group: continue at its offsets and commit printed records.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Read only this partition. Repeatable."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="Where to begin: beginning (the default), end, an offset, or -N for the last N"
            " records of each partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="Begin at the first record at or after this time: a date, ms since 1970, or 90m ago.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="Stop before the first record at or after this time."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep reading new records until Ctrl-C.")
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Print only records with this key.")
    ] = None,
    key_separator: PrintedKeySeparator = None,
    null_value: Annotated[
        str, typer.Option(metavar="TEXT", help="Print this for a null key or value.")
    ] = NULL,
    as_hex: Annotated[
        bool, typer.Option("--hex", help="Print keys and values in hexadecimal.")
    ] = False,
    details: WithDetails = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
    ] = False,
    arrow: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="With --latest: write an Arrow file (Feather 2) and print nothing. Needs pyarrow.",
        ),
    ] = None,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Also print records of open and aborted transactions."),
    ] = False,
    memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", min=1, help="Memory for --latest. A larger table spills to disk."
        ),
    ] = 256,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Give up after this long without progress before the end.",
        ),
    ] = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic, up to its current end. Commits nothing without --group.

    Prints one line per record: the value, or the key and the value with --key-separator. --latest reads
    up to the end and then prints a table of the keys that have a value, ordered by partition and key:
    what a fully compacted log holds.

    With --group the broker assigns partitions to the members, and --offset (beginning or end) applies
    only where the group has no committed offset. After a crash some records may be printed again, but
    none is skipped.
    """
    from cli.base.moments import parse_moment
    from cli.consume.follow import PrintOptions, ReadOptions, consume_topic
    from cli.consume.range import Bounds, parse_begin

    def work() -> int:
        now_ms = time.time_ns() // 1_000_000
        moments = [
            None if text is None else parse_moment(option, text, now_ms=now_ms)
            for option, text in (("--since", since), ("--until", until))
        ]
        _reject_together("--offset and --since", offset is not None and since is not None)
        _reject_together("--until and --follow", until is not None and follow)
        _reject_together("--json, --details and --hex", as_json + details + as_hex > 1)
        if arrow is not None:
            _reject_arrow(
                latest=latest, follows=follow, prints=as_json + details + as_hex, text=key_separator
            )
        begin = parse_begin(offset or "beginning")
        bounds = Bounds(
            partitions=tuple(partition or ()),
            begin=begin,
            since_ms=moments[0],
            until_ms=moments[1],
            is_committed=not uncommitted,
        )
        if group is not None:
            _reject_together("--group and --latest", latest)
            _reject_together("--group and --partition", bool(partition))
            _reject_together("--group and --since or --until", moments != [None, None])
            _reject_together(f"--group and --offset {offset}", isinstance(begin, int))
        printing = PrintOptions(
            separator=key_separator,
            null=null_value,
            is_hex=as_hex,
            is_detailed=details,
            is_json=as_json,
        )
        reading = ReadOptions(
            bootstrap=bootstrap,
            topic=topic,
            group=group,
            bounds=bounds,
            key=None if key is None else key.encode(),
            count_max=maximum,
            is_followed=follow,
            stall_seconds_max=timeout,
        )
        return consume_topic(
            reading, printing, latest_memory_mib=memory if latest else None, arrow=arrow
        )

    end(work)


def _reject_arrow(*, latest: bool, follows: bool, prints: int, text: str | None) -> None:
    """Raise CommandFailed if --arrow does not go together with the other options, or needs pyarrow."""
    from cli.consume.arrow_file import check_arrow

    if not latest:
        raise CommandFailed(EXIT_USAGE, "--arrow needs --latest")
    _reject_together("--arrow and --follow", follows)
    _reject_together("--arrow and --json, --details, --hex or -K", prints > 0 or text is not None)
    check_arrow()


def _reject_together(options: str, are_given: bool) -> None:
    if are_given:
        raise CommandFailed(EXIT_USAGE, f"{options} cannot be combined")
