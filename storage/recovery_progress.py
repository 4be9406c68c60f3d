"""How far the recovery of a broker's logs has come, and what it has found so far."""

from __future__ import annotations

import threading


class RecoveryProgress:
    """Counts. The threads that recover change them, any thread reads them."""

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
        # Covers the sums, several threads at a time.
        self._lock = threading.Lock()
        # State
        self.logs_to_open = 0
        """Logs that the start has to open; 0 until it knows."""
        self.logs_opened = 0
        self.logs_recovered_total = 0
        """Those of them that were not as a clean stop leaves them."""
        self.bytes_scanned_total = 0
        self.bytes_cut_total = 0
        self.files_cut_total = 0

    def __str__(self) -> str:
        return (
            f"{self.logs_opened} of {self.logs_to_open} logs are open,"
            f" {self.bytes_scanned_total >> 20} MiB were scanned"
        )

    def opened(self) -> None:
        """A log was opened, or cannot be."""
        with self._lock:
            self.logs_opened += 1

    def recovered(self) -> None:
        """A log was recovered."""
        with self._lock:
            self.logs_recovered_total += 1

    def scanned(self, bytes_count: int) -> None:
        """Bytes behind a recovery point were scanned."""
        with self._lock:
            self.bytes_scanned_total += bytes_count

    def cut(self, bytes_count: int) -> None:
        """A log was cut, and what was behind is kept in a file."""
        with self._lock:
            self.bytes_cut_total += bytes_count
            self.files_cut_total += 1
