"""Counts how many logs a start has opened and recovered, and what it cut off."""

from __future__ import annotations

import threading

from storage.threads import any_thread


@any_thread
class RecoveryProgress:
    """Counters of one start, incremented by the threads that recover logs."""

    __slots__ = (
        "_lock",
        "bytes_cut_total",
        "bytes_scanned_total",
        "files_cut_total",
        "logs_opened",
        "logs_recovered_total",
        "logs_to_open",
    )

    def __init__(self) -> None:
        # Guards the counters, which several threads increment.
        self._lock = threading.Lock()
        # State
        self.logs_to_open = 0
        """The logs that the start has to open; 0 until it knows."""
        self.logs_opened = 0
        self.logs_recovered_total = 0
        """The opened logs that a clean stop had not closed."""
        self.bytes_scanned_total = 0
        self.bytes_cut_total = 0
        self.files_cut_total = 0

    def __str__(self) -> str:
        return (
            f"{self.logs_opened} of {self.logs_to_open} logs are open,"
            f" {self.bytes_scanned_total >> 20} MiB were scanned"
        )

    def opened(self) -> None:
        """Count a log that was opened, or that cannot be opened."""
        with self._lock:
            self.logs_opened += 1

    def recovered(self) -> None:
        """Count a recovered log."""
        with self._lock:
            self.logs_recovered_total += 1

    def scanned(self, bytes_count: int) -> None:
        """Count bytes after a recovery point that were scanned."""
        with self._lock:
            self.bytes_scanned_total += bytes_count

    def cut(self, bytes_count: int) -> None:
        """Count a cut: the bytes after it are kept in a file of their own."""
        with self._lock:
            self.bytes_cut_total += bytes_count
            self.files_cut_total += 1
