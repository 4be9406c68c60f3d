"""`kompakt compact ...`: inspects and controls the cleaner of a running broker over HTTP.

`command_end.py` lists the exit codes. After Ctrl-C a cleaning pass continues in the broker; `cancel`
stops it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from cli.base.access import with_access
from cli.base.command_end import run
from cli.compact.ledger_commands import app as ledger_app
from cli.compact.options import DEFAULT_URL, AsJson, OptionalTarget, Url

app = typer.Typer(
    name="compact",
    help="Inspect and control the cleaner of a running broker. TOPIC-N means partition N of TOPIC,"
    " unless there is a topic with that full name.",
    no_args_is_help=True,
)
app.add_typer(ledger_app)

Target = Annotated[
    str, typer.Argument(metavar="TOPIC[-N]", help="A topic, or one partition of it.")
]


@app.command()
@with_access
def now(
    target: Target,
    force: Annotated[
        bool, typer.Option("--force", help="Clean even if cleaning is paused.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Roll the active segment of TOPIC[-N], clean it now, and wait until that is done.

    Ignores the dirty ratio, but respects min.compaction.lag.ms. Ctrl-C leaves the pass running;
    `cancel` stops it.
    """
    from cli.compact.follow import clean_now

    run(lambda: clean_now(url, target, force=force, as_json=as_json))


@app.command()
@with_access
def plan(target: Target, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what `now` would do: which records it drops and why, its I/O and how long it takes.

    Changes nothing: the broker runs the same code over the same log and discards the output.
    Ctrl-C stops it.
    """
    from cli.compact.follow import plan as run_plan

    run(lambda: run_plan(url, target, as_json=as_json))


@app.command()
@with_access
def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show running passes and their progress, the queue, quarantined partitions and the last passes."""
    from cli.compact.output import print_status

    run(lambda: _ask(url, print_status, as_json=as_json))


@app.command()
@with_access
def explain(
    target: Target,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="K", help="List the records of this key that are on disk."),
    ] = None,
    key_hex: Annotated[
        str | None,
        typer.Option("--key-hex", metavar="HEX", help="The same for a key given in hexadecimal."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Explain why TOPIC[-N] is not being compacted, and which command or setting changes that.

    With --key: list the key's records, which records supersede them, and when its tombstone is removed.
    This reads segments without a key sidecar, such as the active one, completely. Ctrl-C stops it.
    """
    if key is not None and key_hex is not None:
        raise typer.BadParameter("use either --key or --key-hex")
    if key is None and key_hex is None:
        from cli.compact.output import print_explanations

        run(lambda: _ask(url, print_explanations, "GET", "/explain", target, as_json=as_json))
    from cli.compact.follow import find_key

    query = {"key": key} if key is not None else {"key_hex": str(key_hex)}
    run(lambda: find_key(url, target, query, as_json=as_json))


@app.command()
@with_access
def digest(
    target: Target,
    end_offset: Annotated[
        int | None,
        typer.Option("--end-offset", min=0, help="Ignore records at or above this offset."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Compute a 128-bit digest of the last value of each key of TOPIC[-N]. Cleaning does not change it.

    If two digests over the same offsets are equal, the tables are equal. Tombstones and records without
    a key do not count. Reads the whole log at the cleaner's pace and changes nothing. Ctrl-C stops it.
    """
    from cli.compact.follow import digest as run_digest

    run(lambda: run_digest(url, target, end_offset=end_offset, as_json=as_json))


@app.command()
@with_access
def keys(
    target: Target,
    top: Annotated[int, typer.Option("--top", min=1, max=100, help="List so many hot keys.")] = 10,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="The same as TOPIC-N.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Count the keys of TOPIC[-N]: live and deleted ones, those with most records, and how they grow.

    Needs Read on the topic, because it shows keys. Reads the key sidecars, and completely the segments
    without one, such as the active one, at the cleaner's pace; changes nothing. Ctrl-C stops it.
    """
    from cli.compact.keys import count_keys

    run(lambda: count_keys(url, target, partition, top=top, as_json=as_json))


@app.command()
@with_access
def history(
    target: OptionalTarget = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many passes.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the last passes, newest first, including those before a restart or over deleted topics."""
    from cli.compact.history import show_history

    run(lambda: show_history(url, target, limit=limit, as_json=as_json))


@app.command()
@with_access
def undo(
    target: Target,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[PASS]", min=1, help="The pass to undo. Without it: list them."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Put back what a pass over TOPIC-N has replaced, and pause the cleaning of the topic.

    The log is then as before the pass, with what was appended since. Passes can be undone for
    compaction.undo.ms, the newest first. Without PASS: show which passes of TOPIC[-N] can be undone, and
    until when.
    """
    from cli.compact.undo import print_kept, print_undone

    if number is None:
        run(lambda: _ask(url, print_kept, "GET", "/undo", target, as_json=as_json))
    query = {"pass": str(number)}
    run(lambda: _ask(url, print_undone, "POST", "/undo", target, query=query, as_json=as_json))


@app.command()
@with_access
def cancel(target: Target, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Stop what the cleaner does with TOPIC[-N], or was asked to do, such as passes and plans.

    A pass stops within a chunk and keeps the segments that it has already swapped; nothing else
    changes. After half a minute the cleaner may start again: `pause` keeps it off.
    """
    from cli.compact.output import print_cancelled

    run(lambda: _ask(url, print_cancelled, "POST", "/cancel", target, as_json=as_json))


@app.command()
@with_access
def pause(target: OptionalTarget = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Pause the cleaning of a topic, a partition or everything until it is resumed.

    A running pass stops within a chunk and keeps the segments that it has already swapped. The pause
    outlives a restart.
    """
    from cli.compact.output import print_paused

    run(lambda: _ask(url, print_paused, "POST", "/pause", target, as_json=as_json))


@app.command()
@with_access
def resume(target: OptionalTarget = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """End a pause and all narrower ones: resuming a topic also resumes its partitions."""
    from cli.compact.output import print_paused

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
    """Send a request and print its answer."""
    from cli.base.output import print_json
    from cli.compact.client import connected

    async with connected(url) as client:
        if target is None:
            answer = await client.call(method, action, query)
        else:
            answer = await client.call_on(method, target, action, query)
    (print_json if as_json else show)(answer)
    return 0
