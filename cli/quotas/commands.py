"""`kompakt quotas ...`: lists, sets and removes quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, run
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, parse_pair

app = typer.Typer(
    name="quotas",
    help="List, set and remove quotas of users, client ids and addresses.",
    no_args_is_help=True,
)

OfUser = Annotated[str | None, typer.Option("--of-user", "-u", help="The quotas of this user.")]
OfClientId = Annotated[
    str | None,
    typer.Option(
        "--of-client-id", "-c", help="Of this client id; with --of-user, of this user's only."
    ),
]
OfIp = Annotated[str | None, typer.Option("--of-ip", help="Of this address.")]
OfDefaults = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="TYPE",
        help="Of each user, client-id or ip without an own quota. Repeatable.",
    ),
]


@app.command(name="list")
@with_access
def list_quotas(
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    default: OfDefaults = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List quotas: all, or those of one user, client id or address."""
    from cli.quotas.entity import entity_of
    from cli.quotas.show import show_quotas

    async def work() -> int:
        entity = entity_of(user=user, client_id=client_id, ip=ip, defaults=default or ())
        return await show_quotas(bootstrap, entity, as_json=as_json)

    run(work)


@app.command(name="set")
@with_access
def set_quotas(
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE...",
            help="producer_byte_rate, consumer_byte_rate (bytes a second), request_percentage,"
            " controller_mutation_rate (partitions a second); for addresses"
            " connection_creation_rate (connections a second).",
        ),
    ],
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    default: OfDefaults = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set quotas. They apply at once, also to open connections."""
    from cli.quotas.change import change_quotas
    from cli.quotas.entity import entity_of

    async def work() -> int:
        entity = entity_of(user=user, client_id=client_id, ip=ip, defaults=default or ())
        changes = {name: _number(name, text) for name, text in _pairs(pairs)}
        return await change_quotas(bootstrap, entity, changes, dry_run=dry_run, as_json=as_json)

    run(work)


@app.command()
@with_access
def remove(
    names: Annotated[list[str], typer.Argument(metavar="QUOTA...", help="Quotas to remove.")],
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    default: OfDefaults = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove quotas, so that less specific ones apply again, or none."""
    from cli.quotas.change import change_quotas
    from cli.quotas.entity import entity_of

    async def work() -> int:
        entity = entity_of(user=user, client_id=client_id, ip=ip, defaults=default or ())
        changes: dict[str, float | None] = dict.fromkeys(names)
        return await change_quotas(bootstrap, entity, changes, dry_run=dry_run, as_json=as_json)

    run(work)


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    return [parse_pair("", text) for text in texts]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandFailed(EXIT_USAGE, f"{name}={text}: write a number") from None
