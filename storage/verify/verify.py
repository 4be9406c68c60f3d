"""Finds the logs to verify at a path, and verifies the files at the top of a data directory.

A path may be a data directory (an entry of `log.dirs`), a topic's directory or a partition's, in use or
a copy. Nothing in it is changed, and no lock is taken.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import (
    AUDIT_LOG,
    CLEAN_SHUTDOWN,
    CLEANING_LEDGER,
    COMPACTION_HISTORY,
    COMPACTION_HISTORY_OLD,
    DELETED,
    HASH_KEY,
    LEASES,
    LOCK,
    LOG,
    MANIFEST,
    META_PROPERTIES,
    METADATA,
    NODE_METADATA,
    PART,
    PROMOTED,
    PROMOTION,
    REJOIN,
    RESERVE,
    SHOWN_BY_CLEANERS,
    SIGNING_KEY,
    SNAPSHOTS,
    STANDBY,
    STANDBY_PROPERTIES,
    START_COUNTER,
    SYNC_FAILED,
    TOPIC_ID_CHARACTERS,
    is_topic_put_aside,
    join,
    parse_segment_file,
    parse_topic_directory,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import decode
from storage.formats.meta_properties import read_meta_properties
from storage.formats.topic_partition import TopicPartition
from storage.log.directory_start import HASH_KEY_BYTES
from storage.verify.findings import Check, Finding, Findings, LogReport

PARTITION = re.compile(r"\d+")
PARTITION_OR_ASIDE = re.compile(r"(\d+)(\.aside\..+|\.resync)?")
"""A log that a resync has put aside, or is filling, is verified by its own path only."""
STAGING = ".tmp"
OWN_FILES = {
    META_PROPERTIES, LOCK, HASH_KEY, START_COUNTER, CLEAN_SHUTDOWN, SYNC_FAILED, RESERVE, METADATA,
    NODE_METADATA,
}  # fmt: skip
OWN_FILES |= {
    AUDIT_LOG, CLEANING_LEDGER, COMPACTION_HISTORY, COMPACTION_HISTORY_OLD, LEASES, PROMOTION, REJOIN,
    SHOWN_BY_CLEANERS, SIGNING_KEY, SNAPSHOTS, STANDBY, STANDBY_PROPERTIES,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The logs and files to verify at a path."""

    path: str
    logs: tuple[LogIdentity, ...] = ()
    was_clean: bool = False
    """Whether the data directory's last stop was clean, by its marker file."""
    start_counter: int | None = None
    metadata: str | None = None
    """The directory of the cluster's metadata, if the path has it."""
    node_metadata: str | None = None
    """The directory of the node's metadata, if the path has it."""
    findings: tuple[Finding, ...] = ()
    """About the files at the top of a data directory."""

    def log_bytes(self, fs: FileSystem) -> int:
        """Returns how many bytes of segments a verification will read."""
        return sum(log_bytes(fs, log.directory) for log in self.logs)


def find_logs(fs: FileSystem, path: str) -> Found | None:
    """Returns what is at an absolute path; None if Kompakt wrote nothing there.

    Raises:
        DiskError: the path cannot be read.
    """
    names = fs.list(path)
    if META_PROPERTIES in names:
        return _data_directory(fs, path, names)
    if MANIFEST in names or any(map(parse_segment_file, names)):
        above = path.rpartition("/")[0].rpartition("/")[0]
        log = _identity(fs, path, _hash_key_in(fs, above))
        return Found(path=path, logs=(log,), was_clean=_was_clean(fs, above))
    above = path.rpartition("/")[0]
    logs = _topic_logs(fs, path, names, _hash_key_in(fs, above))
    return Found(path=path, logs=logs, was_clean=_was_clean(fs, above)) if logs else None


def check_start_counter(found: Found, reports: Iterable[LogReport]) -> tuple[Finding, ...]:
    """Check that the next start gets a leader epoch that no batch has yet."""
    latest = max((report.latest_epoch for report in reports), default=-1)
    findings = Findings()
    if found.start_counter is not None and latest > found.start_counter:
        path = join(found.path, START_COUNTER)
        text = f"it is {found.start_counter}, but there are batches of leader epoch {latest}"
        findings.error(Check.EPOCH, path, text)
    return findings.all()


