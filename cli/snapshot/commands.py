"""`kompakt snapshot ...`: snapshots of topics at one moment, made by a running broker, over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import end, run
from cli.base.moments import EXAMPLES
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from cli.compact.options import DEFAULT_URL, Url

app = typer.Typer(
    name="snapshot",
    help="Make, list, compare and drop snapshots of topics at one moment, of a running broker.",
    no_args_is_help=True,
)


def complete_id(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of the broker's snapshots."""
    from cli.snapshot.snapshots import ids

    url = context.params.get("url") or DEFAULT_URL
    return [each for each in ids(url) if each.startswith(incomplete)]


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A snapshot; see kompakt snapshot list.", autocompletion=complete_id
    ),
]


@app.command()
@with_access
def create(
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            "--topic",
            metavar="TOPIC,...",
            help="Only these topics, and the committed offsets and transactions. Repeatable. Without it:"
            " all topics.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"As they were at an earlier time, unless cleaning has removed it: {EXAMPLES}. Then"
            " without offsets and transactions.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a snapshot: all topics as they are at one moment. Clients do not wait for it.

    It takes no space at first: it shares files with the topics. It keeps what passes and retention
    remove from them later. Ctrl-C ends the waiting, not the snapshot.
    """
    from cli.snapshot.snapshots import create_snapshot

    run(lambda: create_snapshot(url, topics or [], at, as_json=as_json))


@app.command("list")
@with_access
def list_snapshots(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the snapshots, the oldest first, with what is freed if one is dropped.

    Exit code 1: one of them is not complete.
    """
    from cli.snapshot.snapshots import list_all

    run(lambda: list_all(url, as_json=as_json))


@app.command()
@with_access
def show(snapshot: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show a snapshot with its partitions and their offsets.

    Exit code 1: it is not complete.
    """
    from cli.snapshot.snapshots import show_snapshot

    run(lambda: show_snapshot(url, snapshot, as_json=as_json))


@app.command()
@with_access
def drop(
    snapshot: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Drop a snapshot: remove its files. Nobody can read it afterwards."""
    from cli.snapshot.snapshots import drop_snapshot

    run(lambda: drop_snapshot(url, snapshot, is_confirmed=yes, as_json=as_json))


@app.command()
@with_access
def diff(
    before: Id,
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic to compare.")],
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A later snapshot; without it, the topic as it is now.",
            autocompletion=complete_id,
        ),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print only how many keys differ.")
    ] = False,
    memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", min=1, help="Memory for each state. A larger one spills to disk."
        ),
    ] = 128,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Give up after this long without progress."),
    ] = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print the keys of a topic whose values differ between two snapshots, or between one and now.

    + is a key that was added, ~ one with another value or other headers, - one that was removed. Both
    states are read as a read-committed consumer reads them.
    """
    from cli.snapshot.diff import Comparison, print_differences

    comparison = Comparison(
        bootstrap=bootstrap,
        topic=topic,
        before=before,
        after=after,
        memory_mib=memory,
        stall_seconds_max=timeout,
    )
    end(lambda: print_differences(comparison, is_json=as_json, is_summary=summary))
