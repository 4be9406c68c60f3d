"""Carries out `kompakt backup verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from cleaner.rules.text import count_text, size_text
from cli.backup.repository import storage_errors, to_read
from cli.base.command_end import EXIT_FAILED
from cli.base.output import byte_bar, print_json
from storage.backup.backup_store import BackupStore
from storage.backup.read_backups import Backups, find_backup, read_backups
from storage.backup.verify_backups import BackupsReport, bytes_to_read, verify_backups


def verify_repository(
    repository: Path, backup_id: str | None, *, with_records: bool, as_json: bool
) -> int:
    """Verify backups and print what is wrong. Returns the exit code."""
    with storage_errors():
        store = to_read(repository)
        backups = _chosen(store, backup_id)
        total = bytes_to_read(backups.readable, with_records=with_records)
        with byte_bar("verify", total, is_shown=not as_json) as progress:
            report = verify_backups(store, backups, with_records=with_records, progress=progress)
    if as_json:
        print_json({"is_sound": not report.problems, **asdict(report)})
    else:
        _print(report)
    return EXIT_FAILED if report.problems else 0


def _chosen(store: BackupStore, backup_id: str | None) -> Backups:
    if backup_id is None:
        return read_backups(store)
    return Backups((find_backup(store, backup_id),), ())


def _print(report: BackupsReport) -> None:
    for problem in report.problems:
        typer.echo(f"error: {problem}")
    records = "" if report.records is None else f", {count_text(report.records, 'record')}"
    typer.echo(
        f"{count_text(report.backups, 'backup')}: {count_text(report.objects, 'object')},"
        f" {size_text(report.bytes)}, {count_text(report.logs, 'log')}{records}:"
        f" {count_text(len(report.problems), 'problem') if report.problems else 'nothing is wrong'}"
    )