def _data_directory(fs: FileSystem, path: str, names: Sequence[str]) -> Found:
    findings = Findings()
    _check_meta(fs, path, findings)
    start_counter = _read_start_counter(fs, path, findings)
    _check_hash_key(fs, path, findings)
    hash_key = _hash_key_in(fs, path)
    logs: list[LogIdentity] = []
    for name in names:
        inside = join(path, name)
        if name == SYNC_FAILED:
            text = "a sync failed here; the next start reads all from the disk, not from memory"
            findings.warn(Check.DIRECTORY, inside, text)
        elif name.endswith(DELETED):
            text = "a deleted topic; the next start finishes the deletion"
            findings.note(Check.DIRECTORY, inside, text)
        elif is_topic_put_aside(name):
            text = "a topic that was put aside; remove it when nobody needs its records"
            findings.note(Check.DIRECTORY, inside, text)
        elif parse_topic_directory(name) is not None:
            logs += _topic_logs(fs, inside, _names_in(fs, inside), hash_key)
        elif name == SNAPSHOTS:
            _note_snapshots(fs, inside, findings)
        elif name not in OWN_FILES and not name.startswith(PROMOTED):
            is_staged = name.endswith(STAGING)
            text = "left by a write that a crash cut short" if is_staged else "not Kompakt's"
            findings.note(Check.DIRECTORY, inside, text)
    return Found(
        path=path,
        logs=tuple(logs),
        was_clean=CLEAN_SHUTDOWN in names,
        start_counter=start_counter,
        metadata=join(path, METADATA) if METADATA in names else None,
        node_metadata=join(path, NODE_METADATA) if NODE_METADATA in names else None,
        findings=findings.all(),
    )


def _note_snapshots(fs: FileSystem, path: str, findings: Findings) -> None:
    """Name the snapshots, which are verified by their own paths."""
    for name in _names_in(fs, path):
        if name.endswith(PART):
            text = (
                "a snapshot that was not finished, or is being dropped; the next start removes it"
            )
        else:
            text = "a snapshot; its logs are verified by its own path"
        findings.note(Check.DIRECTORY, join(path, name), text)


def _check_meta(fs: FileSystem, path: str, findings: Findings) -> None:
    try:
        read_meta_properties(fs, path)
    except (DamagedFile, FormatFromTheFuture) as error:
        findings.error(Check.DIRECTORY, join(path, META_PROPERTIES), str(error))


def _read_start_counter(fs: FileSystem, path: str, findings: Findings) -> int | None:
    file = join(path, START_COUNTER)
    try:
        return int(fs.read_bytes(file))
    except MissingFile:
        findings.error(Check.DIRECTORY, file, "it is missing: leader epochs would start over")
    except ValueError:
        findings.error(Check.DIRECTORY, file, "it does not hold a number")
    return None


def _check_hash_key(fs: FileSystem, path: str, findings: Findings) -> None:
    file = join(path, HASH_KEY)
    if not fs.exists(file):
        findings.warn(Check.DIRECTORY, file, "it is missing; the next start creates a new one")
    elif fs.size(file) != HASH_KEY_BYTES:
        text = f"it has {fs.size(file)} bytes instead of {HASH_KEY_BYTES}"
        findings.error(Check.DIRECTORY, file, text)


def _hash_key_in(fs: FileSystem, path: str) -> bytes:
    """Returns the hash key of a data directory; empty if it is unreadable or has another size."""
    try:
        hash_key = fs.read_bytes(join(path, HASH_KEY))
    except DiskError:
        return b""
    return hash_key if len(hash_key) == HASH_KEY_BYTES else b""


def _topic_logs(
    fs: FileSystem, path: str, names: Sequence[str], hash_key: bytes
) -> tuple[LogIdentity, ...]:
    numbers = sorted(int(name) for name in names if PARTITION.fullmatch(name))
    return tuple(_identity(fs, join(path, str(number)), hash_key) for number in numbers)


def _identity(fs: FileSystem, directory: str, hash_key: bytes) -> LogIdentity:
    """Returns the identity of a directory's log, from its path or else from its manifest."""
    topic_path, _, number = directory.rpartition("/")
    name = topic_path.rpartition("/")[2]
    topic_id = parse_topic_directory(name)
    match = PARTITION_OR_ASIDE.fullmatch(number)
    partition = int(match[1]) if match is not None else 0
    topic = name[: -TOPIC_ID_CHARACTERS - 1]
    if topic_id is None:
        topic, topic_id = name or directory, uuid.UUID(int=0)
        try:
            path = join(directory, MANIFEST)
            manifest = decode(fs.read_bytes(path), path)
            topic_id, partition = manifest.topic_id, manifest.partition
        except (DiskError, DamagedFile, FormatFromTheFuture):
            pass
    return LogIdentity(
        topic_partition=TopicPartition(topic, partition),
        topic_id=topic_id,
        directory=directory,
        directory_id="",
        hash_key=hash_key,
    )


def _was_clean(fs: FileSystem, data_directory: str) -> bool:
    return fs.exists(join(data_directory, META_PROPERTIES)) and fs.exists(
        join(data_directory, CLEAN_SHUTDOWN)
    )


def _names_in(fs: FileSystem, path: str) -> list[str]:
    """Returns the names in a directory; empty if it was removed meanwhile, or is a file."""
    try:
        return fs.list(path)
    except DiskError:
        return []


def log_bytes(fs: FileSystem, directory: str, kind: str = LOG) -> int:
    """Returns the total size of a log directory's files of a kind, listed in the manifest or not."""
    total = 0
    for name in _names_in(fs, directory):
        if name.endswith(kind):
            try:
                total += fs.size(join(directory, name))
            except MissingFile:
                continue
    return total
