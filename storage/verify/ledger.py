"""Verifies a log directory's ledger of passes against itself, the segments, and anchors.

    the chain       each entry has the hash of its bytes, and names the hash of the one before it
    the segments    each one that the cleaner wrote has a certificate, and its bytes have that digest
    the anchor      the chain has the entry that a signed head names

The manifests are read before the ledger: so a broker may be cleaning meanwhile, because a certificate is
durable before the manifest that lists its segments. Nothing is changed, and no lock is taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, join
from storage.formats.config_property import LONG_MAX
from storage.formats.content_digest import DIGEST_KINDS, ContentDigest, kind_of_digest
from storage.formats.ledger_chain import Chain
from storage.formats.ledger_entry import (
    BEGIN,
    GROUP,
    NEW_KEY,
    NO_HASH,
    NO_HEAD,
    OFF,
    ON,
    PASS,
    REMOVED,
    SETTLED,
    Entry,
    Head,
    Line,
    file_name,
    lines_of,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import SegmentRow, decode
from storage.formats.meta_properties import read_meta_properties
from storage.ledger.ledger_files import ledger_folder, ledger_numbers, ledger_path
from storage.ledger.ledger_head import SignedHead
from storage.segment.listed_file import listed_file, open_listed
from storage.verify.findings import Check, Finding, Findings, Severity

READ_BYTES = 1 << 20
READ_AGAIN_MAX = 3
"""How often a file is read again whose last line is being written."""

Key = tuple[uuid.UUID, int, int, int]
"""Topic id, partition, base offset and file version of a segment."""


@dataclass(frozen=True, slots=True)
class CleanedOnDisk:
    """A segment that the cleaner wrote, as a manifest lists it."""

    identity: LogIdentity
    row: SegmentRow


@dataclass(frozen=True, slots=True)
class _Certificate:
    number: int
    digest: str
    bytes: int


@dataclass(slots=True, kw_only=True)
class LedgerReport:
    """The results of verifying one ledger."""

    path: str
    """The log directory."""
    entries: int = 0
    first: int = -1
    """The first entry that is kept."""
    head: Head = NO_HEAD
    passes: int = 0
    """Passes with an end, completed or not."""
    groups: int = 0
    segments: int = 0
    """Segments in the manifests that the cleaner wrote."""
    recomputed: int = 0
    """Those whose digest was computed again, and is that of the certificate."""
    recomputed_bytes: int = 0
    shortened: int = 0
    """Those that a truncation has cut since, so that their digest says nothing."""
    older: int = 0
    """Those without a certificate that are older than the first entry that is kept."""
    without_ledger: int = 0
    """Those without one that passes wrote while the ledger was off."""
    anchors: int = 0
    """The anchors that hold; every other one has a finding."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return all(each.severity is Severity.NOTE for each in self.findings)


def cleaned_segments(fs: FileSystem, logs: tuple[LogIdentity, ...]) -> dict[Key, CleanedOnDisk]:
    """Returns the segments that the cleaner wrote, from the manifests; unreadable ones are left out."""
    found: dict[Key, CleanedOnDisk] = {}
    for identity in logs:
        for row in _rows(fs, identity):
            if row.is_cleaned:
                key = (
                    identity.topic_id,
                    identity.topic_partition.partition,
                    row.base_offset,
                    row.file_version,
                )
                found[key] = CleanedOnDisk(identity, row)
    return found


def _rows(fs: FileSystem, identity: LogIdentity) -> tuple[SegmentRow, ...]:
    path = join(identity.directory, MANIFEST)
    try:
        return decode(fs.read_bytes(path), path).segments
    except (DiskError, DamagedFile, FormatFromTheFuture):
        return ()  # `kompakt dump-log --verify` reports it.


def anchors_by_path(
    fs: FileSystem, paths: Iterable[str], anchors: Iterable[SignedHead]
) -> dict[str, list[SignedHead]]:
    """Returns the anchors of each log directory. Raises ValueError: an anchor is of none of them."""
    ids = {path: directory_id(fs, path) for path in paths}
    found: dict[str, list[SignedHead]] = {path: [] for path in ids}
    for anchor in anchors:
        owners = [path for path, its_id in ids.items() if its_id == anchor.directory]
        if not owners:
            raise ValueError(f"an anchor is of log directory {anchor.directory}, which is not here")
        found[owners[0]].append(anchor)
    return found


def directory_id(fs: FileSystem, path: str) -> str | None:
    """Returns the id of a log directory; None if its label is missing or damaged."""
    try:
        found = read_meta_properties(fs, path)
    except (DamagedFile, FormatFromTheFuture):
        return None
    return None if found is None else found.directory_id


