"""Options that commands of `kompakt` share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from server.command_end import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from server.broker_client import BrokerClient

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "KOMPAKT_BOOTSTRAP_SERVER"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="The broker's Kafka listener.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the broker check it, and change nothing.")
]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin so; none where no broker answers."""
    from server.topic_facts import topic_names

    return _names(context, incomplete, topic_names)


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin so; none where no broker answers."""
    from server.group_facts import group_names

    return _names(context, incomplete, group_names)


def complete_transactional_id(context: typer.Context, incomplete: str) -> list[str]:
    """The transactional ids that begin so; none where no broker answers."""
    from server.transaction_facts import transactional_ids

    return _names(context, incomplete, transactional_ids)


def _names(
    context: typer.Context,
    incomplete: str,
    ask: Callable[[BrokerClient], Awaitable[list[str]]],
) -> list[str]:
    from server.broker_client import connected

    async def names() -> list[str]:
        given = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
        async with connected(given or DEFAULT_BOOTSTRAP) as client:
            return await ask(client)

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except CommandFailed:
        return []


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic.", autocompletion=complete_topic)
]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="Topics.", autocompletion=complete_topic)
]


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """A text of the form NAME=VALUE. Raises CommandFailed."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandFailed(EXIT_USAGE, f"{option} {text}: write NAME=VALUE".lstrip())
    return name.strip(), value
