"""`kompakt configs ...`: shows and changes settings of topics and running brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, run
from cli.base.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    complete_topic,
    parse_pair,
)
from cli.compact.options import DEFAULT_URL, Url

if TYPE_CHECKING:
    from cli.configs.change import Change, Operation

app = typer.Typer(
    name="configs",
    help="Show and change settings of topics and of a running broker.",
    no_args_is_help=True,
)

OfTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Settings of this topic.", autocompletion=complete_topic),
]
OfBroker = Annotated[bool, typer.Option("--broker", help="Settings of the broker that answers.")]
OfAllBrokers = Annotated[
    bool, typer.Option("--all-brokers", help="Dynamic settings for all brokers.")
]
OfLoggers = Annotated[
    bool, typer.Option("--loggers", help="Log levels of the broker that answers.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Change nothing. Let the broker validate the change; for a topic, also count what"
        " retention and compaction would remove (this asks --url and may read the whole topic).",
    ),
]
AppendPairs = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Append a value to a list. Repeatable."),
]


@app.command()
@with_access
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]", help="Show these settings in detail, with their documentation."
        ),
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also show settings that have their defaults.")
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Also show types and documentation.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show settings, where each value comes from, and what it means."""
    from cli.configs.show import show_configs
    from cli.configs.target import target_of

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        return await show_configs(
            bootstrap, target, names or (), with_defaults=every, with_docs=docs, as_json=as_json
        )

    run(work)


@app.command(name="set")
@with_access
def set_configs(
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE...]", help="The new values.")
    ] = None,
    append: AppendPairs = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Remove a value from a list. Repeatable."),
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Change settings. Applies all changes at once, or none."""
    from cli.configs.change import Operation, change_configs
    from cli.configs.preview import preview_configs
    from cli.configs.target import target_of

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        changes = [
            *_changes(Operation.SET, "", pairs or ()),
            *_changes(Operation.APPEND, "--append", append or ()),
            *_changes(Operation.SUBTRACT, "--subtract", subtract or ()),
        ]
        if not changes:
            raise CommandFailed(
                EXIT_USAGE, "nothing to set: give NAME=VALUE, --append or --subtract"
            )
        if dry_run:
            return await preview_configs(bootstrap, url, target, changes, as_json=as_json)
        return await change_configs(bootstrap, target, changes, as_json=as_json)

    run(work)


@app.command()
@with_access
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings to remove.")],
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Remove settings, so that the broker's configuration or the defaults apply again."""
    from cli.configs.change import Change, Operation, change_configs
    from cli.configs.preview import preview_configs
    from cli.configs.target import target_of

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        changes = [Change(name=name, operation=Operation.DELETE) for name in names]
        if dry_run:
            return await preview_configs(bootstrap, url, target, changes, as_json=as_json)
        return await change_configs(bootstrap, target, changes, as_json=as_json)

    run(work)


def _changes(operation: Operation, option: str, texts: Iterable[str]) -> Iterator[Change]:
    from cli.configs.change import Change

    for text in texts:
        name, value = parse_pair(option, text)
        yield Change(name=name, operation=operation, value=value)
