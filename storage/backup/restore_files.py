"""Makes data directories of a backup: everything except the metadata stores, which the caller builds.

    target/                         the log directory, if there is one
    target/<name>/                  each log directory, if there are several

Order, so that no broker starts on a half of it:
    1. logs and secrets
    2. the metadata stores          the caller, between `restore_logs` and `finish_restore`
    3. meta.properties              without it, a broker refuses a directory that has topics
    4. .clean-shutdown              the logs need no recovery
The first two are durable before the third, and that before the last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from storage.backup.backup_index import BackupIndex, FileInBackup
from storage.backup.backup_store import BackupStore
from storage.files.errors import BackupRefused, DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import (
    CLEAN_SHUTDOWN,
    HASH_KEY,
    META_PROPERTIES,
    SIGNING_KEY,
    START_COUNTER,
    join,
)
from storage.log.directory_start import make_durably

CHUNK_BYTES = 1 << 20
WRITE_BACK_BYTES = 8 << 20
NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._ -]*")
"""Names that the directories of a backup keep."""
SECRETS = (HASH_KEY, SIGNING_KEY)

Progress = Callable[[int], None]
"""Receives numbers of bytes as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What is restored, and where."""

    index: BackupIndex
    target: str
    directories: Mapping[str, str]
    """The path of each log directory, by its id; that with the metadata comes first."""
    topics: frozenset[str]
    """The names of the topics that are restored."""
    files: tuple[FileInBackup, ...]
    """The files of their logs, and those at the top of the directories."""

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.size for file in self.files)

    @property
    def metadata_directory(self) -> str:
        """The path of the directory that gets the metadata."""
        return self.directories[self.index.snapshot.metadata_directory().id]

    def path_of(self, file: FileInBackup) -> str:
        """Returns where a file of the backup goes."""
        return join(self.directories[file.directory], file.place)


def plan_restore(
    index: BackupIndex,
    target: str,
    topics: Collection[str] | None = None,
    *,
    always: Collection[str],
) -> RestorePlan:
    """Decide what is restored.

    Args:
        target: an absolute path.
        topics: their names; None for all.
        always: names of topics that are restored in any case, if the backup has them.

    Raises:
        BackupRefused: the backup lacks one of the topics.
    """
    there = {topic.name for topic in index.snapshot.topics}
    unknown = sorted(set(topics or ()) - there)
    if unknown:
        raise BackupRefused(f"backup {index.id} has no topic {unknown[0]}")
    chosen = there if topics is None else set(topics) | (set(always) & there)
    logs = {log.path for log in index.logs() if log.topic.name in chosen}
    files = [
        file
        for file in index.files
        if "/" not in file.place or file.path.rpartition("/")[0] in logs
    ]
    return RestorePlan(
        index=index,
        target=target,
        directories=_directories(index, target),
        topics=frozenset(chosen),
        files=tuple(files),
    )


def _directories(index: BackupIndex, target: str) -> dict[str, str]:
    found = sorted(index.snapshot.directories, key=lambda each: not each.has_metadata)
    if len(found) == 1:
        return {found[0].id: target}
    names = [each.path.rstrip("/").rpartition("/")[2] for each in found]
    if len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        # Several disks often have a directory of the same name each.
        names = [f"directory-{number}" for number in range(1, len(found) + 1)]
    return {each.id: join(target, name) for each, name in zip(found, names, strict=True)}


def check_target(fs: FileSystem, plan: RestorePlan) -> None:
    """Create the target, and check that it can take the backup.

    Raises:
        BackupRefused: there is something in it, or its disk has not the space.
        DiskError: it cannot be created.
    """
    make_durably(fs, plan.target)
    names = [name for name in fs.list(plan.target) if name != "lost+found"]
    if names:
        text = f"{plan.target} is not empty: it has {names[0]}; choose a new directory"
        raise BackupRefused(text)
    free = fs.free_bytes(plan.target)
    if free < plan.bytes:
        raise BackupRefused(f"{plan.target} has {free} bytes free, and the backup {plan.bytes}")


def restore_logs(
    fs: FileSystem,
    store: BackupStore,
    plan: RestorePlan,
    progress: Progress = lambda count: None,
) -> None:
    """Write the logs, the secrets and the start counters into a checked target.

    Raises:
        DamagedFile: an object is missing, or has other bytes.
        NoSpace, DiskError: the target's disk is full or failed, or the store did.
    """
    for path in plan.directories.values():
        make_durably(fs, path)
    for directory in _log_directories(plan):
        fs.make_directory(directory)
    for file in plan.files:
        target, name = plan.path_of(file), file.path.rpartition("/")[2]
        if "/" in file.place:
            _restore_log_file(fs, store, file, target, progress)
        elif name in SECRETS:
            fs.replace_durably(target, _read(store, file), secret=True)
        elif name == START_COUNTER:
            fs.replace_durably(target, _read(store, file))


def leader_epoch(store: BackupStore, index: BackupIndex) -> int:
    """Returns the leader epoch of the broker's run that made the snapshot.

    Raises DamagedFile, DiskError.
    """
    directory = index.snapshot.metadata_directory().id
    (file,) = [each for each in index.files if each.path == f"{directory}/{START_COUNTER}"]
    try:
        return int(_read(store, file))
    except ValueError as error:
        raise DamagedFile(file.path, "it does not hold a number") from error


def finish_restore(fs: FileSystem, store: BackupStore, plan: RestorePlan) -> None:
    """Make everything durable, then complete the directories, so that a broker can start on them.

    Raises as `restore_logs`.
    """
    fs.sync_all(plan.target)
    for file in plan.files:
        if file.place == META_PROPERTIES:
            fs.replace_durably(plan.path_of(file), _read(store, file))
    for path in plan.directories.values():
        fs.replace_durably(join(path, CLEAN_SHUTDOWN), b"clean\n")


def _log_directories(plan: RestorePlan) -> Iterator[str]:
    seen = set()
    for file in plan.files:
        directory = plan.path_of(file).rpartition("/")[0]
        if directory not in seen:
            seen.add(directory)
            yield directory


def _restore_log_file(
    fs: FileSystem, store: BackupStore, file: FileInBackup, target: str, progress: Progress
) -> None:
    written = fs.open(target, create=True)
    try:
        written_back = 0
        for data in _checked(store, file):
            written.append([data])
            progress(len(data))
            if written.size - written_back >= WRITE_BACK_BYTES:
                written.begin_write_back(written_back, written.size - written_back)
                written_back = written.size
    finally:
        written.close()


def _checked(store: BackupStore, file: FileInBackup) -> Iterator[bytes]:
    """Yields the bytes of a file. Raises DamagedFile at the end if they are not those of the backup."""
    try:
        found = store.open_object(file.sha256)
    except MissingFile as error:
        raise DamagedFile(file.path, f"object {file.sha256} is missing") from error
    try:
        digest, position = hashlib.sha256(), 0
        while data := found.read_at(position, CHUNK_BYTES):
            digest.update(data)
            position += len(data)
            yield data
    finally:
        found.close()
    if digest.hexdigest() != file.sha256:
        raise DamagedFile(file.path, f"object {file.sha256} has other bytes")


def _read(store: BackupStore, file: FileInBackup) -> bytes:
    return b"".join(_checked(store, file))
