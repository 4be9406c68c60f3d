"""Carries out `kompakt backup list`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from cleaner.rules.text import moment_text, size_text
from cli.backup.repository import partitions_of, size_of, storage_errors, to_read
from cli.base.command_end import EXIT_FAILED, complain
from cli.base.output import print_json, print_table
from storage.backup.backup_index import BackupIndex
from storage.backup.read_backups import read_backups

TITLES = ("ID", "CREATED", "TOPICS", "PARTITIONS", "SIZE", "ADDED")
LEFT_ALIGNED = frozenset({"ID", "CREATED"})


def show_backups(repository: Path, *, as_json: bool) -> int:
    """Print the backups in a repository. Returns the exit code."""
    with storage_errors():
        store = to_read(repository)
        found = read_backups(store)
    backups = list(_facts(found.readable))
    if as_json:
        unreadable = [{"id": each.id, "reason": each.reason} for each in found.unreadable]
        print_json({"repository": store.place, "backups": backups, "unreadable": unreadable})
    elif backups:
        print_table(TITLES, [_row(each) for each in backups], texts=LEFT_ALIGNED)
    elif not found.unreadable:
        typer.echo(f"{store.place} has no backup")
    if not as_json:
        for each in found.unreadable:
            complain(each.reason)
    return EXIT_FAILED if found.unreadable else 0


def _facts(backups: Sequence[BackupIndex]) -> Iterator[dict[str, Any]]:
    """Yields what is shown of each backup: `added_bytes` is the size of what no earlier one has."""
    known: set[str] = set()
    for index in backups:
        objects = {file.sha256: file.size for file in index.files}
        added = sum(size for sha256, size in objects.items() if sha256 not in known)
        known |= objects.keys()
        yield {
            "id": index.id,
            "created_ms": index.snapshot.created_ms,
            "as_of_ms": index.snapshot.as_of_ms,
            "topics": len(index.snapshot.topics),
            "partitions": partitions_of(index),
            "files": len(index.files),
            "bytes": size_of(index),
            "added_bytes": added,
        }


def _row(facts: dict[str, Any]) -> list[str]:
    return [
        facts["id"],
        moment_text(facts["as_of_ms"]),
        f"{facts['topics']:,}",
        f"{facts['partitions']:,}",
        size_text(facts["bytes"]),
        size_text(facts["added_bytes"]),
    ]