class LedgerVerification:
    """One verification of one ledger. Used by one thread."""

    __slots__ = (
        "_anchored", "_anchors", "_certificates", "_findings", "_fs", "_keys", "_not_swapped", "_off",
        "_on_disk", "_path", "_progress", "_removed", "_report",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        on_disk: Mapping[Key, CleanedOnDisk],
        *,
        anchors: Sequence[SignedHead] = (),
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        """
        Args:
            path: the log directory.
            on_disk: from `cleaned_segments`, read before this object is made.
            anchors: of this directory; the chain must have them.
            progress: receives the bytes of segments as they are read; what it raises ends the run.
        """
        # Constant after construction
        self._fs = fs
        self._path = path
        self._on_disk = on_disk
        self._anchors = anchors
        self._progress = progress
        # State
        self._report = LedgerReport(path=path, segments=len(on_disk))
        self._findings = Findings()
        self._certificates: dict[Key, _Certificate] = {}
        """Of the segments on disk only."""
        self._not_swapped: set[int] = set()
        self._off: list[tuple[int, int]] = []
        """The times in which passes ran without the ledger."""
        self._removed: set[tuple[int, str]] = set()
        self._keys: set[str] = set()
        self._anchored: dict[int, str] = dict.fromkeys((each.number for each in anchors), "")
        """The hashes of the entries that anchors name; empty: not seen."""

    def run(self) -> LedgerReport:
        """Verify. Returns the report, which has everything that is wrong.

        Raises:
            DiskError: the ledger cannot be read.
        """
        first = self._follow()
        if first is None:
            self._no_ledger()
        else:
            self._check_beginning(first)
            for key, found in self._on_disk.items():
                self._check_segment(found, self._certificates.get(key), first.at_ms)
        for anchor in self._anchors:
            self._check_anchor(anchor)
        self._report.findings = self._findings.all()
        return self._report

    def _no_ledger(self) -> None:
        folder = ledger_folder(self._path)
        if self._on_disk:
            text = "there is no ledger, but there are segments that passes wrote"
            self._findings.warn(Check.LEDGER, folder, text)
        else:
            text = "there is no ledger, and no segment that a pass wrote"
            self._findings.note(Check.LEDGER, folder, text)

    # ---------------------------------------------------------------- the chain

    def _follow(self) -> Entry | None:
        """Follow the chain through all files. Returns the first entry; None if there is none."""
        chain, first = Chain(None), None
        numbers = ledger_numbers(self._fs, self._path)
        for number in numbers:
            lines = self._lines(number, is_newest=number == numbers[-1])
            for line in lines:
                problem = chain.take(line)
                if problem is not None:
                    self._error(number, problem, line.position)
                if line.entry is not None:
                    first = first or line.entry
                    self._take(line.entry)
            self._check_first(number, lines)
        if chain.head is not None:
            self._report.head = chain.head
        return first

    def _lines(self, number: int, *, is_newest: bool) -> list[Line]:
        """Returns the lines of a file, of the newest one without a torn end."""
        path = ledger_path(self._path, number)
        lines = list(lines_of(self._fs.read_bytes(path)))
        for _ in range(READ_AGAIN_MAX if is_newest else 0):
            if not lines or lines[-1].entry is not None:
                return lines
            lines = list(lines_of(self._fs.read_bytes(path)))
        if is_newest:
            self._cut_torn_end(path, lines)
        return lines

    def _cut_torn_end(self, path: str, lines: list[Line]) -> None:
        torn = 0
        while lines and lines[-1].entry is None:
            torn += lines.pop().size
        if not torn:
            return
        end = lines[-1].position + lines[-1].size if lines else 0
        text = (
            f"the last {torn} bytes are not an entry: a crash tore them, or they are damaged; the next"
            " start cuts them off and keeps them"
        )
        self._findings.warn(Check.LEDGER, path, text, end)

    def _check_first(self, number: int, lines: list[Line]) -> None:
        entry = lines[0].entry if lines else None
        if entry is None:
            return  # Reported as damage, or torn.
        if entry.kind != BEGIN or entry.number != number:
            text = f"it begins with entry {entry.number}, of kind {entry.kind}"
            self._error(number, text, 0)
        elif entry.members.get("directory") != directory_id(self._fs, self._path):
            text = f"it is the ledger of another log directory, {entry.members.get('directory')}"
            self._error(number, text, 0)

    def _take(self, entry: Entry) -> None:
        report, members = self._report, entry.members
        report.entries += 1
        report.first = entry.number if report.first < 0 else report.first
        if entry.number in self._anchored:
            self._anchored[entry.number] = entry.hash
        if entry.kind == GROUP:
            report.groups += 1
            self._take_group(entry)
        elif entry.kind in (PASS, SETTLED):
            report.passes += 1
            self._not_swapped.update(members["not_swapped"])
        else:
            self._take_event(entry)

    def _take_event(self, entry: Entry) -> None:
        members = entry.members
        if entry.kind == BEGIN:
            self._keys.add(members["public_key"])
        elif entry.kind == NEW_KEY:
            self._keys.add(members["key"])
        elif entry.kind == OFF:
            self._off.append((entry.at_ms, LONG_MAX))
        elif entry.kind == ON and self._off:
            self._off[-1] = (self._off[-1][0], entry.at_ms)
        elif entry.kind == REMOVED:
            self._removed.add((members["through"], members["hash"]))

    def _take_group(self, entry: Entry) -> None:
        members = entry.members
        topic_id, partition = uuid.UUID(members["topic_id"]), members["partition"]
        for output in members["outputs"]:
            key = (topic_id, partition, output["base_offset"], output["version"])
            if key in self._on_disk:
                # A swap that a crash prevented may have had the same names: the last one counts.
                certificate = _Certificate(entry.number, output["digest"], output["bytes"])
                self._certificates[key] = certificate

    def _check_beginning(self, first: Entry) -> None:
        is_whole = first.number == 0 and first.previous == NO_HASH
        if not is_whole and (first.number - 1, first.previous) not in self._removed:
            text = (
                f"the entries before {first.number} are missing, and no entry says that they were"
                " removed because of log.cleaner.ledger.bytes.max"
            )
            self._error(first.number, text, 0)

    # ---------------------------------------------------------------- the segments

    def _check_segment(
        self, found: CleanedOnDisk, certificate: _Certificate | None, began_ms: int
    ) -> None:
        row, report = found.row, self._report
        path = listed_file(self._fs, found.identity.directory, found.row, LOG)
        if certificate is None:
            if row.created_ms <= began_ms:
                report.older += 1
            elif any(off <= row.created_ms < on for off, on in self._off):
                report.without_ledger += 1
            else:
                self._findings.error(
                    Check.LEDGER, path, "the cleaner wrote it, and no entry has it"
                )
        elif certificate.number in self._not_swapped:
            text = f"entry {certificate.number} has it, but its group was not swapped"
            self._findings.error(Check.LEDGER, path, text)
        elif row.size < certificate.bytes:
            report.shortened += 1
        else:
            self._check_digest(found, path, certificate)

    def _check_digest(self, found: CleanedOnDisk, path: str, certificate: _Certificate) -> None:
        kind = kind_of_digest(certificate.digest)
        if kind not in DIGEST_KINDS:
            text = f"entry {certificate.number} has a digest of a later release: {kind[:20]}"
            self._findings.warn(Check.LEDGER, path, text)
            return
        try:
            digest = self._digest(found, kind)
        except MissingFile:
            if found.row in _rows(self._fs, found.identity):
                self._findings.error(Check.LEDGER, path, "it is missing")
            return  # Otherwise the broker has replaced it meanwhile.
        if digest == certificate.digest:
            self._report.recomputed += 1
            self._report.recomputed_bytes += found.row.size
        else:
            text = (
                f"its digest is {digest}, entry {certificate.number} says {certificate.digest}:"
                " its bytes are not those that the pass wrote"
            )
            self._findings.error(Check.LEDGER, path, text)

    def _digest(self, found: CleanedOnDisk, kind: str) -> str:
        digest, size = ContentDigest(kind), found.row.size
        file = open_listed(self._fs, found.identity.directory, found.row, LOG)
        try:
            for position in range(0, size, READ_BYTES):
                data = file.read_at(position, min(READ_BYTES, size - position))
                digest.update(data)
                self._progress(len(data))
        finally:
            file.close()
        return str(digest)

    # ---------------------------------------------------------------- the anchor

    def _check_anchor(self, anchor: SignedHead) -> None:
        problem = self._problem_with(anchor)
        if problem is None:
            self._report.anchors += 1
        else:
            self._findings.error(Check.LEDGER, ledger_folder(self._path), problem)

    def _problem_with(self, anchor: SignedHead) -> str | None:
        """Returns what is wrong with the anchor, or with the chain by it; None if nothing is."""
        if not anchor.is_signed:
            return "the signature of the anchor is not that of its public key"
        if anchor.directory != directory_id(self._fs, self._path):
            return f"the anchor belongs to another log directory, {anchor.directory}"
        if anchor.number < self._report.first:
            return f"entry {anchor.number} of the anchor was removed: the anchor proves nothing"
        if not self._anchored[anchor.number]:
            return (
                f"the anchor names entry {anchor.number}, the ledger ends with"
                f" {self._report.head.number}: entries are missing"
            )
        if self._anchored[anchor.number] != anchor.hash:
            return f"entry {anchor.number} has another hash than in the anchor: the chain was rewritten"
        if anchor.public_key not in self._keys:
            return f"the ledger does not name the public key of the anchor, {anchor.public_key}"
        return None

    def _error(self, number: int, text: str, position: int) -> None:
        path = join(ledger_folder(self._path), file_name(number))
        self._findings.error(Check.LEDGER, path, text, position)
