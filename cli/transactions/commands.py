"""`kompakt transactions ...`: lists transactions, finds hanging ones and aborts them."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, run
from cli.base.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    complete_names,
    complete_topic,
)

app = typer.Typer(
    name="transactions",
    help="Inspect transactions, and abort those that hang.",
    no_args_is_help=True,
)

HANGING_AFTER = "15m"
"""The default of Kafka's tool and of transaction.max.timeout.ms."""

LongerThan = typer.Option(
    "--longer-than", metavar="SPAN", help="Only those older than this, such as 90s or 15m."
)


def complete_transactional_id(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the transactional ids that start with `incomplete`: none if no broker answers."""
    # Imported late: what asks the broker would slow down every command's start.
    from cli.transactions.facts import transactional_ids

    return complete_names(context, incomplete, transactional_ids)


@app.command(name="list")
@with_access
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only those in this state, such as Ongoing. Repeatable.",
        ),
    ] = None,
    longer_than: Annotated[str | None, LongerThan] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids with their states."""
    from cli.transactions.show import show_list

    async def work() -> int:
        span = None if longer_than is None else _span(longer_than)
        return await show_list(bootstrap, state or (), span, as_json=as_json)

    run(work)


@app.command()
@with_access
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
    """Show the state and the partitions of transactions."""
    from cli.transactions.show import show_transactions

    run(lambda: show_transactions(bootstrap, transactional_ids, as_json=as_json))


@app.command(name="find-hanging")
@with_access
def find_hanging(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC...]", help="Search only these.", autocompletion=complete_topic
        ),
    ] = None,
    longer_than: Annotated[str, LongerThan] = HANGING_AFTER,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    They block consumers with read_committed, and the cleaner.
    """
    from cli.transactions.show import show_hanging

    async def work() -> int:
        return await show_hanging(bootstrap, topics or (), _span(longer_than), as_json=as_json)

    run(work)


@app.command()
@with_access
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="A transactional id.", autocompletion=complete_transactional_id
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC-NUMBER", help="Instead of an ID: the partition of a hanging transaction."
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="OFFSET", help="The start offset of the hanging transaction."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Abort it. Without this option nothing is changed.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show which transaction would be aborted; with --execute, abort it.

    Given an ID, this aborts the transaction in all partitions and fences its producer. A hanging
    transaction has no ID.
    """
    from cli.transactions import abort as transactions_changed

    async def work() -> int:
        if transactional_id is not None and partition is None and start_offset is None:
            return await transactions_changed.abort(
                bootstrap, transactional_id, is_executed=execute, as_json=as_json
            )
        if transactional_id is None and partition is not None and start_offset is not None:
            return await transactions_changed.abort_hanging(
                bootstrap, partition, start_offset, is_executed=execute, as_json=as_json
            )
        raise CommandFailed(EXIT_USAGE, "give either an ID, or --partition and --start-offset")

    run(work)


def _span(text: str) -> int:
    from cli.base.moments import parse_span

    span = parse_span(text)
    if span is None:
        raise CommandFailed(EXIT_USAGE, f"--longer-than {text}: write a span such as 90s or 15m")
    return span
