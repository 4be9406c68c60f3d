"""`kompakt consume`: the records of a topic, or the last value of each key."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from server.command_end import EXIT_USAGE, CommandFailed, end
from server.command_options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, complete_group
from server.dump_text import NULL


def consume(
    topic: Topic,
    latest: Annotated[
        bool,
        typer.Option(
            "--latest",
            "-l",
            help="The last value of each key that has one: tombstones are applied.",
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            autocompletion=complete_group,
            help="As a member of it: go on where it is, and commit what was printed.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this. Repeatable.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="beginning (as without it), end, an offset, or -N: the last N of each partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="From then on: a date, ms after 1970, or 90m ago."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Up to the first record from then on.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after so many records.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only records of this key.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Print KEY TEXT VALUE."),
    ] = None,
    null_value: Annotated[
        str, typer.Option(metavar="TEXT", help="What stands for a null key or value.")
    ] = NULL,
    as_hex: Annotated[bool, typer.Option("--hex", help="Keys and values in hexadecimal.")] = False,
    details: Annotated[
        bool,
        typer.Option("--details", "-d", help="With partition, offset, time, key and headers."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, for programs.")
    ] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also records of transactions that are not over.")
    ] = False,
    memory: Annotated[
        int,
        typer.Option(metavar="MIB", min=1, help="Of --latest: beyond it the table is on the disk."),
    ] = 256,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Give up when nothing comes for so long, though there is more.",
        ),
    ] = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records, up to the end that the topic has now. Nothing is committed without --group.

    A line a record: the value, or with --key-separator the key too. --latest reads up to the end, then
    prints the table of the keys that have a value, by partition and key, as a compacted log holds them.

    With --group the broker shares partitions out among its members, and --offset (beginning or end)
    only says where it begins that has committed nothing. What was printed may come once more after
    a crash; nothing is left out.
    """
    from server.consume import Printing, Reading, consume_topic
    from server.consume_range import Bounds, parse_begin
    from server.moments import parse_moment

    def work() -> int:
        now_ms = time.time_ns() // 1_000_000
        moments = [
            None if text is None else parse_moment(option, text, now_ms=now_ms)
            for option, text in (("--since", since), ("--until", until))
        ]
        _refuse("--offset and --since", offset is not None and since is not None)
        _refuse("--until and --follow", until is not None and follow)
        _refuse("--json, --details and --hex", as_json + details + as_hex > 1)
        begin = parse_begin(offset or "beginning")
        bounds = Bounds(
            partitions=tuple(partition or ()),
            begin=begin,
            since_ms=moments[0],
            until_ms=moments[1],
            is_committed=not uncommitted,
        )
        if group is not None:
            _refuse("--group and --latest", latest)
            _refuse("--group and --partition", bool(partition))
            _refuse("--group and --since or --until", moments != [None, None])
            _refuse(f"--group and --offset {offset}", isinstance(begin, int))
        printing = Printing(
            separator=key_separator,
            null=null_value,
            is_hex=as_hex,
            is_detailed=details,
            is_json=as_json,
        )
        reading = Reading(
            bootstrap=bootstrap,
            topic=topic,
            group=group,
            bounds=bounds,
            key=None if key is None else key.encode(),
            count_max=maximum,
            is_followed=follow,
            patience_seconds=timeout,
        )
        return consume_topic(reading, printing, latest_memory_mib=memory if latest else None)

    end(work)


def _refuse(options: str, is_given: bool) -> None:
    if is_given:
        raise CommandFailed(EXIT_USAGE, f"{options} do not go together")
