"""The export of one partition: what its last records are, and the files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.inspect.last_offsets import LogKeys
from cleaner.pacing.meter import unpaced_meter
from pipeline.export.data_file import DataFile, PartWriter, WrittenPart, new_path
from pipeline.export.equal_keys import KeyPlaces, outranked
from pipeline.export.last_records import PART_BYTES, LogPart, Offsets, first_unkeyed, parts_of
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import OnMissingKey
from storage.files.errors import MissingFile
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.log_identity import LogIdentity
from storage.log.on_disk import LogOnDisk, look_at_log
from storage.segment.held_files import HeldFiles

LOOKS_MAX = 16
"""How often a log is looked at whose segments are replaced before they can be held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How logs are read."""

    strategy: CompactionStrategy
    on_missing_key: OnMissingKey
    memory_bytes: int
    """For the offset map of one partition."""
    threads: int
    part_bytes: int = PART_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """Gets what an export does, in bytes of segments. Called by several threads."""

    expected: Callable[[int], None] = lambda count: None
    """So many bytes more will be read."""
    read: Callable[[int], None] = lambda count: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWork:
    """What the partitions of an export share."""

    reading: Reading
    writer: PartWriter
    folder: Path
    """Where new files go."""
    known: Mapping[str, DataFile]
    """The table's files by the names of their rows."""
    progress: ExportProgress


class LogExport:
    """One partition, whose files are open until `close`."""

    def __init__(
        self,
        work: ExportWork,
        files: HeldFiles,
        log: LogOnDisk,
        parts: Sequence[LogPart],
        closing: ExitStack,
    ) -> None:
        # Constant after construction.
        self._work = work
        self._files = files
        self._log = log
        self._closing = closing
        files_of = [(part, self._kept_file(part)) for part in parts]
        self._kept = [(part, file) for part, file in files_of if file is not None]
        """The parts that the table holds, with their files."""
        self._missing = [part for part, file in files_of if file is None]
        # State.
        self._written: list[Future[WrittenPart]] = []
        self._kept_keys: list[Future[KeyPlaces]] = []

    @classmethod
    def begin(cls, work: ExportWork, identity: LogIdentity) -> LogExport | None:
        """Hold a log's files and find its last records. Returns None if the log was never finished.

        Raises:
            TableRefused: a record has no key.
            CorruptBatch, StorageError: the log is damaged, or cannot be read.
        """
        with ExitStack() as closing:
            held = held_log(identity, closing)
            if held is None:
                return None
            files, log = held
            last = _last_offsets(files, log, work.reading)
            parts = tuple(parts_of(files, log, last, part_bytes=work.reading.part_bytes))
            return cls(work, files, log, parts, closing.pop_all())

    @property
    def partition(self) -> int:
        return self._log.identity.topic_partition.partition

    @property
    def end_offset(self) -> int:
        """Records below it are in the files."""
        return self._log.last_stable_offset

    def submit(self, pool: Executor) -> None:
        """Let a pool write the parts that the table does not have."""
        progress = self._work.progress
        progress.expected(sum(each.size for each in self._missing))
        self._written = [pool.submit(self._write, each, progress.read) for each in self._missing]
        self._kept_keys = [pool.submit(self._work.writer.keys_in, file) for _, file in self._kept]

    def finish(self) -> list[DataFile]:
        """Wait for the files. Returns them, with those that the table has already.

        Raises:
            TableRefused: keys say the same in other bytes, and records have versions.
            As `PartWriter.write`.
        """
        written = [each.result() for each in self._written]
        losers = outranked(
            [each.keys for each in written if each.keys is not None]
            + [each.result() for each in self._kept_keys]
        )
        if len(losers) and self._work.reading.strategy.has_versions:
            self._refuse_equal_keys(int(losers[0]))
        new = (
            (part, self._settled(part, each.file))
            for part, each in zip(self._missing, written, strict=True)
        )
        found = (self._without(losers, part, file) for part, file in [*self._kept, *new])
        return [file for file in found if file is not None]

    def _settled(self, part: LogPart, file: DataFile | None) -> DataFile | None:
        """Returns the file of a part that was read: the table's, if that has these rows already."""
        known = self._known_file(part)
        if file is None or known is None:
            return file
        self._remove(file)
        return known

    def _without(self, losers: Offsets, part: LogPart, file: DataFile | None) -> DataFile | None:
        """Returns the file of a part without these records; written again if it has some of them."""
        rest = part.without(losers)
        if len(rest.last) == len(part.last):
            return file
        self._remove(file)
        return self._known_file(rest) or self._write(rest, lambda count: None).file

    def discard(self) -> None:
        """Remove the new files, when no more of them are being written."""
        for each in self._written:
            if each.done() and not each.cancelled() and each.exception() is None:
                self._remove(each.result().file)

    def close(self) -> None:
        """Close the log's files."""
        self._closing.close()

    def _kept_file(self, part: LogPart) -> DataFile | None:
        """Returns the file that the table has of a part, if it can stay."""
        file = self._known_file(part)
        return file if file is not None and self._work.writer.holds(file, part) else None

    def _known_file(self, part: LogPart) -> DataFile | None:
        """Returns the file that the table has of a part."""
        return self._work.known.get(self._name_of(part))

    def _name_of(self, part: LogPart) -> str:
        return self._work.writer.name(part, self._log.identity)

    def _refuse_equal_keys(self, offset: int) -> None:
        where = self._log.identity.topic_partition
        raise TableRefused(
            f"{where.topic}-{where.partition}, offset {offset}: a later key says the same in other"
            f" bytes, and compaction.strategy={self._work.reading.strategy} does not compare the two:"
            " read keys as bytes"
        )

    def _remove(self, file: DataFile | None) -> None:
        """Remove a new file."""
        if file is not None and self._work.known.get(file.name) != file:
            file.path.unlink(missing_ok=True)

    def _write(self, part: LogPart, progress: Callable[[int], None]) -> WrittenPart:
        path = new_path(self._work.folder, self._name_of(part))
        return self._work.writer.write(self._files, part, path, progress)


