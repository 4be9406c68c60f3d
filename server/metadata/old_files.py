"""The files in which earlier releases kept the metadata: a log of transactions, and snapshots.

    <first revision, 20 digits>.log     frame*
        frame := size: uint32 | crc32c(payload): uint32 | payload: byte[size]
        the first payload is {"format": 1}, every other one a transaction:
        {"revision": 7, "operations": [["put", key, value, lease], ["delete", key],
                                       ["grant", lease, ttl_ms], ["revoke", lease]]}

    <revision, 20 digits>.snapshot      magic "KMMS" | format: uint16 | reserved: uint16
                                        | crc32c(payload): uint32 | payload to the file's end
        {"revision": 7, "entries": [[key, value, created, modified, lease], ...],
         "leases": [[lease, ttl_ms], ...]}

Payloads are JSON in UTF-8; readers ignore members that they do not know. Revisions count up by one.
A snapshot holds everything up to its revision, so readers skip log frames at or below it. A crash may
have left redundant files.

Every frame is synced before the next one is written, so a crash can tear only the last frame. Any other
damage is an error (`CorruptLog`), because the damaged part was acknowledged. A complete last frame with
a wrong checksum is torn if one of its 512-byte sectors is all zeros (it was never written), else it is
corrupt. A last frame that extends beyond the end of the file is torn, unless the rest of the file is all
of its JSON: then its size is damaged.

Source of the sector rule: etcd, wal/decoder.go isTornEntry.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol.records.batch_scan import crc32c
from replog.machine import Row
from server.metadata.machine import (
    MetadataMachine,
    Operation,
    entry_row,
    lease_row,
    revision_row,
)
from server.metadata.store import Entry
from storage.files.errors import CorruptLog, DamagedFile, FormatFromTheFuture
from storage.files.files import FileSystem

FORMAT = 1
FRAME = struct.Struct(
    ">"
    "I"  # size
    "I"  # crc32c
)
SNAPSHOT = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # format
    "H"  # reserved
    "I"  # crc32c
)
MAGIC = b"KMMS"
SECTOR_BYTES = 512
NAME = re.compile(r"([0-9]{20})\.(log|snapshot)")


@dataclass(slots=True, kw_only=True)
class State:
    """The map at one revision, in the form of a snapshot."""

    revision: int = 0
    entries: list[list[Any]] = field(default_factory=list)
    """key, value, created revision, modified revision, lease (0: none)."""
    leases: list[list[int]] = field(default_factory=list)
    """lease, time to live in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The operations of one revision."""

    revision: int
    operations: list[Operation]


@dataclass(slots=True, kw_only=True)
class Metadata:
    """The contents of a metadata directory."""

    state: State
    """The newest snapshot; the empty map if there is none."""
    snapshot_bytes: int = 0
    transactions: list[Transaction] = field(default_factory=list)
    """The transactions after the snapshot, in order."""
    log_path: str | None = None
    """The newest log; None if there is none."""
    log_end: int = 0
    """The position in the log where its valid frames end."""
    torn: bytes = b""
    """The bytes after `log_end`: a transaction that a crash has torn."""

    @property
    def revision(self) -> int:
        """The last revision."""
        return self.transactions[-1].revision if self.transactions else self.state.revision


def has_old_files(files: FileSystem, directory: str) -> bool:
    """Returns whether an earlier release's files are in the directory."""
    return any(NAME.fullmatch(name) for name in files.list(directory))


def remove_old_files(files: FileSystem, directory: str) -> None:
    """Remove an earlier release's files, the newest last."""
    for name in files.list(directory):
        if NAME.fullmatch(name):
            files.unlink(f"{directory}/{name}")


def read_old_machine(files: FileSystem, directory: str) -> MetadataMachine:
    """Returns the machine with the state in an earlier release's files; changes nothing.

    Raises:
        CorruptLog, DamagedFile: acknowledged changes can no longer be read.
        FormatFromTheFuture: a later release wrote the files.
        DiskError: a file cannot be read.
    """
    found = read_metadata(files, directory)
    machine = MetadataMachine()
    machine.restore(_rows(found.state))
    for transaction in found.transactions:
        machine.run(transaction.operations)
    return machine


def _rows(state: State) -> Iterator[Row]:
    for key, value, created, modified, lease, *_ in state.entries:
        yield entry_row(
            Entry(key=key, value=value, create_revision=created, mod_revision=modified, lease=lease)
        )
    for lease, ttl_ms, *_ in state.leases:
        yield lease_row(lease, ttl_ms)
    yield revision_row(state.revision)


def read_metadata(files: FileSystem, directory: str) -> Metadata:
    """Read the newest snapshot and every transaction after it; change nothing.

    Raises:
        CorruptLog, DamagedFile: acknowledged changes can no longer be read.
        FormatFromTheFuture: a later release wrote the files.
        DiskError: a file cannot be read.
    """
    names = files.list(directory)
    found = _read_snapshot(files, directory, _revisions(names, "snapshot"))
    logs = _revisions(names, "log")
    _check_none_missing(directory, logs, found)
    for first_revision in logs:
        _read_log(files, directory, first_revision, found, is_last=first_revision == logs[-1])
    return found


