"""`kompakt topics ...`: see, create, change and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from server.command_end import confirm, run
from server.command_options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    DryRun,
    Topic,
    Topics,
    parse_pair,
)

app = typer.Typer(
    name="topics", help="See, create, change and delete topics.", no_args_is_help=True
)


@app.command(name="list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those that brokers keep for themselves.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics with their policies and how many offsets they span."""
    from server.topics_shown import show_list

    run(lambda: show_list(bootstrap, with_internal=internal, as_json=as_json))


@app.command()
def describe(
    topics: Topics, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Show the partitions of topics, where they start and end, and what is set on the topic."""
    from server.topics_shown import show_topics

    run(lambda: show_topics(bootstrap, topics, as_json=as_json))


@app.command()
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic's name.")],
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; the broker's num.partitions without it.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the topic. Repeatable."),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Short for --config cleanup.policy=compact.")
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic alone that is there.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from server.topics_changed import NewTopic, create_topic

    async def work() -> int:
        pairs = dict(parse_pair("--config", text) for text in config or ())
        if compact:
            pairs.setdefault("cleanup.policy", "compact")
        new = NewTopic(name=topic, partitions=partitions, configs=pairs, dry_run=dry_run)
        return await create_topic(bootstrap, new, if_not_exists=if_not_exists, as_json=as_json)

    run(work)


@app.command()
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    from server.topics_changed import delete_topics

    async def work() -> int:
        if not yes:
            confirm(f"Delete {', '.join(topics)} with all records?")
        return await delete_topics(bootstrap, topics, if_exists=if_exists, as_json=as_json)

    run(work)


@app.command(name="add-partitions")
def add_partitions(
    topic: Topic,
    to: Annotated[int, typer.Option("--to", min=1, metavar="N", help="How many it shall have.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, though the topic is compacted.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions. There is no way back, and keys may move to the new ones."""
    from server.topics_changed import add_partitions as add

    run(lambda: add(bootstrap, topic, to, is_confirmed=yes, dry_run=dry_run, as_json=as_json))


@app.command(name="delete-records")
def delete_records(
    topic: Topic,
    partition: Annotated[int, typer.Option(min=0, help="Of this partition.")],
    before: Annotated[
        int, typer.Option(min=-1, metavar="OFFSET", help="-1: everything there is now.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move the start of a partition: records before an offset go. Not on compacted topics."""
    from server.topics_changed import delete_records_before

    run(
        lambda: delete_records_before(
            bootstrap, topic, partition=partition, offset=before, as_json=as_json
        )
    )
