"""Carries out `kompakt backup restore`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.backup.repository import absolute, storage_errors, to_read
from cli.backup.restored_metadata import Entries, restored_entries, write_stores
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.options import names_in
from cli.base.output import byte_bar, print_json
from storage.backup.backup_store import BackupStore
from storage.backup.read_backups import find_backup
from storage.backup.restore_files import (
    RestorePlan,
    check_target,
    finish_restore,
    leader_epoch,
    plan_restore,
    restore_logs,
)
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem

COORDINATORS_TOPICS = ("__consumer_offsets", "__transaction_state")


def restore_backup(
    repository: Path,
    target: Path,
    backup_id: str | None,
    topics: Sequence[str] | None,
    *,
    as_json: bool,
) -> int:
    """Restore a backup into a new directory, and print what a broker needs. Returns the exit code."""
    with storage_errors():
        store = to_read(repository)
        index = find_backup(store, backup_id)
        names = names_in(topics)
        plan = plan_restore(index, absolute(target), names, always=COORDINATORS_TOPICS)
        check_target(LocalFileSystem(), plan)
    entries = restored_entries(index.snapshot, None if names is None else plan.topics)
    _write(store, plan, entries, is_shown=not as_json)
    _report(plan, as_json=as_json)
    return 0


def _write(store: BackupStore, plan: RestorePlan, entries: Entries, *, is_shown: bool) -> None:
    """Write everything. Raises CommandFailed: then no broker starts on what was written."""
    fs = LocalFileSystem()
    try:
        with byte_bar("restore", plan.bytes, is_shown=is_shown) as progress:
            restore_logs(fs, store, plan, progress)
        # Terms and epochs grow alike, and peers know a promoted broker by its high term.
        term = leader_epoch(store, plan.index)
        asyncio.run(write_stores(fs, plan.metadata_directory, entries, term_min=term))
        finish_restore(fs, store, plan)
    except StorageError as error:
        raise CommandFailed(
            EXIT_FAILED,
            f"{error}; {plan.target} is incomplete, and no broker starts on it: remove it",
        ) from error


def _report(plan: RestorePlan, *, as_json: bool) -> None:
    directories = list(plan.directories.values())
    if as_json:
        print_json(
            {
                "backup": plan.index.id,
                "created_ms": plan.index.snapshot.created_ms,
                "as_of_ms": plan.index.snapshot.as_of_ms,
                "log_dirs": directories,
                "topics": sorted(plan.topics),
                "bytes": plan.bytes,
            }
        )
        return
    typer.echo(
        f"restored backup {plan.index.id} as of {moment_text(plan.index.snapshot.as_of_ms)}:"
        f" {count_text(len(plan.topics), 'topic')}, {size_text(plan.bytes)}"
    )
    typer.echo(f"start the broker with log.dirs={','.join(directories)}")
