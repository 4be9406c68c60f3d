"""The options of `kompakt standby` and `kompakt standby status`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, end, run
from cli.base.options import AsJson
from server.config.listeners.addresses import HttpListener, parse_http_listener
from storage.formats.config_property import ConfigError

HTTP = "127.0.0.1:9646"

app = typer.Typer(
    name="standby",
    help="Follow a broker's metadata, offsets and transactions from another process or machine.",
    invoke_without_command=True,
)


@app.callback()
@with_access
def standby(
    context: typer.Context,
    of: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The broker to follow: its listener of inter.broker.listener.name.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the copy is kept. Each standby needs its own."),
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where its status and its metrics are served; empty for nowhere.",
        ),
    ] = HTTP,
    as_json: AsJson = False,
) -> None:
    """Follow a broker's metadata until SIGTERM or Ctrl-C.

    Keeps a copy of the broker's topics, configurations, ACLs and users in DIR, and of its committed
    offsets, groups and transactions. Prints a line when its state changes, and while it downloads a
    snapshot.
    """
    if context.invoked_subcommand is None:
        end(lambda: _follow(of, data, http, as_json=as_json))


def _follow(of: str | None, data: Path | None, http: str, *, as_json: bool) -> int:
    if of is None or data is None:
        raise CommandFailed(EXIT_USAGE, "standby needs --of HOST:PORT and --data DIR")
    from cli.base.broker_client import parse_address
    from cli.standby.run import StandbyOptions, run_standby

    parse_address(of)
    options = StandbyOptions(leader=of, data=data, http=_listener(http), is_json=as_json)
    return asyncio.run(run_standby(options))


def _listener(text: str) -> HttpListener | None:
    try:
        found = parse_http_listener(text)
    except ConfigError as error:
        raise CommandFailed(EXIT_USAGE, f"--http {text}: write HOST:PORT") from error
    if found is not None and found.has_tls:
        raise CommandFailed(EXIT_USAGE, f"--http {text}: a standby's endpoint has no TLS")
    return found


@app.command()
@with_access
def status(
    url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="URL of the standby's HTTP endpoint, which --http has set."
        ),
    ] = f"http://{HTTP}",
    of: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask the broker instead: URL of its HTTP listener (http.listener). Lists all standbys.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare each partition of the coordinators' topics with the broker's: the digests of"
            " the states at equal offsets. Reads all of the copies, and takes a while.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a standby is, or, with --of, all standbys of a broker."""
    from cli.standby.status import show_leader, show_standby

    if of is not None:
        if verify:
            end(_refuse_verify_of)
        leader = of
        run(lambda: show_leader(leader, as_json=as_json))
    run(lambda: show_standby(url, as_json=as_json, verifies=verify))


def _refuse_verify_of() -> int:
    raise CommandFailed(EXIT_USAGE, "--verify asks a standby (--url), so it does not go with --of")
