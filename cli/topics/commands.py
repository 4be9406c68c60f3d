"""`kompakt topics ...`: shows, creates, changes and deletes topics."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import confirm, run
from cli.base.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    DryRun,
    Topic,
    Topics,
    parse_pairs,
)
from cli.compact.options import DEFAULT_URL, Url

app = typer.Typer(
    name="topics", help="Show, create, change and delete topics.", no_args_is_help=True
)


@app.command(name="list")
@with_access
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also list internal topics.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics with their cleanup policies, offset counts and sizes."""
    from cli.topics.show import show_list

    run(lambda: show_list(bootstrap, with_internal=internal, as_json=as_json))


@app.command()
@with_access
def describe(
    topics: Topics,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of topics with their start and end offsets, and the topics' settings.

    For compacted topics, also how many records they really have and the offset of the first, and how
    many tombstones still have to go, and when; this asks --url.
    """
    from cli.topics.show import show_topics

    run(lambda: show_topics(bootstrap, url, topics, as_json=as_json))


@app.command()
@with_access
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic's name.")],
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Number of partitions. Default: the broker's num.partitions."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a property of the topic. Repeatable."),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Short for --config cleanup.policy=compact.")
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic already exists.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from cli.topics.change import NewTopic, create_topic

    async def work() -> int:
        pairs = parse_pairs("--config", config)
        if compact:
            pairs.setdefault("cleanup.policy", "compact")
        new = NewTopic(name=topic, partitions=partitions, configs=pairs, dry_run=dry_run)
        return await create_topic(bootstrap, new, if_not_exists=if_not_exists, as_json=as_json)

    run(work)


@app.command()
@with_access
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    from cli.topics.change import delete_topics

    async def work() -> int:
        if not yes:
            confirm(f"Delete {', '.join(topics)} with all records?")
        return await delete_topics(bootstrap, topics, if_exists=if_exists, as_json=as_json)

    run(work)


@app.command(name="add-partitions")
@with_access
def add_partitions(
    topic: Topic,
    to: Annotated[
        int, typer.Option("--to", min=1, metavar="N", help="The new number of partitions.")
    ],
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask for confirmation for a compacted topic."),
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic. This cannot be undone, and keys may move to the new partitions."""
    from cli.topics.change import add_partitions as add

    run(lambda: add(bootstrap, topic, to, is_confirmed=yes, dry_run=dry_run, as_json=as_json))


@app.command(name="delete-records")
@with_access
def delete_records(
    topic: Topic,
    partition: Annotated[int, typer.Option(min=0, help="The partition.")],
    before: Annotated[
        int,
        typer.Option(
            min=-1, metavar="OFFSET", help="Delete the records before this offset; -1: all records."
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete the records of a partition before an offset. Not for compacted topics."""
    from cli.topics.change import delete_records_before

    run(
        lambda: delete_records_before(
            bootstrap, topic, partition=partition, offset=before, as_json=as_json
        )
    )
