"""All commands of `kompakt` and their help. `cli/main.py` imports this module only when needed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.acls import commands as acls_commands
from cli.backup import commands as backup_commands
from cli.compact import commands as compact_commands
from cli.configs import commands as configs_commands
from cli.consume import command as consume_command
from cli.doctor import command as doctor_command
from cli.erase import commands as erase_commands
from cli.features import commands as features_commands
from cli.get import command as get_command
from cli.groups import commands as groups_commands
from cli.produce import command as produce_command
from cli.quotas import commands as quotas_commands
from cli.replica import commands as replica_commands
from cli.snapshot import commands as snapshot_commands
from cli.standby import command as standby_command
from cli.topics import commands as topics_commands
from cli.transactions import commands as transactions_commands
from cli.users import commands as users_commands
from server.runtime.release import release

app = typer.Typer(
    name="kompakt",
    help="A Kafka-compatible broker whose speciality is log compaction.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.add_typer(compact_commands.app)
app.add_typer(erase_commands.app)
app.add_typer(topics_commands.app)
app.add_typer(configs_commands.app)
app.add_typer(groups_commands.app)
app.add_typer(transactions_commands.app)
app.add_typer(users_commands.app)
app.add_typer(acls_commands.app)
app.add_typer(quotas_commands.app)
app.add_typer(features_commands.app)
app.add_typer(replica_commands.app)
app.add_typer(standby_command.app)
app.add_typer(backup_commands.app)
app.add_typer(snapshot_commands.app)
# Imported by name, because the import contracts forbid the server to import the pipeline. The
# modules of its commands import neither Spark nor Arrow.
app.add_typer(importlib.import_module("pipeline.cli").app)
app.command(name="export")(importlib.import_module("pipeline.export.command").export)
app.command(name="doctor")(doctor_command.doctor)
app.command(name="produce")(produce_command.produce)
app.command(name="consume")(consume_command.consume)
app.command(name="get")(get_command.get)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command in `arguments` and return its exit code: 2 for wrong arguments."""
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
            help="Set one property. Overrides the file and the KAFKA_... variables. Repeatable.",
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Without options it listens on 127.0.0.1:9092, with metrics and health checks on
    http://127.0.0.1:9644 and its data in ./data.
    """
    from cli.serve import serve as run

    raise typer.Exit(run(config, tuple(override or ())))


@app.command(name="dump-log")
def dump_log(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIRECTORY...",
            exists=True,
            help="Segments, indexes, key sidecars, manifests, snapshots, checkpoints, metadata, or"
            " directories of these.",
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Check every CRC and every invariant of a data, topic or partition directory."
            " Exit code 0: no errors or warnings (there may be notes), 1: errors or warnings.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
    ] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Also print the records of each batch, and the entries of a key sidecar.",
        ),
    ] = False,
    offset: Annotated[
        int, typer.Option(min=0, help="Start at the batch of a segment that holds this offset.")
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Print at most this many batches or records of a segment."),
    ] = None,
    keys: Annotated[
        bool,
        typer.Option(
            "--keys", help="With --verify: look for duplicate keys in the cleaned sections."
        ),
    ] = False,
    keys_memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", min=1, max=2047, help="Memory for --keys. Less needs more passes."
        ),
    ] = 128,
) -> None:
    """Print the contents of files in a data directory, or verify that they are consistent.

    Opens files for reading only, so a broker may be running on them.
    """
    from cli.dump.command import DumpOptions
    from cli.dump.command import dump_log as run
    from cli.dump.segment import Selection

    if verify and (records or offset or limit is not None):
        raise typer.BadParameter("--records, --offset and --limit do not work with --verify")
    if keys and not verify:
        raise typer.BadParameter("--keys needs --verify")
    selection = Selection(with_records=records, start_offset=offset, limit=limit)
    options = DumpOptions(
        is_verification=verify,
        as_json=json,
        selection=selection,
        key_map_bytes=keys_memory << 20 if keys else None,
    )
    raise typer.Exit(run(paths, options))
