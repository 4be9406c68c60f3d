"""`kompakt transactions ...`: which are open, which hang, and how they end."""

from __future__ import annotations

from typing import Annotated

import typer

from server.command_end import EXIT_USAGE, CommandFailed, run
from server.command_options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    complete_topic,
    complete_transactional_id,
)

app = typer.Typer(
    name="transactions",
    help="See transactions, and end those that hang.",
    no_args_is_help=True,
)

HANGING_AFTER = "15m"
"""As Kafka's tool has it, and transaction.max.timeout.ms."""

LongerThan = typer.Option("--longer-than", metavar="SPAN", help="Only those, such as 90s or 15m.")


@app.command(name="list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state, such as Ongoing."),
    ] = None,
    longer_than: Annotated[str | None, LongerThan] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids with their states."""
    from server.transactions_shown import show_list

    async def work() -> int:
        span = None if longer_than is None else _span(longer_than)
        return await show_list(bootstrap, state or (), span, as_json=as_json)

    run(work)


@app.command()
def describe(
    transactional_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...", help="Transactional ids.", autocompletion=complete_transactional_id
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show where transactions stand, and the partitions that are in them."""
    from server.transactions_shown import show_transactions

    run(lambda: show_transactions(bootstrap, transactional_ids, as_json=as_json))


@app.command(name="find-hanging")
def find_hanging(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC...]", help="Only in these.", autocompletion=complete_topic),
    ] = None,
    longer_than: Annotated[str, LongerThan] = HANGING_AFTER,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    They keep readers of committed records, and the cleaner, from going on.
    """
    from server.transactions_shown import show_hanging

    async def work() -> int:
        return await show_hanging(bootstrap, topics or (), _span(longer_than), as_json=as_json)

    run(work)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="A transactional id.", autocompletion=complete_transactional_id
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-NUMBER", help="In place of an ID: where one hangs."),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Where that begins.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without it nothing is changed.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show which transaction would be aborted; with --execute, abort it.

    By its ID it is aborted in all partitions, and its producer is fenced. One that hangs has no ID.
    """
    from server import transactions_changed

    async def work() -> int:
        if transactional_id is not None and partition is None and start_offset is None:
            return await transactions_changed.abort(
                bootstrap, transactional_id, is_executed=execute, as_json=as_json
            )
        if transactional_id is None and partition is not None and start_offset is not None:
            return await transactions_changed.abort_hanging(
                bootstrap, partition, start_offset, is_executed=execute, as_json=as_json
            )
        raise CommandFailed(EXIT_USAGE, "say which: an ID, or --partition and --start-offset")

    run(work)


def _span(text: str) -> int:
    from server.moments import parse_span

    span = parse_span(text)
    if span is None:
        raise CommandFailed(EXIT_USAGE, f"--longer-than {text}: write a span such as 90s or 15m")
    return span