def _check_none_missing(directory: str, logs: list[int], found: Metadata) -> None:
    """Refuse a log without the snapshot that it continues, and a snapshot without a log."""
    first = logs[0] if logs else 0
    if first > found.state.revision + 1:
        path = metadata_file(directory, first - 1, "snapshot")
        raise DamagedFile(path, f"it is missing, and {first:020d}.log continues it")
    if found.snapshot_bytes and not logs:
        path = metadata_file(directory, found.state.revision + 1, "log")
        raise DamagedFile(path, "no log is left beside the snapshot")


def metadata_file(directory: str, revision: int, kind: str) -> str:
    """Returns the path of a log or a snapshot; `kind` is "log" or "snapshot"."""
    return f"{directory}/{revision:020d}.{kind}"


def _read_snapshot(files: FileSystem, directory: str, revisions: list[int]) -> Metadata:
    if not revisions:
        return Metadata(state=State())
    path = metadata_file(directory, revisions[-1], "snapshot")
    data = files.read_bytes(path)
    return Metadata(state=decode_snapshot(data, path), snapshot_bytes=len(data))


def decode_snapshot(data: bytes, path: str) -> State:
    """Returns the state in a snapshot file's bytes; error messages name `path`.

    Raises:
        FormatFromTheFuture: a later release wrote it.
        DamagedFile: it is truncated, or its checksum differs.
    """
    if len(data) < SNAPSHOT.size:
        raise DamagedFile(path, "it is truncated")
    magic, format_, _, checksum = SNAPSHOT.unpack_from(data)
    if magic != MAGIC:
        raise DamagedFile(path, "it is not a metadata snapshot")
    if format_ > FORMAT:
        raise FormatFromTheFuture(path, format_, FORMAT)
    payload = data[SNAPSHOT.size :]
    if crc32c(payload) != checksum:
        raise DamagedFile(path, "its checksum differs")
    content = json.loads(payload)
    return State(revision=content["revision"], entries=content["entries"], leases=content["leases"])


def _read_log(
    files: FileSystem, directory: str, first_revision: int, found: Metadata, *, is_last: bool
) -> None:
    """Add the transactions of one log that are newer than those in `found`."""
    path = metadata_file(directory, first_revision, "log")
    data = files.read_bytes(path)
    end, payloads = scan_frames(data)
    if end < len(data):
        reason = frame_damage(data, end)
        if reason is not None or not is_last:
            raise CorruptLog(path, end, reason or "an older file ends in a torn frame")
    if payloads:
        _check_format(path, json.loads(payloads[0]))
    for transaction in _newer(path, payloads[1:], found.revision):
        found.transactions.append(transaction)
    if is_last:
        found.log_path, found.log_end, found.torn = path, end, data[end:]


def _newer(path: str, payloads: list[bytes], revision: int) -> Iterator[Transaction]:
    for payload in payloads:
        content = json.loads(payload)
        if content["revision"] <= revision:
            continue
        revision += 1
        if content["revision"] != revision:
            text = f"revision {revision} is missing before {content['revision']}"
            raise CorruptLog(path, 0, text)
        yield Transaction(revision=revision, operations=content["operations"])


def _revisions(names: list[str], kind: str) -> list[int]:
    found = (NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match and match[2] == kind)


def _check_format(path: str, header: dict[str, Any]) -> None:
    found = header.get("format")
    if not isinstance(found, int):
        raise CorruptLog(path, 0, "it does not begin with the number of its format")
    if found > FORMAT:
        raise FormatFromTheFuture(path, found, FORMAT)


def _frame_at(data: bytes, position: int) -> bytes | None:
    """Returns the payload of the complete, valid frame at `position`; None if there is none."""
    if position + FRAME.size > len(data):
        return None
    size, checksum = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    payload = data[start : start + size]
    return payload if size and len(payload) == size and crc32c(payload) == checksum else None


def scan_frames(data: bytes) -> tuple[int, list[bytes]]:
    """Returns the position where the valid frames from the start on end, and their payloads."""
    position, payloads = 0, []
    while (payload := _frame_at(data, position)) is not None:
        payloads.append(payload)
        position += FRAME.size + len(payload)
    return position, payloads


def frame_damage(data: bytes, position: int) -> str | None:
    """Returns why the bytes from `position` on cannot be one torn frame; None if they can."""
    following = data.find(b'{"', position + FRAME.size + 1)
    while following >= 0:
        if _frame_at(data, following - FRAME.size) is not None:
            return "a valid transaction follows a damaged one"
        following = data.find(b'{"', following + 1)
    if len(data) - position < FRAME.size or _has_lost_sector(data, position):
        return None
    if _is_whole(data[position + FRAME.size :]):
        return "a transaction is complete, but its size or its checksum is wrong"
    (size,) = struct.unpack_from(">I", data, position)
    if position + FRAME.size + size > len(data):
        return None
    return "a transaction's checksum differs, and no part of it is missing"


def _is_whole(payload: bytes) -> bool:
    """Returns whether this is a complete payload: no shorter part of one is valid JSON."""
    try:
        json.loads(payload)
    except ValueError:
        return False
    return True


def _has_lost_sector(data: bytes, start: int) -> bool:
    """Returns whether the bytes from `start` on have a disk sector, or a part of one, of only zeros."""
    while start < len(data):
        end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, len(data))
        if not any(data[start:end]):
            return True
        start = end
    return False
