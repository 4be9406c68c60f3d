"""The commands of `kompakt`, with their help. Imported only where `server/cli.py` needs it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from server import (
    compact_commands,
    configs_commands,
    consume_command,
    doctor_command,
    groups_commands,
    produce_command,
    topics_commands,
    transactions_commands,
)
from server.release import release

app = typer.Typer(
    name="kompakt",
    help="A Kafka-compatible broker whose speciality is log compaction.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.add_typer(compact_commands.app)
app.add_typer(topics_commands.app)
app.add_typer(configs_commands.app)
app.add_typer(groups_commands.app)
app.add_typer(transactions_commands.app)
# By name: nobody imports the pipeline. What it says can be typed imports no Spark.
app.add_typer(importlib.import_module("pipeline.cli").app)
app.command(name="doctor")(doctor_command.doctor)
app.command(name="produce")(produce_command.produce)
app.command(name="consume")(consume_command.consume)


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


@app.command(name="dump-log")
def dump_log(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIRECTORY...",
            exists=True,
            help="Segments, indexes, key sidecars, manifests, snapshots, checkpoints, metadata; or"
            " directories.",
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Check every CRC and every invariant of a data directory, a topic's or a"
            " partition's. Exit code 0: nothing is wrong (notes may be), 1: errors or warnings.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, for programs.")
    ] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Print the records of each batch as well; of a key sidecar its entries.",
        ),
    ] = False,
    offset: Annotated[
        int, typer.Option(min=0, help="Of a segment, begin with the batch that holds this offset.")
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Of a segment, print at most so many batches or records."),
    ] = None,
    keys: Annotated[
        bool,
        typer.Option(
            "--keys", help="With --verify: look for keys that a cleaned section holds twice."
        ),
    ] = False,
    keys_memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", min=1, max=2047, help="Memory for --keys; with less it reads more often."
        ),
    ] = 128,
) -> None:
    """Print what files of a data directory hold, or verify that they agree.

    Files are opened for reading only; a broker may be using them.
    """
    from server.dump_log import DumpOptions
    from server.dump_log import dump_log as run
    from server.dump_segment import Selection

    if verify and (records or offset or limit is not None):
        raise typer.BadParameter("--records, --offset and --limit print files, --verify does not")
    if keys and not verify:
        raise typer.BadParameter("--keys goes with --verify")
    selection = Selection(with_records=records, start_offset=offset, limit=limit)
    options = DumpOptions(
        is_verification=verify,
        as_json=json,
        selection=selection,
        key_map_bytes=keys_memory << 20 if keys else None,
    )
    raise typer.Exit(run(paths, options))
