"""`kompakt configs ...`: see and change the settings of topics and brokers while they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from server.command_end import EXIT_USAGE, CommandFailed, run
from server.command_options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    DryRun,
    complete_topic,
    parse_pair,
)

if TYPE_CHECKING:
    from server.configs_changed import Change, Operation

app = typer.Typer(
    name="configs",
    help="See and change settings of topics and brokers while they run.",
    no_args_is_help=True,
)

OfTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Of this topic.", autocompletion=complete_topic),
]
OfBroker = Annotated[bool, typer.Option("--broker", help="Of the broker that answers.")]
OfAllBrokers = Annotated[
    bool, typer.Option("--all-brokers", help="What was set, while running, for all brokers.")
]
OfLoggers = Annotated[
    bool, typer.Option("--loggers", help="How much the loggers of the broker that answers tell.")
]
Pairs = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="To a list. Repeatable.")
]


@app.command()
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Settings to tell all of, documentation too."),
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    every: Annotated[bool, typer.Option("--all", help="Also what is left at its default.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="With types and documentation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show settings, where each value comes from, and what it means."""
    from server.config_target import target_of
    from server.configs_shown import show_configs

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        return await show_configs(
            bootstrap, target, names or (), with_defaults=every, with_docs=docs, as_json=as_json
        )

    run(work)


@app.command(name="set")
def set_configs(
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE...]", help="The new values.")
    ] = None,
    append: Pairs = None,
    subtract: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="From a list. Repeatable.")
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings; all of them hold at once, or none does."""
    from server.config_target import target_of
    from server.configs_changed import Operation, change_configs

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        changes = [
            *_changes(Operation.SET, "", pairs or ()),
            *_changes(Operation.APPEND, "--append", append or ()),
            *_changes(Operation.SUBTRACT, "--subtract", subtract or ()),
        ]
        if not changes:
            raise CommandFailed(EXIT_USAGE, "say what to set: NAME=VALUE, --append or --subtract")
        return await change_configs(bootstrap, target, changes, dry_run=dry_run, as_json=as_json)

    run(work)


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings.")],
    topic: OfTopic = None,
    broker: OfBroker = False,
    all_brokers: OfAllBrokers = False,
    loggers: OfLoggers = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Take settings back: what holds then is the broker's configuration or a default."""
    from server.config_target import target_of
    from server.configs_changed import Change, Operation, change_configs

    async def work() -> int:
        target = target_of(topic=topic, broker=broker, all_brokers=all_brokers, loggers=loggers)
        changes = [Change(name=name, operation=Operation.DELETE) for name in names]
        return await change_configs(bootstrap, target, changes, dry_run=dry_run, as_json=as_json)

    run(work)


def _changes(operation: Operation, option: str, texts: Iterable[str]) -> Iterator[Change]:
    from server.configs_changed import Change

    for text in texts:
        name, value = parse_pair(option, text)
        yield Change(name=name, operation=operation, value=value)
