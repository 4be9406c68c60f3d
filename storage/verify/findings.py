"""The results of verifying a data directory: findings by severity, and the numbers of each log.

No module of this room changes a byte on disk.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

FINDINGS_PER_FILE_MAX = 20
"""The findings of one kind that a file lists; the rest is only counted."""


class Severity(enum.Enum):
    """How bad a finding is; programs read the values."""

    ERROR = "error"
    """Data is damaged or missing, or the log cannot be opened as it is."""
    WARNING = "warning"
    """Something is wrong that costs no data: Kompakt works around it or rebuilds it."""
    NOTE = "note"
    """Nothing is wrong, but someone who looks at the directory may wonder: the traces of a crash, of a
    running broker or of a cleaning pass, and what happens to them."""


class Check(enum.Enum):
    """The invariant that a finding is about; programs read the values."""

    DIRECTORY = "directory"
    """The files at the top of a data directory."""
    METADATA = "metadata"
    """The metadata store's log and snapshots."""
    MANIFEST = "manifest"
    """The manifest decodes and does not contradict itself."""
    FILES = "files"
    """The log's directory holds exactly the files that the manifest lists."""
    BATCH = "batch"
    """Length, magic and CRC of batches, and their offset order within the segment."""
    RECORDS = "records"
    """The contents of a batch: it decompresses, and its records are whole and in order."""
    ROW = "row"
    """A manifest's row agrees with the batches of its segment."""
    INDEX = "index"
    """The entries of both indexes grow and point to the batches that they name."""
    EPOCH = "epoch"
    """Leader epochs never decrease and agree with the checkpoint."""
    PRODUCERS = "producers"
    """Producer snapshots equal a replay of the batches."""
    TRANSACTIONS = "transactions"
    """Each ABORT that a reader may see has its row, and each row its ABORT."""
    OFFSETS = "offsets"
    """Log start offset <= clean offset <= log end offset."""
    SIDECAR = "key sidecar"
    """A key sidecar agrees with its segment."""
    CHECKPOINT = "coordinator checkpoint"
    """A checkpoint is sound, and gives a load the state that the log gives it."""
    KEYS = "keys"
    """A cleaned section holds each key at most once."""
    LEDGER = "ledger"
    """The chain of certificates is whole, and segments have the digests in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about one place."""

    severity: Severity
    check: Check
    path: str
    text: str
    position: int | None = None
    """The byte in the file, if known."""

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path} at byte {self.position}"
        return f"{self.severity.value}: {place}: {self.text}"


class Findings:
    """Collects findings; keeps a bounded number for each file and check."""

    __slots__ = ("_counts", "_found")

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Check, Severity]] = Counter()

    def error(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Report that data is damaged or missing."""
        self._add(Severity.ERROR, check, path, text, position)

    def warn(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Report something wrong that costs no data."""
        self._add(Severity.WARNING, check, path, text, position)

    def note(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Report something that may surprise but is right."""
        self._add(Severity.NOTE, check, path, text, position)

    def _add(
        self, severity: Severity, check: Check, path: str, text: str, position: int | None
    ) -> None:
        key = (path, check, severity)
        self._counts[key] += 1
        if self._counts[key] <= FINDINGS_PER_FILE_MAX:
            self._found.append(
                Finding(severity=severity, check=check, path=path, text=text, position=position)
            )

    def all(self) -> tuple[Finding, ...]:
        """Returns the findings in the order they were made, and a count of those left out."""
        more = [
            Finding(
                severity=severity,
                check=check,
                path=path,
                text=f"{count - FINDINGS_PER_FILE_MAX} more like these",
            )
            for (path, check, severity), count in self._counts.items()
            if count > FINDINGS_PER_FILE_MAX
        ]
        return (*self._found, *more)


@dataclass(slots=True, kw_only=True)
class LogReport:
    """The results of verifying one log."""

    directory: str
    topic: str
    partition: int
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    log_start_offset: int = -1
    clean_offset: int = -1
    recovery_point: int = -1
    """The offset below which everything was safe on disk when the manifest was written."""
    log_end_offset: int = -1
    """The offset after the last sound batch."""
    latest_epoch: int = -1
    """The largest leader epoch in its batches."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(each for each in self.findings if each.severity is Severity.ERROR)
