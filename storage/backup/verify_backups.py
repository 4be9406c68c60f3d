"""Verifies backups where they are: whether each of them could be restored.

    indexes      decode, with their checksums
    objects      are there, with the size and the SHA-256 that the indexes name; each is read once
    logs         each manifest decodes, is that of its log, and lists files that are there in full
    records      on request: every check of `kompakt dump-log --verify`, over the objects

Takes no lock. A backup that is pruned meanwhile no longer counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.backup.backup_files import BackupFiles
from storage.backup.backup_index import BackupIndex, LogInBackup
from storage.backup.backup_store import BackupStore
from storage.backup.files_to_copy import OWN_FILES
from storage.backup.read_backups import Backups
from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture, MissingFile
from storage.files.paths import (
    LOG,
    MANIFEST,
    META_PROPERTIES,
    join,
    segment_file,
    topic_id_text,
)
from storage.formats.manifest import UNKNOWN, Manifest
from storage.formats.manifest import decode as decode_manifest
from storage.formats.meta_properties import read_meta_properties
from storage.verify.findings import Severity
from storage.verify.log import verify_log
from storage.verify.verify import find_logs

CHUNK_BYTES = 1 << 20

Progress = Callable[[int], None]
"""Receives numbers of bytes as they are read."""

_State = frozenset[tuple[str, str]]
"""The files of a log and their objects: a log that is the same in several backups is verified once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong in one place."""

    backups: tuple[str, ...]
    """The ids of the backups that cannot be restored completely because of it."""
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text} (backups: {', '.join(self.backups)})"


@dataclass(slots=True, kw_only=True)
class BackupsReport:
    """The results."""

    backups: int = 0
    objects: int = 0
    bytes: int = 0
    """The size of the objects."""
    logs: int = 0
    """The different states of logs in the backups."""
    records: int | None = None
    """The records in them; None if they were not verified."""
    problems: list[Problem] = field(default_factory=list)


def bytes_to_read(backups: Sequence[BackupIndex], *, with_records: bool) -> int:
    """Returns how many bytes a verification reads."""
    total = sum(_objects(backups).values())
    if with_records:
        seen: set[_State] = set()
        for log in (log for index in backups for log in _new_logs(index, seen)):
            total += sum(file.size for name, file in log.files.items() if name.endswith(LOG))
    return total


def verify_backups(
    store: BackupStore,
    backups: Backups,
    *,
    with_records: bool = False,
    progress: Progress = lambda count: None,
) -> BackupsReport:
    """Verify backups and the objects that they name. Raises DiskError if the store fails."""
    report = BackupsReport(records=0 if with_records else None)
    report.backups = len(backups.readable) + len(backups.unreadable)
    problems = [
        Problem(backups=(each.id,), path=each.path, text=each.reason) for each in backups.unreadable
    ]
    damaged = _verify_objects(store, backups.readable, report, progress)
    problems += _object_problems(backups.readable, damaged)
    seen: set[_State] = set()
    for index in backups.readable:
        verification = _Verification(store, index, set(damaged), progress)
        problems += verification.check_directories()
        for log in _new_logs(index, seen):
            report.logs += 1
            problems += verification.check_log(log)
            if with_records:
                problems += verification.check_records(log, report)
    there = set(store.ids())
    report.problems = [each for each in problems if there.intersection(each.backups)]
    return report


def _objects(backups: Iterable[BackupIndex]) -> dict[str, int]:
    return {file.sha256: file.size for index in backups for file in index.files}


def _verify_objects(
    store: BackupStore, backups: Sequence[BackupIndex], report: BackupsReport, progress: Progress
) -> dict[str, str]:
    """Read every object. Returns what is wrong with those that are missing or damaged."""
    damaged: dict[str, str] = {}
    for sha256, size in _objects(backups).items():
        report.objects += 1
        report.bytes += size
        fault = _fault_of(store, sha256, size, progress)
        if fault is not None:
            damaged[sha256] = fault
    return damaged


def _object_problems(
    backups: Iterable[BackupIndex], damaged: Mapping[str, str]
) -> Iterator[Problem]:
    users: dict[str, dict[str, str]] = {}
    for index in backups:
        for file in index.files:
            if file.sha256 in damaged:
                users.setdefault(file.sha256, {}).setdefault(index.id, file.path)
    for sha256, paths in users.items():
        text = f"object {sha256} {damaged[sha256]}"
        yield Problem(backups=tuple(paths), path=next(iter(paths.values())), text=text)


def _fault_of(store: BackupStore, sha256: str, size: int, progress: Progress) -> str | None:
    try:
        found = store.open_object(sha256)
    except MissingFile:
        return "is missing"
    try:
        if found.size != size:
            return f"has {found.size} bytes instead of {size}"
        digest, position = hashlib.sha256(), 0
        while data := found.read_at(position, CHUNK_BYTES):
            digest.update(data)
            position += len(data)
            progress(len(data))
    except DiskError as error:
        return f"cannot be read: {error}"
    finally:
        found.close()
    return None if digest.hexdigest() == sha256 else "has other bytes"


def _new_logs(index: BackupIndex, seen: set[_State]) -> Iterator[LogInBackup]:
    """Yields the logs of a backup that are not as in another one, and adds them to `seen`."""
    for log in index.logs():
        state = frozenset((file.path, file.sha256) for file in log.files.values())
        if state not in seen:
            seen.add(state)
            yield log


class _Verification:
    """Verifies what is in a backup whose objects were read."""

    __slots__ = ("_damaged", "_files", "_index", "_progress")

    def __init__(
        self, store: BackupStore, index: BackupIndex, damaged: set[str], progress: Progress
    ) -> None:
        # Constant after construction
        self._index = index
        self._files = BackupFiles(store, index)
        self._damaged = damaged
        self._progress = progress

    def check_directories(self) -> Iterator[Problem]:
        """Yields what is wrong with the files at the top of the log directories."""
        own = {file.path: file for file in self._index.files if "/" not in file.place}
        for directory in self._index.snapshot.directories:
            for name in OWN_FILES:
                path = f"{directory.id}/{name}"
                if path not in own:
                    yield self._problem(path, "the backup lacks it")
                elif name == META_PROPERTIES and own[path].sha256 not in self._damaged:
                    yield from self._check_meta(directory.id)

    def _check_meta(self, directory_id: str) -> Iterator[Problem]:
        path = f"{directory_id}/{META_PROPERTIES}"
        try:
            meta = read_meta_properties(self._files, f"/{directory_id}")
        except (DamagedFile, FormatFromTheFuture) as error:
            yield self._problem(path, str(error))
            return
        assert meta is not None
        snapshot = self._index.snapshot
        expected = (snapshot.cluster_id, snapshot.node_id, directory_id)
        if (meta.cluster_id, meta.node_id, meta.directory_id) != expected:
            yield self._problem(path, "it names another cluster, node or directory")

    def check_log(self, log: LogInBackup) -> Iterator[Problem]:
        """Yields what is wrong with a log, by its manifest."""
        path = join(log.path, MANIFEST)
        file = log.files.get(MANIFEST)
        if file is None:
            yield self._problem(path, "the backup lacks it")
        elif file.sha256 not in self._damaged:
            try:
                manifest = decode_manifest(self._files.read_bytes(f"/{path}"), path)
            except (DamagedFile, FormatFromTheFuture) as error:
                yield self._problem(path, str(error))
                return
            for fault in (*_identity_faults(manifest, log), *_segment_faults(manifest, log)):
                yield self._problem(path, fault)

    def check_records(self, log: LogInBackup, report: BackupsReport) -> Iterator[Problem]:
        """Yields what is wrong with the batches of a log and everything that depends on them."""
        if any(file.sha256 in self._damaged for file in log.files.values()):
            # That was reported, with the backups that need it.
            return
        found = find_logs(self._files, f"/{log.path}") if log.files else None
        if found is None:
            return
        (identity,) = found.logs
        verified = verify_log(self._files, identity, was_clean=True, progress=self._progress)
        assert report.records is not None
        report.records += verified.records
        for finding in verified.findings:
            if finding.severity is not Severity.NOTE:
                yield self._problem(finding.path.lstrip("/"), finding.text)

    def _problem(self, path: str, text: str) -> Problem:
        return Problem(backups=(self._index.id,), path=path, text=text)


def _identity_faults(manifest: Manifest, log: LogInBackup) -> Iterator[str]:
    partition = log.partition
    named = (topic_id_text(manifest.topic_id), manifest.partition)
    if named != (log.topic.id, partition.partition):
        yield "it is the manifest of another log"
    end_offset = manifest.segments[-1].end_offset if manifest.segments else UNKNOWN
    found = (manifest.log_start_offset, end_offset)
    if found != (partition.start_offset, partition.end_offset):
        yield (
            f"it has the offsets [{found[0]}, {found[1]}), and the snapshot"
            f" [{partition.start_offset}, {partition.end_offset})"
        )


def _segment_faults(manifest: Manifest, log: LogInBackup) -> Iterator[str]:
    for row in manifest.segments:
        name = segment_file(row.base_offset, row.file_version, LOG)
        file = log.files.get(name)
        if file is None:
            yield f"it lists {name}, which the backup lacks"
        elif file.size != row.size:
            yield f"{name} has {file.size} bytes, and it says {row.size}"
