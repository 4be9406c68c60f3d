"""The commands of `kompakt`, with their help. Imported only where `server/cli.py` needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from server.release import release

app = typer.Typer(
    name="kompakt",
    help="A Kafka-compatible broker whose speciality is log compaction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name; the exit code, 2 for a wrong command line."""
    try:
        app(list(arguments), prog_name="kompakt")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"kompakt {release()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the release and exit."
        ),
    ] = False,
) -> None:
    """A Kafka-compatible broker whose speciality is log compaction."""


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server.properties file, with Kafka's names."),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set one property; wins over the file and over KAFKA_... variables. Repeatable.",
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Without options it listens on 127.0.0.1:9092, with metrics and health checks on
    http://127.0.0.1:9644 and its data in ./data.
    """
    from server.serve import serve as run

    raise typer.Exit(run(config, tuple(override or ())))
