"""The embedded metadata store's files: a log of transactions and snapshots of the map.

    <first revision, 20 digits>.log     frame*
        frame := size: uint32 | crc32c(payload): uint32 | payload: byte[size]
        the first payload is {"format": 1}, every other one a transaction:
        {"revision": 7, "operations": [["put", key, value, lease], ["delete", key],
                                       ["grant", lease, ttl_ms], ["revoke", lease]]}

    <revision, 20 digits>.snapshot      magic "KMMS" | format: uint16 | reserved: uint16
                                        | crc32c(payload): uint32 | payload to the file's end
        {"revision": 7, "entries": [[key, value, created, modified, lease], ...],
         "leases": [[lease, ttl_ms], ...]}

Payloads are JSON in UTF-8; readers skip members they don't know. Revisions count up by one.
A snapshot holds all up to its revision, so log frames at or below it are skipped. It is written
atomically, then a new log is begun, then older files are removed: a crash between leaves
files that say the same twice.

Every frame is synced before the next one is written, so a crash can tear the last frame only. A
torn frame is cut off and kept aside as `cut.<revision>.<n>`; any other damage is refused
(`CorruptLog`), because what it held was acknowledged. A complete last frame with a wrong checksum
is torn if one of its 512-byte sectors is all zeros (it was never written), else it is corrupt.

Source of the sector rule: etcd, wal/decoder.go isTornEntry.
"""

from __future__ import annotations

import json
import logging
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol.batch_scan import crc32c
from storage.errors import CorruptLog, DamagedFile, FormatFromTheFuture, StorageError
from storage.files import File, FileSystem

_log = logging.getLogger("server.metadata_log")

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
LOG_BYTES_MIN = 1 << 20
"""A log shorter than this, or than the last snapshot, is not worth a snapshot."""

NAME = re.compile(r"([0-9]{20})\.(log|snapshot)")

Operation = list[Any]
"""A transaction's step in the form it has in the log."""


@dataclass(slots=True, kw_only=True)
class State:
    """The map at one revision, as it was read or is to be written."""

    revision: int = 0
    entries: list[list[Any]] = field(default_factory=list)
    """key, value, created revision, modified revision, lease (0: none)."""
    leases: list[list[int]] = field(default_factory=list)
    """lease, time to live in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What one revision changed."""

    revision: int
    operations: list[Operation]


