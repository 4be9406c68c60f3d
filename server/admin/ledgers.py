"""The ledgers of a broker's log directories: who opens, fills, reads and closes them.

    log.cleaner.ledger.enable=true     passes append; a ledger that exists is opened soon after the start,
                                       which settles the passes that a crash has ended
                                 false   a ledger that exists gets an entry that says so
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.log.cleaning_ledger import CleaningLedger, LedgerOwner
from storage.log.directory import LogDirectory
from storage.log.ledger_files import ledger_numbers
from storage.log.signing_key import open_signing_key
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.admin.ledgers")


@loop_thread
class CleaningLedgers:
    """One ledger for each log directory."""

    __slots__ = ("_all", "_files", "_is_enabled")

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
            for each in directories
        }

    @property
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

    def close(self) -> None:
        """Close the files. Call it after the last pass has ended."""
        for ledger in self._all.values():
            ledger.close()


def _owner(files: FileSystem, directory: LogDirectory) -> LedgerOwner:
    return LedgerOwner(
        cluster_id=directory.meta.cluster_id,
        directory_id=directory.directory_id,
        public_key=open_signing_key(files, directory.path).public,
    )
