"""`kompakt acls ...`: shows and changes who may do what, and explains a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import confirm, run
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, complete_topic

if TYPE_CHECKING:
    from cli.acls.patterns import Given

app = typer.Typer(
    name="acls",
    help="Show and change which clients may do what, and explain why one may or may not.",
    no_args_is_help=True,
)

OfTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="A topic; * is every topic.", autocompletion=complete_topic),
]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", help="A consumer group.")]
OfTransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", help="A transactional id.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
IsPrefix = Annotated[
    bool, typer.Option("--prefixed", help="Every resource whose name begins with the given one.")
]
Host = Annotated[str, typer.Option(help="The client's address; * is every address.")]
Principals = Annotated[list[str] | None, typer.Option(metavar="User:NAME", help="Repeatable.")]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="OPERATION",
        help="Read, Write, Create, Describe, ... or All. Repeatable.",
    ),
]


def _given(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    *,
    is_prefixed: bool = False,
) -> Given:
    from cli.acls.patterns import Given

    return Given(
        topic=topic,
        group=group,
        transactional_id=transactional_id,
        cluster=cluster,
        is_prefixed=is_prefixed,
    )


@app.command(name="list")
@with_access
def list_acls(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransactionalId = None,
    cluster: OfCluster = False,
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Only ACLs of this principal.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List ACLs: all, or those that apply to a resource, also by a prefix or *."""
    from cli.acls.show import show_acls

    given = _given(topic, group, transactional_id, cluster)
    run(lambda: show_acls(bootstrap, given, principal, as_json=as_json))


@app.command()
@with_access
def add(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransactionalId = None,
    cluster: OfCluster = False,
    prefixed: IsPrefix = False,
    allow: Principals = None,
    deny: Principals = None,
    operation: Operations = None,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Allow or deny principals operations on a resource. Takes effect at once."""
    from cli.acls.change import add_acls
    from cli.acls.patterns import acls_of

    async def work() -> int:
        given = _given(topic, group, transactional_id, cluster, is_prefixed=prefixed)
        acls = acls_of(given, allow or (), deny or (), operation or (), host)
        return await add_acls(bootstrap, acls, as_json=as_json)

    run(work)


@app.command()
@with_access
def remove(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransactionalId = None,
    cluster: OfCluster = False,
    prefixed: IsPrefix = False,
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Only ACLs of this principal.")
    ] = None,
    operation: Operations = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove the ACLs of a resource. Shows them first, and asks."""
    from cli.acls.change import remove_acls
    from cli.acls.patterns import removal_filters

    async def work() -> int:
        given = _given(topic, group, transactional_id, cluster, is_prefixed=prefixed)
        filters = removal_filters(given, principal, operation or ())
        ask = (lambda _: None) if yes else confirm
        return await remove_acls(bootstrap, filters, ask, as_json=as_json)

    run(work)


@app.command()
@with_access
def check(
    principal: Annotated[str, typer.Argument(metavar="User:NAME", help="Who asks.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Read, Write, ...")],
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransactionalId = None,
    cluster: OfCluster = False,
    host: Annotated[str, typer.Option(help="The client's address.")] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Say whether a principal may do something, and by which rule. Exits with 1 if not."""
    from cli.acls.check import check_permission

    given = _given(topic, group, transactional_id, cluster)
    run(
        lambda: check_permission(bootstrap, given, principal, operation, host=host, as_json=as_json)
    )
