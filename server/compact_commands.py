"""`kompakt compact ...`: see and steer a running broker's cleaner, over its HTTP listener.

Exit codes are those of `command_end.py`; after Ctrl-C a pass goes on in the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from server.command_end import run

app = typer.Typer(
    name="compact",
    help="See, ask and steer the cleaner of a running broker. TOPIC-N means partition N of TOPIC,"
    " unless there is a topic of that whole name.",
    no_args_is_help=True,
)

Target = Annotated[
    str, typer.Argument(metavar="TOPIC[-N]", help="A topic, or one partition of it.")
]
OptionalTarget = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC[-N]]", help="A topic or one partition; without it, everything."),
]
Url = Annotated[
    str,
    typer.Option("--url", envvar="KOMPAKT_URL", help="The broker's HTTP listener (http.listener)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_URL = "http://127.0.0.1:9644"


@app.command()
def now(
    target: Target,
    force: Annotated[bool, typer.Option("--force", help="Clean it even if it is paused.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Roll and clean TOPIC[-N] now, and wait for the end.

    The dirty ratio does not matter; min.compaction.lag.ms holds. Ctrl-C leaves the pass running.
    """
    from server.compact_follow import clean_now

    run(lambda: clean_now(url, target, force=force, as_json=as_json))


@app.command()
def plan(target: Target, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Say what `now` would do: what dies and why, what is read and written, how long it takes.

    Nothing is changed: the same code runs over the same log, and its output is thrown away.
    Ctrl-C stops it.
    """
    from server.compact_follow import plan as look

    run(lambda: look(url, target, as_json=as_json))


@app.command()
def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what runs and how far it is, what waits, what rests and why, and what was done."""
    from server.compact_output import print_status

    run(lambda: _ask(url, print_status, as_json=as_json))


@app.command()
def explain(
    target: Target,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="K", help="List this key's records that are still on disk."),
    ] = None,
    key_hex: Annotated[
        str | None,
        typer.Option("--key-hex", metavar="HEX", help="The same for a key of any bytes."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Say why TOPIC[-N] is not being compacted, and which command or setting changes that.

    With --key: list the key's records, what supersedes them, and when its tombstone goes. Segments
    without a key sidecar, as the active one, are read as a whole for that; Ctrl-C stops it.
    """
    if key is not None and key_hex is not None:
        raise typer.BadParameter("name one key: --key or --key-hex")
    if key is None and key_hex is None:
        from server.compact_output import print_explanations

        run(lambda: _ask(url, print_explanations, "GET", "/explain", target, as_json=as_json))
    from server.compact_follow import find_key

    query = {"key": key} if key is not None else {"key_hex": str(key_hex)}
    run(lambda: find_key(url, target, query, as_json=as_json))


@app.command()
def digest(
    target: Target,
    end_offset: Annotated[
        int | None,
        typer.Option("--end-offset", min=0, help="Leave out records from this offset on."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Sum the last value of each key of TOPIC[-N] to 128 bits, which cleaning does not change.

    Equal digests of equal offsets are equal tables. Tombstones and records without a key do not
    count. All of the log is read, at the cleaner's pace, and nothing is changed; Ctrl-C stops it.
    """
    from server.compact_follow import digest as look

    run(lambda: look(url, target, end_offset=end_offset, as_json=as_json))


@app.command()
def history(
    target: OptionalTarget = None,
    limit: Annotated[int, typer.Option(min=1, help="Show the last so many passes.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the last passes, newest first; those before a restart and over deleted topics, too."""
    from server.compact_history import show_history

    run(lambda: show_history(url, target, limit=limit, as_json=as_json))


@app.command()
def pause(target: OptionalTarget = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Pause all cleaning, a topic's or a partition's, until it is resumed.

    A running pass stops within a chunk; what it has swapped stays. A restart does not end a pause.
    """
    from server.compact_output import print_paused

    run(lambda: _ask(url, print_paused, "POST", "/pause", target, as_json=as_json))


@app.command()
def resume(target: OptionalTarget = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """End a pause, and the narrower ones within it."""
    from server.compact_output import print_paused

    run(lambda: _ask(url, print_paused, "POST", "/resume", target, as_json=as_json))


async def _ask(
    url: str,
    show: Callable[[dict[str, Any]], None],
    method: str = "GET",
    action: str = "",
    target: str | None = None,
    *,
    query: dict[str, str] | None = None,
    as_json: bool,
) -> int:
    """One request, and its answer shown."""
    from server.command_output import print_json
    from server.compact_client import connected

    async with connected(url) as client:
        if target is None:
            answer = await client.call(method, action, query)
        else:
            answer = await client.call_on(method, target, action, query)
    (print_json if as_json else show)(answer)
    return 0
