"""What a look at a data directory finds out: findings by severity, and the numbers of a log.

Nothing here or in `verify*.py` changes a byte on disk.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

FINDINGS_A_FILE_MAX = 20
"""A file that is damaged all over says so this often, and then how often more."""


class Severity(enum.Enum):
    """How bad a finding is; the values are what a program reads."""

    ERROR = "error"
    """Data is damaged or missing, or the log cannot be opened as it is."""
    WARNING = "warning"
    """Something is wrong that costs no data: Kompakt works around it or makes it anew."""
    NOTE = "note"
    """Nothing is wrong, but a reader of the directory may wonder: what a crash, a running broker
    or a cleaning pass leaves, and what becomes of it."""


class Check(enum.Enum):
    """Which invariant a finding is about; the values are what a program reads."""

    DIRECTORY = "directory"
    """The files at the top of a data directory."""
    METADATA = "metadata"
    """The metadata store's log and snapshots."""
    MANIFEST = "manifest"
    """It decodes, and does not contradict itself."""
    FILES = "files"
    """The files in a log's directory are those that the manifest lists."""
    BATCH = "batch"
    """Lengths, magic, CRC, and batches in offset order within their segment."""
    RECORDS = "records"
    """What is inside a batch: it inflates, and its records are whole and in order."""
    ROW = "row"
    """A manifest's row says of its segment what the batches say."""
    INDEX = "index"
    """The entries of both indexes grow, and point to the batches that they name."""
    EPOCH = "epoch"
    """Leader epochs never go back, and are those of the checkpoint."""
    PRODUCERS = "producers"
    """Producer snapshots are what a replay of the batches gives."""
    TRANSACTIONS = "transactions"
    """Each ABORT that a reader may meet has its row, and each row its ABORT."""
    OFFSETS = "offsets"
    """Log start offset <= clean offset <= log end offset."""
    SIDECAR = "key sidecar"
    """A key sidecar says what its segment holds."""
    KEYS = "keys"
    """A cleaned section holds a key at most once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about one place."""

    severity: Severity
    check: Check
    path: str
    text: str
    position: int | None = None
    """Byte in the file, where that is known."""

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path} at byte {self.position}"
        return f"{self.severity.value}: {place}: {self.text}"


class Findings:
    """Findings as they are collected, so many a file and check, and no more."""

    __slots__ = ("_counts", "_found")

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Check, Severity]] = Counter()

    def error(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Data is damaged or missing."""
        self._add(Severity.ERROR, check, path, text, position)

    def warn(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Something is wrong that costs no data."""
        self._add(Severity.WARNING, check, path, text, position)

    def note(self, check: Check, path: str, text: str, position: int | None = None) -> None:
        """Something that may surprise and is right."""
        self._add(Severity.NOTE, check, path, text, position)

    def _add(
        self, severity: Severity, check: Check, path: str, text: str, position: int | None
    ) -> None:
        key = (path, check, severity)
        self._counts[key] += 1
        if self._counts[key] <= FINDINGS_A_FILE_MAX:
            self._found.append(
                Finding(severity=severity, check=check, path=path, text=text, position=position)
            )

    def all(self) -> tuple[Finding, ...]:
        """The findings in the order they were made, and how many more there were of a kind."""
        more = [
            Finding(
                severity=severity,
                check=check,
                path=path,
                text=f"{count - FINDINGS_A_FILE_MAX} more like these",
            )
            for (path, check, severity), count in self._counts.items()
            if count > FINDINGS_A_FILE_MAX
        ]
        return (*self._found, *more)


@dataclass(slots=True, kw_only=True)
class LogReport:
    """What a verification saw of one log."""

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
    """Everything below it was safe on disk when the manifest was written."""
    log_end_offset: int = -1
    """Behind the last sound batch."""
    latest_epoch: int = -1
    """The largest leader epoch of its batches."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Its findings that are errors."""
        return tuple(each for each in self.findings if each.severity is Severity.ERROR)


def count_by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings there are of each severity; all severities are there."""
    counts = Counter(finding.severity for finding in findings)
    return {severity: counts[severity] for severity in Severity}