class MetadataLog:
    """The open log. One thread at a time; a call that raised SyncFailed ends its use for good."""

    __slots__ = ("_directory", "_file", "_files", "_is_broken", "_revision", "_snapshot_bytes")

    def __init__(self, files: FileSystem, directory: str) -> None:
        # Constant after construction
        self._files = files
        self._directory = directory
        # State: `_revision` is the last one that is safe in `_file` or a snapshot.
        self._file: File | None = None
        self._revision = 0
        self._snapshot_bytes = 0
        self._is_broken = False

    def recover(self) -> tuple[State, list[Transaction]]:
        """Read the newest snapshot and every transaction after it; open the log for appending.

        Raises:
            CorruptLog, DamagedFile: what was acknowledged cannot be read any more.
            FormatFromTheFuture: a later release wrote the files.
        """
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
            self._files.sync_directory(self._directory.rpartition("/")[0])
        names = self._files.list(self._directory)
        state = self._read_snapshot(_revisions(names, "snapshot"))
        self._revision = state.revision
        transactions: list[Transaction] = []
        logs = _revisions(names, "log")
        for first_revision in logs:
            is_last = first_revision == logs[-1]
            transactions += self._read_log(first_revision, is_last=is_last)
        if not logs:
            self._begin_log()
        return state, transactions

    def append(self, operations: list[Operation]) -> int:
        """Write one transaction and sync it; its revision.

        Raises:
            StorageError: it is not written; after SyncFailed nothing can be any more.
        """
        if self._is_broken or self._file is None:
            raise StorageError("the metadata store is out of service since a sync of it failed")
        revision = self._revision + 1
        payload = _encode({"revision": revision, "operations": operations})
        position = self._file.append([FRAME.pack(len(payload), crc32c(payload)), payload])
        self._sync(position)
        self._revision = revision
        return revision

    @property
    def is_due_for_snapshot(self) -> bool:
        """Whether the log has outgrown the snapshot."""
        assert self._file is not None
        return self._file.size > max(LOG_BYTES_MIN, self._snapshot_bytes)

    def snapshot(self, state: State) -> None:
        """Write `state` as a snapshot, begin a new log and remove what both replace."""
        assert state.revision == self._revision
        payload = _encode({"revision": state.revision, "entries": state.entries,
                           "leases": state.leases})  # fmt: skip
        data = SNAPSHOT.pack(MAGIC, FORMAT, 0, crc32c(payload)) + payload
        self._files.replace_durably(self._path(state.revision, "snapshot"), data)
        self._snapshot_bytes = len(data)
        if self._file is not None:
            self._file.close()
        try:
            self._begin_log()
        except BaseException:
            # The snapshot stands; without a log nothing more can be promised.
            self._is_broken = True
            raise
        self._remove_older(state.revision)

    def close(self) -> None:
        """Give the file back. Everything appended is safe already."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, revision: int, kind: str) -> str:
        return f"{self._directory}/{revision:020d}.{kind}"

    def _sync(self, position: int) -> None:
        assert self._file is not None
        try:
            self._file.sync()
        except BaseException:
            # Whether the frame is on the disk is unknown: a failed sync is never retried.
            self._is_broken = True
            _log.critical("metadata log: sync failed at byte %d; out of service", position)
            raise

    def _begin_log(self) -> None:
        path = self._path(self._revision + 1, "log")
        if self._files.exists(path):
            # Begun before by a start that was cut short, and not used since.
            self._files.unlink(path)
        self._file = self._files.open(path, create=True)
        self._write_header()

    def _write_header(self) -> None:
        assert self._file is not None
        payload = _encode({"format": FORMAT})
        self._file.append([FRAME.pack(len(payload), crc32c(payload)), payload])
        self._sync(0)
        self._files.sync_directory(self._directory)

    def _remove_older(self, revision: int) -> None:
        for name in self._files.list(self._directory):
            found = NAME.fullmatch(name)
            newest = revision + 1 if found and found[2] == "log" else revision
            if found and int(found[1]) < newest:
                self._files.unlink(f"{self._directory}/{name}")

    def _read_snapshot(self, revisions: list[int]) -> State:
        if not revisions:
            return State()
        path = self._path(revisions[-1], "snapshot")
        data = self._files.read_bytes(path)
        if len(data) < SNAPSHOT.size:
            raise DamagedFile(path, "it is cut short")
        magic, format_, _, checksum = SNAPSHOT.unpack_from(data)
        if magic != MAGIC:
            raise DamagedFile(path, "it is no metadata snapshot")
        if format_ > FORMAT:
            raise FormatFromTheFuture(path, format_, FORMAT)
        payload = data[SNAPSHOT.size :]
        if crc32c(payload) != checksum:
            raise DamagedFile(path, "its checksum differs")
        self._snapshot_bytes = len(data)
        content = json.loads(payload)
        return State(
            revision=content["revision"], entries=content["entries"], leases=content["leases"]
        )

    def _read_log(self, first_revision: int, *, is_last: bool) -> list[Transaction]:
        """The transactions of one file that are newer than what was read before it."""
        path = self._path(first_revision, "log")
        data = self._files.read_bytes(path)
        end, payloads = _scan(data)
        if end < len(data):
            reason = _damage(data, end)
            if reason is not None or not is_last:
                raise CorruptLog(path, end, reason or "a frame is cut short in an older file")
        if payloads:
            _check_format(path, json.loads(payloads[0]))
        transactions = list(self._newer(path, payloads[1:]))
        if is_last:
            self._open_at(path, data, end)
        return transactions

    def _newer(self, path: str, payloads: list[bytes]) -> Iterator[Transaction]:
        for payload in payloads:
            content = json.loads(payload)
            revision = content["revision"]
            if revision <= self._revision:
                continue
            if revision != self._revision + 1:
                raise CorruptLog(
                    path, 0, f"revision {self._revision + 1} is missing before {revision}"
                )
            self._revision = revision
            yield Transaction(revision=revision, operations=content["operations"])

    def _open_at(self, path: str, data: bytes, end: int) -> None:
        """Open the last log for appending; cut off what a crash tore, and keep it aside."""
        if end < len(data):
            aside = self._name_aside()
            self._files.write_bytes(aside, data[end:])
            self._files.sync_directory(self._directory)
            _log.warning(
                "%s: cut a torn transaction of %d bytes at byte %d, kept as %s",
                path, len(data) - end, end, aside,
            )  # fmt: skip
        self._file = self._files.open(path)
        if end < len(data):
            self._file.truncate(end)
        # What was read may not have been synced by the process that wrote it.
        self._sync(end)
        if end == 0:
            self._write_header()
        self._files.sync_directory(self._directory)

    def _name_aside(self) -> str:
        names = self._files.list(self._directory)
        number = sum(name.startswith(f"cut.{self._revision}.") for name in names)
        return f"{self._directory}/cut.{self._revision}.{number}"


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _revisions(names: list[str], kind: str) -> list[int]:
    found = (NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match and match[2] == kind)


def _check_format(path: str, header: dict[str, Any]) -> None:
    found = header.get("format")
    if not isinstance(found, int):
        raise CorruptLog(path, 0, "it does not begin with its format")
    if found > FORMAT:
        raise FormatFromTheFuture(path, found, FORMAT)


def _frame_at(data: bytes, position: int) -> bytes | None:
    """The payload of the whole, sound frame at `position`; None if there is none."""
    if position + FRAME.size > len(data):
        return None
    size, checksum = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    payload = data[start : start + size]
    return payload if size and len(payload) == size and crc32c(payload) == checksum else None


def _scan(data: bytes) -> tuple[int, list[bytes]]:
    """The payloads from the start on, and where the last sound frame ends."""
    position, payloads = 0, []
    while (payload := _frame_at(data, position)) is not None:
        payloads.append(payload)
        position += FRAME.size + len(payload)
    return position, payloads


def _damage(data: bytes, position: int) -> str | None:
    """Why what follows `position` cannot be one torn frame; None if it can."""
    following = data.find(b'{"', position + FRAME.size + 1)
    while following >= 0:
        if _frame_at(data, following - FRAME.size) is not None:
            return "a sound transaction follows a damaged one"
        following = data.find(b'{"', following + 1)
    if len(data) - position < FRAME.size:
        return None
    (size,) = struct.unpack_from(">I", data, position)
    if position + FRAME.size + size > len(data) or _has_lost_sector(data, position):
        return None
    return "a transaction's checksum differs, and no part of it is missing"


def _has_lost_sector(data: bytes, start: int) -> bool:
    """Whether a disk sector's share of the bytes from `start` on is all zeros."""
    while start < len(data):
        end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, len(data))
        if not any(data[start:end]):
            return True
        start = end
    return False
