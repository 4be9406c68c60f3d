"""`kompakt backup ...`: back up a running broker into a directory, and restore data directories from it.

`create` asks the broker for a snapshot over HTTP and reads its files itself, so it runs on the broker's
machine, as a user who may read them. All other commands need no broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import end
from cli.base.options import AsJson
from cli.compact.options import DEFAULT_URL, Url

app = typer.Typer(
    name="backup",
    help="Back up a broker while it runs, and restore its data directories.",
    no_args_is_help=True,
)


def complete_backup(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of the backups in the directory that was typed."""
    from cli.backup.repository import ids_in

    typed = context.params.get("repository")
    return [] if typed is None else [each for each in ids_in(typed) if each.startswith(incomplete)]


Repository = Annotated[
    Path,
    typer.Option("--to", metavar="DIR", file_okay=False, help="The directory with the backups."),
]
BackupId = Annotated[
    str | None,
    typer.Option(
        "--backup",
        metavar="ID",
        help="This backup; see kompakt backup list.",
        autocompletion=complete_backup,
    ),
]


Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        "--topic",
        metavar="TOPIC[,TOPIC]",
        help="Only these topics, and those of the coordinators. May be repeated.",
    ),
]


@app.command()
@with_access
def create(
    repository: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="DIR",
            file_okay=False,
            help="The directory with the backups; created if it does not exist. It should be on another"
            " disk than the broker's data.",
        ),
    ],
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="ID|FILE",
            help="Copy this snapshot, which stays, instead of a new one. The path of a snapshot.json"
            " needs no running broker.",
        ),
    ] = None,
    keep_snapshot: Annotated[
        bool,
        typer.Option("--keep-snapshot", help="Do not drop the snapshot when it has been copied."),
    ] = False,
    topics: Topics = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a backup of a running broker: of all its topics, settings, users, ACLs and groups.

    Run it on the broker's machine, as a user who may read the broker's files. Copies only files that the
    last backup lacks; an interrupted backup is continued by the next one.
    """
    from cli.backup.create import create_backup

    end(
        lambda: create_backup(
            repository, url, snapshot, topics, keeps_snapshot=keep_snapshot, as_json=as_json
        )
    )


@app.command(name="list")
def list_backups(repository: Repository, as_json: AsJson = False) -> None:
    """List the backups in a directory, oldest first.

    Exits with 1 if the index of a backup cannot be read.
    """
    from cli.backup.show import show_backups

    end(lambda: show_backups(repository, as_json=as_json))


@app.command()
def verify(
    repository: Repository,
    backup: BackupId = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Also check every record batch and all that is derived from them, as kompakt dump-log"
            " --verify does.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that backups can be restored: reads every file of theirs, and compares its SHA-256.

    Without --backup: all backups. Exits with 1 if something is damaged or missing, and says what, and
    which backups need it.
    """
    from cli.backup.verify import verify_repository

    end(lambda: verify_repository(repository, backup, with_records=records, as_json=as_json))


@app.command()
def prune(
    repository: Repository,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the newest N backups.")
    ] = None,
    keep_for: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Keep the backups of this time, such as 12h or 30d."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old backups, and the files that no other backup needs.

    With --keep and --keep-for a backup stays if either keeps it. The newest one always stays.
    """
    from cli.backup.prune import prune_repository

    end(lambda: prune_repository(repository, keep, keep_for, is_rehearsal=dry_run, as_json=as_json))


@app.command()
def restore(
    repository: Annotated[
        Path,
        typer.Option(
            "--from", metavar="DIR", file_okay=False, help="The directory with the backups."
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="NEWDIR",
            file_okay=False,
            help="The new data directory, which must not exist or be empty. If the broker had several"
            " log directories, each becomes a directory in it.",
        ),
    ],
    backup: BackupId = None,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Make a new data directory from a backup, on which a broker can start.

    Without --backup: from the newest one. Never overwrites anything. Users, ACLs and quotas are always
    restored, and the offsets of groups, unless the snapshot is of an earlier time.
    """
    from cli.backup.restore import restore_backup

    end(lambda: restore_backup(repository, target, backup, topics, as_json=as_json))
