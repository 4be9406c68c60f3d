"""Options and shell completions that several commands of `kompakt` share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.base.command_end import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from cli.base.broker_client import BrokerClient

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "KOMPAKT_BOOTSTRAP_SERVER"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="Address of the broker's Kafka listener.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the broker validate the request without applying it.")
]
PrintedKeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help="Print the key, this text and the value."
    ),
]
WithDetails = Annotated[
    bool,
    typer.Option("--details", "-d", help="Also print partition, offset, time, key and headers."),
]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        allow_dash=True,
        help="A file with one key a line; - is standard input.",
    ),
]
KeysAreHex = Annotated[bool, typer.Option("--hex", help="Keys are in hexadecimal digits.")]
KeysAreBase64 = Annotated[bool, typer.Option("--base64", help="Keys are in base64.")]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the topics that start with `incomplete`: none if no broker answers."""
    from cli.base.topic_facts import topic_names

    return complete_names(context, incomplete, topic_names)


def complete_names(
    context: typer.Context,
    incomplete: str,
    list_names: Callable[[BrokerClient], Awaitable[list[str]]],
) -> list[str]:
    """Returns the names of a broker's that start with `incomplete`: none if no broker answers."""
    from cli.base.broker_client import connected

    async def all_names() -> list[str]:
        given = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
        async with connected(given or DEFAULT_BOOTSTRAP) as client:
            return await list_names(client)

    try:
        return [name for name in asyncio.run(all_names()) if name.startswith(incomplete)]
    except CommandFailed:
        return []


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic name.", autocompletion=complete_topic)
]
Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Topic names.", autocompletion=complete_topic),
]


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raises CommandFailed if the text has another form."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandFailed(EXIT_USAGE, f"{option} {text}: write NAME=VALUE".lstrip())
    return name.strip(), value


def parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE of an option that can be repeated. Raises CommandFailed as `parse_pair`."""
    return dict(parse_pair(option, text) for text in texts or ())


def names_in(given: Sequence[str] | None) -> list[str] | None:
    """Returns the topics that an option names, several with commas; None for all."""
    return [name for each in given for name in each.split(",") if name] if given else None
