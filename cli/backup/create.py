"""Carries out `kompakt backup create`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from cleaner.rules.text import count_text, duration_text, size_text
from cli.backup.broker_snapshots import new_snapshot, path_of_snapshot
from cli.backup.repository import absolute, partitions_of, size_of, storage_errors
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.options import names_in
from cli.base.output import byte_bar, print_json
from storage.backup.backup_store import BackupStore
from storage.backup.files_to_copy import files_of_snapshot, read_descriptor
from storage.backup.local_store import Label, make_repository
from storage.backup.make_backup import FinishedBackup, make_backup, plan_backup
from storage.files.errors import MissingFile
from storage.files.local_files import LocalFileSystem, ReadOnlyFileSystem
from storage.snapshots.descriptor import SnapshotDescriptor


def create_backup(
    repository: Path,
    url: str,
    snapshot: str | None,
    topics: Sequence[str] | None,
    *,
    keeps_snapshot: bool,
    as_json: bool,
) -> int:
    """Back up a broker, and print what was copied. Returns the exit code."""
    if snapshot is not None and topics:
        raise CommandFailed(
            EXIT_USAGE, "--topics is for a new snapshot: it does not go with --snapshot"
        )
    started_s = time.monotonic()
    names = names_in(topics)
    with _ended_by_sigterm(), _snapshot(url, snapshot, names, is_kept=keeps_snapshot) as path:
        finished = _copy(repository, path, is_shown=not as_json)
    seconds = time.monotonic() - started_s
    _report(absolute(repository), finished, seconds, as_json=as_json)
    return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that the snapshot is dropped."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _snapshot(
    url: str, given: str | None, topics: Sequence[str] | None, *, is_kept: bool
) -> Iterator[str]:
    """Yields the path of the snapshot.json to copy from."""
    if given is None:
        with new_snapshot(url, topics, is_kept=is_kept) as path:
            yield path
    elif "/" in given:
        # With symbolic links as they are: the descriptor has the broker's paths.
        yield str(Path(given).absolute())
    else:
        yield path_of_snapshot(url, given)


def _copy(repository: Path, path: str, *, is_shown: bool) -> FinishedBackup:
    descriptor = _descriptor(path)
    _refuse_inside(absolute(repository), descriptor)
    label = Label(cluster_id=descriptor.cluster_id, node_id=descriptor.node_id)
    with storage_errors():
        store = make_repository(LocalFileSystem(), absolute(repository), label)
        lock = store.lock()
        try:
            return _fill(store, descriptor, is_shown=is_shown)
        finally:
            lock.release()


def _fill(store: BackupStore, descriptor: SnapshotDescriptor, *, is_shown: bool) -> FinishedBackup:
    fs = ReadOnlyFileSystem()
    plan = plan_backup(store, descriptor, files_of_snapshot(fs, descriptor))
    with byte_bar("copy", plan.bytes_to_read, is_shown=is_shown) as progress:
        return make_backup(fs, store, plan, progress)


def _descriptor(path: str) -> SnapshotDescriptor:
    with storage_errors():
        try:
            return read_descriptor(ReadOnlyFileSystem(), path)
        except MissingFile as error:
            text = f"{path} is not here: run this on the broker's machine, where its log directories are"
            raise CommandFailed(EXIT_FAILED, text) from error


def _refuse_inside(place: str, descriptor: SnapshotDescriptor) -> None:
    for directory in descriptor.directories:
        if f"{place}/".startswith(f"{absolute(Path(directory.path))}/"):
            text = f"{place} is inside of {directory.path}: a backup there would be lost with it"
            raise CommandFailed(EXIT_USAGE, text)


def _report(place: str, finished: FinishedBackup, seconds: float, *, as_json: bool) -> None:
    index = finished.index
    if as_json:
        print_json(
            {
                "id": index.id,
                "created_ms": index.snapshot.created_ms,
                "as_of_ms": index.snapshot.as_of_ms,
                "repository": place,
                "topics": len(index.snapshot.topics),
                "partitions": partitions_of(index),
                "files": len(index.files),
                "bytes": size_of(index),
                "files_read": finished.files_read,
                "bytes_read": finished.bytes_read,
                "seconds": round(seconds, 3),
            }
        )
        return
    typer.echo(
        f"backup {index.id} is in {place}: {count_text(len(index.snapshot.topics), 'topic')},"
        f" {count_text(partitions_of(index), 'partition')}, {size_text(size_of(index))}"
    )
    typer.echo(
        f"copied {count_text(finished.files_read, 'file')}, {size_text(finished.bytes_read)}, in"
        f" {duration_text(seconds)}; the others were there"
    )
