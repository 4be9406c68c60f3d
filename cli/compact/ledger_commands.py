"""`kompakt compact ledger ...`: shows and verifies the certificates of cleaning passes.

Without --data-dir a running broker answers over HTTP. With it, the files are read: nothing is changed,
and no lock is taken, so a broker may be using the directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import end, run
from cli.compact.options import DEFAULT_URL, AsJson, OptionalTarget, Url

app = typer.Typer(
    name="ledger",
    help="Show and verify the certificates that cleaning passes leave in a chained ledger.",
    no_args_is_help=True,
)

DataDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        metavar="PATH",
        help="Read the ledger of this data directory (an entry of log.dirs), not a broker's. May be"
        " repeated.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Show at most this many passes.")]


@app.command()
@with_access
def show(
    target: OptionalTarget = None,
    limit: Limit = 20,
    data_dir: DataDirs = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the last passes that changed a log, oldest first: what they replaced, and by what."""
    from cli.compact.ledger import show_passes

    run(lambda: show_passes(url, data_dir, target, limit=limit, as_json=as_json))


@app.command()
@with_access
def at(
    target: Annotated[str, typer.Argument(metavar="TOPIC-N", help="One partition of a topic.")],
    offset: Annotated[int, typer.Argument(min=0, help="An offset of that partition.")],
    limit: Limit = 20,
    data_dir: DataDirs = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the passes that rewrote the segment of an offset.

    A record that cleaning removed went with one of them, or before the ledger began.
    """
    from cli.compact.ledger import show_passes

    run(lambda: show_passes(url, data_dir, target, limit=limit, offset=offset, as_json=as_json))


@app.command()
@with_access
def head(data_dir: DataDirs = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Print the last entry of each ledger with its hash, signed by the data directory's key.

    Keep the JSON elsewhere: `verify --anchor` then shows whether the ledger was rewritten since.
    """
    from cli.compact.ledger import show_heads

    run(lambda: show_heads(url, data_dir, as_json=as_json))


@app.command()
@with_access
def verify(
    data_dir: DataDirs = None,
    anchor: Annotated[
        Path | None,
        typer.Option(
            "--anchor",
            metavar="FILE",
            help="What `ledger head --json` printed earlier: the ledger must still have it.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Follow the chain of certificates, and compute the digest again of each segment that passes wrote.

    Exits with 0 if nothing is wrong, and with 1 if a certificate is damaged or missing, or a segment has
    other bytes. Reads every segment that a pass wrote; a broker does so at its cleaner's pace. Ctrl-C
    stops it.
    """
    from cli.compact.ledger import verify_here, verify_there

    if data_dir:
        end(lambda: verify_here(data_dir, anchor, as_json=as_json))
    run(lambda: verify_there(url, anchor, as_json=as_json))
