"""Opens, fills, reads and closes the ledgers of a broker's log directories.

log.cleaner.ledger.enable=true     passes append; a ledger that exists is opened soon after the start,
                                   which settles the passes that a crash has ended
                             false   a ledger that exists gets an entry that says so
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from cleaner.inspect.key_search import KeyHistory
from cleaner.inspect.ledger_passes import (
    PASSES_MAX,
    LedgerPass,
    departures,
    passes_of,
    wanted_bytes,
)
from cleaner.rules.text import count_text
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.signing_key import SigningKey
from storage.formats.ledger_entry import UNDONE
from storage.formats.manifest import SegmentRow
from storage.ledger.cleaning_ledger import CleaningLedger, LedgerOwner
from storage.ledger.ledger_files import ledger_numbers, read_entries
from storage.ledger.ledger_head import SignedHead, signed_head
from storage.log.cleaning import Undone
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.ledger.ledgers")


@loop_thread
class CleaningLedgers:
    """One ledger for each log directory."""

    __slots__ = ("_all", "_directories", "_files", "_is_enabled")

    def __init__(
        self,
        files: FileSystem,
        directories: Iterable[LogDirectory],
        *,
        is_enabled: bool,
        bytes_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        # Constant after construction
        self._files = files
        self._directories = tuple(directories)
        self._is_enabled = is_enabled
        self._all = {
            each.directory_id: CleaningLedger(
                files,
                each.path,
                owner=partial(_owner, files, each),
                bytes_max=bytes_max,
                now_ms=now_ms,
                on_failure=each.disk_failed,
            )
            for each in self._directories
        }

    @property
    @any_thread
    def enabled(self) -> Mapping[str, CleaningLedger]:
        """The ledgers that passes append to, by the ids of their directories."""
        return self._all if self._is_enabled else {}

    @property
    @any_thread
    def breaks(self) -> int:
        """How many broken chains this run has found when it opened ledgers."""
        return sum(each.breaks for each in self._all.values())

    @any_thread
    def begin(self) -> None:
        """Open the ledgers that exist, or record that they are off. A worker thread."""
        for ledger in self._all.values():
            try:
                if not self._is_enabled:
                    ledger.turn_off()
                elif ledger_numbers(self._files, ledger.directory):
                    ledger.open()
            except StorageError as error:
                _log.error("%s: cannot open the ledger of passes: %s", ledger.directory, error)

    @property
    @any_thread
    def paths(self) -> list[str]:
        """The log directories that are in service."""
        return [each.path for each in self._directories if each.offline_reason is None]

    @any_thread
    def passes(
        self,
        *,
        topic: str | None = None,
        topic_id: str | None = None,
        partition: int | None = None,
        limit: int = PASSES_MAX,
    ) -> list[LedgerPass]:
        """Returns the last passes that changed a log, oldest first. A worker thread: it reads all files.

        Raises:
            DiskError: a ledger cannot be read.
        """
        found: list[LedgerPass] = []
        for path in self.paths:
            entries = read_entries(self._files, path, wanted=wanted_bytes(topic, topic_id))
            found += passes_of(
                entries, topic=topic, topic_id=topic_id, partition=partition, limit=limit
            )
        return sorted(found, key=lambda each: each.at_ms)[-limit:]

    @any_thread
    def heads(self) -> list[SignedHead]:
        """Returns the signed heads of all ledgers. A worker thread.

        Raises:
            DamagedFile, DiskError: a ledger or a key cannot be read.
        """
        heads = [signed_head(self._files, path) for path in self.paths]
        return [each for each in heads if each is not None]

    @any_thread
    def departures(self, log: PartitionLog, history: KeyHistory) -> tuple[str, ...]:
        """Returns sentences that say when older records of a key went. A worker thread.

        Raises:
            DiskError: a ledger cannot be read.
        """
        if history.last_offset is None and not history.is_gone:
            return ()
        passes = self.passes(topic_id=str(log.topic_id), partition=log.topic_partition.partition)
        config = log.config
        keeps_last_only = not (
            config.strategy.has_versions
            or config.history.keeps_more
            # The pass that reaches the current record may leave a segment with older ones.
            or config.spares_segments
            or log.has_history
        )
        return tuple(departures(passes, history.last_offset, keeps_last_only=keeps_last_only))

    @any_thread
    def undone(self, log: PartitionLog, undone: Undone) -> None:
        """Record that a pass was undone. A worker thread.

        An entry that cannot be written is no error of the undo, which has happened.
        """
        _log.warning(
            "%s: pass %d was undone: %s put back, %s removed",
            log.topic_partition,
            undone.number,
            count_text(undone.segments_restored, "segment"),
            count_text(undone.segments_removed, "segment"),
        )
        ledger = self.enabled.get(log.identity.directory_id)
        if ledger is None:
            return
        members = {
            "topic": log.topic_partition.topic,
            "topic_id": str(log.topic_id),
            "partition": log.topic_partition.partition,
            "number": undone.number,
            "sources": [_named(row) for row in undone.sources],
            "outputs": [_named(row) for row in undone.outputs],
            "clean_offset": undone.clean_offset,
        }
        try:
            ledger.append(UNDONE, members)
        except StorageError as error:
            _log.error("%s: the ledger does not have the undo: %s", log.topic_partition, error)

    @any_thread
    def close(self) -> None:
        """Close the files. Call it after the last pass has ended. A worker thread."""
        for ledger in self._all.values():
            ledger.close()


def _named(row: SegmentRow) -> dict[str, int]:
    return {"base_offset": row.base_offset, "version": row.file_version}


def _owner(files: FileSystem, directory: LogDirectory) -> LedgerOwner:
    return LedgerOwner(
        cluster_id=directory.meta.cluster_id,
        directory_id=directory.directory_id,
        public_key=SigningKey.load_or_create(files, directory.path).public_key.hex(),
    )