def held_log(identity: LogIdentity, closing: ExitStack) -> tuple[HeldFiles, LogOnDisk] | None:
    """Look at a log and hold its files, as they are at that moment.

    Returns:
        None if the log's creation was never finished.

    Raises:
        MissingFile: a listed segment is missing, or all looks came too late.
        StorageError: see `look_at_log`.
    """
    for look in range(LOOKS_MAX):
        with ExitStack() as opened:
            files = opened.enter_context(HeldFiles())
            log = look_at_log(files, identity)
            if log is None:
                return None
            try:
                files.hold(identity.directory, log.segments)
            except MissingFile:
                if look + 1 == LOOKS_MAX:
                    raise
                continue
            closing.push(opened.pop_all())
            return files, log
    raise AssertionError("the last look returns or raises")


def _last_offsets(files: HeldFiles, log: LogOnDisk, reading: Reading) -> Offsets:
    """Returns the offsets of a log's last records, in order. Raises as `LogExport.begin`."""
    with LogKeys(files, log, reading.strategy, unpaced_meter()) as keys:
        if reading.on_missing_key is OnMissingKey.FAIL and keys.has_unkeyed:
            _refuse_unkeyed(files, log)
        parts = [np.frombuffer(part, np.int64) for part in keys.last_offsets(reading.memory_bytes)]
    last = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return last[np.searchsorted(last, log.log_start_offset) :]


def _refuse_unkeyed(files: HeldFiles, log: LogOnDisk) -> None:
    offset = first_unkeyed(files, log)
    if offset is not None:
        where = log.identity.topic_partition
        raise TableRefused(
            f"{where.topic}-{where.partition}, offset {offset}: the record has no key;"
            " --on-missing-key skip leaves such records out"
        )
