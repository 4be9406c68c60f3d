"""The options of `kompakt standby` and `kompakt standby status`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, complain, end, run
from cli.base.options import AsJson
from server.config.listeners.addresses import HttpListener, parse_http_listener
from storage.formats.config_property import ConfigError

if TYPE_CHECKING:
    from server.config.config import BrokerConfig

HTTP = "127.0.0.1:9646"

app = typer.Typer(
    name="standby",
    help="Follow a whole broker from another process or machine, and take over from it.",
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
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The properties of the broker that the standby becomes once it is promoted.",
        ),
    ] = None,
    metadata_only: Annotated[
        bool,
        typer.Option(
            "--metadata-only",
            help="Follow the metadata, offsets, groups and transactions, but no records of topics.",
        ),
    ] = False,
    rejoin: Annotated[
        bool,
        typer.Option(
            "--rejoin",
            help="DIR is the data directory of the broker from which the other one has taken over: it"
            " becomes a standby's. Records that only it has are put aside.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a whole broker until SIGTERM or Ctrl-C, ready to take over.

    Keeps a copy of all records of the broker in DIR, of its topics, configurations, ACLs and users, and
    of its committed offsets, groups and transactions. Prints a line when its state changes, and while
    it downloads a snapshot. kompakt standby promote lets it take over.
    """
    if context.invoked_subcommand is None:
        end(
            lambda: _follow(
                of,
                data,
                http,
                config,
                as_json=as_json,
                is_whole=not metadata_only,
                rejoins=rejoin,
            )
        )


def _follow(
    of: str | None,
    data: Path | None,
    http: str,
    config: Path | None,
    *,
    as_json: bool,
    is_whole: bool,
    rejoins: bool,
) -> int:
    if of is None or data is None:
        raise CommandFailed(EXIT_USAGE, "standby needs --of HOST:PORT and --data DIR")
    if not is_whole and (config is not None or rejoins):
        raise CommandFailed(EXIT_USAGE, "--config and --rejoin do not go with --metadata-only")
    from cli.base.broker_client import ADDRESS_OPTION, parse_address
    from cli.standby.run import StandbyOptions, run_standby

    ADDRESS_OPTION.set("--of")
    parse_address(of)
    options = StandbyOptions(
        leader=of,
        data=data,
        http=_listener(http),
        is_json=as_json,
        config=_broker_config(config, data) if is_whole else None,
        rejoins=rejoins,
    )
    if not is_whole:
        return asyncio.run(run_standby(options))
    import uvloop

    from server.run import prepare_process

    prepare_process()
    return uvloop.run(run_standby(options))


def _broker_config(file: Path | None, data: Path) -> BrokerConfig:
    """Returns the configuration of the broker on the standby's directory.

    All of log.dirs are used if the directory is among them: a broker that rejoins has records in each.

    Raises:
        CommandFailed: the configuration cannot work.
    """
    import os

    from cli.base.log_lines import log_to_stderr
    from server.config.config import BrokerConfig
    from server.config.sources import read_sources

    log_to_stderr()
    try:
        texts = read_sources(file=file, environment=os.environ, overrides=())
        if not texts:
            complain(
                "no --config: the standby would be promoted with a broker's defaults, its listeners"
                " and node.id among them"
            )
        found = BrokerConfig.from_texts(texts)
        directory = str(data.absolute())
        directories = [str(Path(each).absolute()) for each in found.data_directories]
        if directory not in directories:
            directories = [directory]
        elif str(Path(found.metadata_directory).absolute()) != directory:
            raise CommandFailed(
                EXIT_USAGE,
                f"--data must be the directory of the metadata, {found.metadata_directory}; --config"
                " names the others",
            )
        places = {"log.dirs": ",".join(directories), "metadata.log.dir": directory}
        return BrokerConfig.from_texts(texts | places)
    except ConfigError as error:
        raise CommandFailed(EXIT_USAGE, str(error)) from error


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


@app.command()
@with_access
def promote(
    url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="URL of the standby's HTTP endpoint, which --http has set."
        ),
    ] = f"http://{HTTP}",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Take over also if the broker does not answer, or if records of it are missing.",
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long to wait for the broker's last records once it refuses writes.",
        ),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Let a standby take over from its broker, which refuses writes from then on."""
    from cli.standby.promote import promote_standby

    run(lambda: promote_standby(url, is_forced=force, wait_s=wait, as_json=as_json))


def _refuse_verify_of() -> int:
    raise CommandFailed(EXIT_USAGE, "--verify asks a standby (--url), so it does not go with --of")
