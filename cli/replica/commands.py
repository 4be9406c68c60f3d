"""`kompakt replica ...`: follow topics of another cluster, over the HTTP endpoint of this one's
broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import run
from cli.base.options import AsJson
from cli.compact.options import DEFAULT_URL, Url

app = typer.Typer(
    name="replica",
    help="Follow topics of another cluster, Kompakt or Apache Kafka, with the same offsets. A link names"
    " the cluster and the topics; each topic has a mirror here, which only its link writes to.",
    no_args_is_help=True,
)

NO_LIMIT = 0
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="REGEX",
        help="Consumer groups of the source whose committed offsets go along; may be repeated.",
    ),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--bytes-per-second",
        metavar="BYTES",
        min=NO_LIMIT,
        help="How fast the link copies at most; 0: no limit.",
    ),
]
Resync = Annotated[
    str | None,
    typer.Option(
        "--resync",
        metavar="manual|auto",
        help="Whether mirrors that may lack tombstones are copied once more without `resync`. That reads"
        " everything at the source, and takes the space of a second copy.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="LINK", help="The name of a link.")]


@app.command()
@with_access
def create(
    name: Name,
    source: Annotated[
        str, typer.Option("--source", metavar="HOST:PORT,...", help="Brokers of the other cluster.")
    ],
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--source-config",
            metavar="FILE",
            help="Client properties with Kafka's names, to log in there: security.protocol, ssl...",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="A topic; may be repeated.")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="Topics whose whole name matches; may be repeated."
        ),
    ] = None,
    group: Groups = None,
    acls: Annotated[
        bool,
        typer.Option(
            "--acls", help="Create the source's ACLs of these topics here, and remove them."
        ),
    ] = False,
    compaction: Annotated[
        str,
        typer.Option(
            metavar="off|on",
            help="Whether this broker compacts the mirrors of compacted topics. Off, they keep the full"
            " history while the source forgets.",
        ),
    ] = "off",
    resync: Resync = None,
    bytes_per_second: Rate = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Create a link and begin to copy. Its topics must not exist here."""
    from cli.replica.change import NewLink, create_link

    link = NewLink(
        name=name,
        source=source,
        source_config=source_config,
        topics=topic or [],
        patterns=pattern or [],
        groups=group or [],
        takes_acls=acls,
        compaction=compaction,
        resync=resync or "manual",
        bytes_per_second=bytes_per_second or None,
    )
    run(lambda: create_link(url, link, as_json=as_json))


@app.command(name="list")
@with_access
def list_links(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the links: their source, how many partitions they copy, and how far these are behind."""
    from cli.replica.show import show_links

    run(lambda: show_links(url, as_json=as_json))


@app.command()
@with_access
def status(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show the state of each partition that a link copies.

    Exits with 0 only if there are some, and all are copied.
    """
    from cli.replica.show import show_link

    run(lambda: show_link(url, name, as_json=as_json))


@app.command()
@with_access
def alter(
    name: Name,
    bytes_per_second: Rate = None,
    group: Groups = None,
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="No longer take committed offsets along.")
    ] = False,
    resync: Resync = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Change how fast a link copies, which groups go along, or whether it resyncs without you, at once.
    The groups replace those before."""
    from cli.replica.change import alter_link

    changes: dict[str, object] = {}
    if bytes_per_second is not None:
        changes["bytes_per_second"] = bytes_per_second or None
    if group or no_groups:
        changes["groups"] = [] if no_groups else group
    if resync is not None:
        changes["resync"] = resync
    if not changes:
        raise typer.BadParameter("nothing to change: --help lists what can be")
    run(lambda: alter_link(url, name, changes))


@app.command()
@with_access
def pause(name: Name, url: Url = DEFAULT_URL) -> None:
    """Stop to copy, until `resume`. The mirrors stay readable."""
    from cli.replica.change import pause_link

    run(lambda: pause_link(url, name, is_paused=True))


@app.command()
@with_access
def resume(name: Name, url: Url = DEFAULT_URL) -> None:
    """Copy again after `pause`, and retry partitions that have failed."""
    from cli.replica.change import pause_link

    run(lambda: pause_link(url, name, is_paused=False))


@app.command()
@with_access
def verify(
    name: Name,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Compare only this mirror.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="How long each partition may take to get what the source has.",
        ),
    ] = 60.0,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Compare mirrors with their source: the last value of each key, or all records if the topic is not
    compacted. Both sides may be compacted meanwhile.

    Reads the whole topic at the source and here, and says first how much that is. Exits with 0 if all
    partitions are equal, and with 1 if one is different or unknown.
    """
    from cli.replica.verify import verify_link

    run(lambda: verify_link(url, name, topic, wait_seconds=wait, as_json=as_json))


@app.command(name="resync")
@with_access
def resync_partitions(
    name: Name,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only this mirror.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only this partition of the topic."),
    ] = None,
    put_aside: Annotated[
        bool,
        typer.Option(
            "--put-aside",
            help="Keep the old log beside the new one in any case. Needed if it has records that the"
            " source no longer has.",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy partitions that have failed once more, from the source's start on.

    Readers stay on the old log until the new copy is complete, and keep their offsets. The old log is
    put aside unless the source has all of it. Exits with 1 if a partition cannot be copied once more.
    """
    from cli.replica.change import resync_link

    if partition is not None and topic is None:
        raise typer.BadParameter("a partition needs its topic", param_hint="--partition")
    run(lambda: resync_link(url, name, topic, partition, puts_aside=put_aside, as_json=as_json))


@app.command()
@with_access
def promote(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A mirror.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Promote it even if it lacks records of its source."),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a mirror an ordinary topic with its source's configuration. Its link no longer writes to it.

    Refuses while it lacks records, or may lack some. Stop the source's producers first: what they write
    after this is not copied. Transactions that are open in it are aborted.
    """
    from cli.replica.change import promote_mirror

    run(lambda: promote_mirror(url, topic, is_forced=force, as_json=as_json))


@app.command()
@with_access
def failover(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Promote all mirrors of a link, because its source is gone, and list what they lack.

    What the source has acknowledged and not sent is not here.
    """
    from cli.replica.change import fail_over

    run(lambda: fail_over(url, name, as_json=as_json))


@app.command()
@with_access
def delete(name: Name, url: Url = DEFAULT_URL) -> None:
    """Delete a link without mirrors: promote them first."""
    from cli.replica.change import delete_link

    run(lambda: delete_link(url, name))
