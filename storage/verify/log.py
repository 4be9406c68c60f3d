"""Verifies one log's directory: every file against the manifest, every batch against every other file.

It reads each byte of a segment once, front to back, and keeps memory for the log's producers and epochs
only. A directory in use changes meanwhile: if something was wrong and the manifest or the names have
changed, the log is verified again.
"""

from __future__ import annotations

from functools import partial

from protocol.records.batch_scan import ScannedBatch
from protocol.wire.numbers import Offset
from storage.files.errors import (
    DamagedFile,
    DiskError,
    FormatFromTheFuture,
    LogOffline,
    MissingFile,
)
from storage.files.files import FileSystem
from storage.files.paths import CLEANED, LOG, MANIFEST, OFFSET_INDEX, TIME_INDEX, join, segment_file
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, decode
from storage.segment.rebuild import rebuild_manifest
from storage.verify.aborted import AbortedVerification
from storage.verify.findings import Check, Findings, LogReport, Severity
from storage.verify.index import IndexVerification
from storage.verify.kept import check_undo_file
from storage.verify.manifest import check_manifest, explain_names
from storage.verify.segment import Progress, SegmentContents, SegmentVerification, Take
from storage.verify.states import EpochVerification, ProducerVerification

ATTEMPTS_MAX = 8
"""How often a log is verified that changes during each verification."""


def verify_log(
    fs: FileSystem,
    identity: LogIdentity,
    *,
    was_clean: bool = False,
    progress: Progress = lambda count: None,
) -> LogReport:
    """Check every file of a log. The report has everything wrong, including files that are unreadable.

    Args:
        was_clean: whether the log directory says that its last stop was clean.
        progress: receives the number of bytes of segments as they are read.
    """
    before = _state(fs, identity)
    for _ in range(ATTEMPTS_MAX - 1):
        report = _verify_once(fs, identity, was_clean, progress)
        after = _state(fs, identity)
        if before == after or all(each.severity is Severity.NOTE for each in report.findings):
            return report
        before = after
    return _verify_once(fs, identity, was_clean, progress)


def _state(fs: FileSystem, identity: LogIdentity) -> tuple[bytes, list[str]] | None:
    """Returns what a swap, a roll or a truncation changes; None if it cannot be read."""
    try:
        manifest = fs.read_bytes(join(identity.directory, MANIFEST))
        return manifest, fs.list(identity.directory)
    except DiskError:
        return None


def _verify_once(
    fs: FileSystem, identity: LogIdentity, was_clean: bool, progress: Progress
) -> LogReport:
    findings = Findings()
    report = LogReport(
        directory=identity.directory,
        topic=identity.topic_partition.topic,
        partition=identity.topic_partition.partition,
    )
    try:
        manifest = _manifest_of(fs, identity, findings)
        if manifest is not None:
            check_manifest(manifest, identity, findings)
            if manifest.segments:
                _Verification(fs, identity, manifest, was_clean, findings, report, progress).run()
    except DiskError as error:
        findings.error(Check.FILES, error.path, str(error))
    report.findings = findings.all()
    return report


def _manifest_of(fs: FileSystem, identity: LogIdentity, findings: Findings) -> Manifest | None:
    """Returns the manifest, or one rebuilt from the segments; None if neither is possible."""
    path = join(identity.directory, MANIFEST)
    names = fs.list(identity.directory)
    if not any(name == MANIFEST or fs.size(join(identity.directory, name)) for name in names):
        text = "the log's creation was never finished; the next start creates it again"
        findings.note(Check.FILES, identity.directory, text)
        return None
    try:
        return decode(fs.read_bytes(path), path)
    except FormatFromTheFuture as error:
        findings.error(Check.MANIFEST, path, str(error))
        return None
    except (DamagedFile, MissingFile) as error:
        reason = error.reason if isinstance(error, DamagedFile) else "it is missing"
        text = f"{reason}; an unclean start rebuilds it from names and batches"
        findings.error(Check.MANIFEST, path, text)
    try:
        return rebuild_manifest(fs, identity)
    except LogOffline as error:
        findings.error(Check.MANIFEST, path, f"it cannot be rebuilt: {error.reason}")
        return None


class _Verification:
    """One verification of the files of a log whose manifest is known."""

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        manifest: Manifest,
        was_clean: bool,
        findings: Findings,
        report: LogReport,
        progress: Progress,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = identity.directory
        self._manifest = manifest
        self._was_clean = was_clean
        self._progress = progress
        names = fs.list(identity.directory)
        self._sizes = {name: fs.size(join(identity.directory, name)) for name in names}
        kept_names = check_undo_file(fs, identity.directory, manifest, findings)
        self._files = explain_names(manifest, identity.directory, self._sizes, findings, kept_names)
        # State
        self._findings = findings
        self._report = report
        tail = manifest.segments[-1]
        report.recovery_point = tail.base_offset if tail.end_offset == UNKNOWN else tail.end_offset
        self._epochs = EpochVerification(
            fs,
            identity.directory,
            log_start_offset=manifest.log_start_offset,
            recovery_point=report.recovery_point,
            findings=findings,
            is_foreign=manifest.has_foreign_states,
        )
        snapshots = () if manifest.has_foreign_states else self._files.snapshot_offsets
        self._producers = ProducerVerification(fs, identity.directory, snapshots, findings)
        self._aborted = AbortedVerification(
            fs,
            identity.directory,
            start_offset=max(manifest.clean_offset, manifest.log_start_offset),
            must_exist=manifest.has_aborted_file,
            findings=findings,
            is_foreign=manifest.has_foreign_states,
        )

    def run(self) -> None:
        """Verify everything."""
        log_end_offset = self._verify_segments(self._manifest)
        self._epochs.finish(log_end_offset)
        self._report.latest_epoch = self._epochs.latest
        self._producers.finish(log_end_offset, is_truncating=self._manifest.truncate_to != UNKNOWN)
        known_to = max(self._files.snapshot_offsets, default=0)
        self._aborted.finish(log_end_offset, known_to=known_to)
        self._check_offsets(self._manifest, log_end_offset)

    # ---------------------------------------------------------------- segments

    def _verify_segments(self, manifest: Manifest) -> Offset:
        """Verify the listed segments and those that continue the last one. Returns the log's end."""
        found: SegmentContents | None = None
        for row in manifest.segments:
            found = self._verify_listed(row, is_last=row is manifest.segments[-1])
        end_offset = max(manifest.segments[-1].base_offset, manifest.segments[-1].end_offset)
        continuing = dict(self._files.continuing)
        while found is not None:
            end_offset = max(end_offset, found.end_offset)
            following = continuing.pop(end_offset, None) if found.is_whole else None
            if following is None:
                break
            row = SegmentRow(base_offset=following.base_offset, file_version=following.version)
            found = self._verify_segment(row, is_settled=False)
        for file in continuing.values():
            name = segment_file(file.base_offset, file.version, LOG)
            if self._sizes[name]:
                text = "it lies past the log's end; recovery sets it aside"
                self._findings.warn(Check.FILES, join(self._directory, name), text)
        return end_offset

    def _verify_listed(self, row: SegmentRow, *, is_last: bool) -> SegmentContents | None:
        name = self._name(row, LOG)
        path = join(self._directory, name)
        if name not in self._sizes:
            self._findings.error(Check.FILES, path, "the manifest lists it, but it is missing")
            return None
        if name.endswith(CLEANED):
            text = "a swap has not renamed it yet; recovery finishes the swap"
            self._findings.note(Check.FILES, path, text)
        size = self._sizes[name]
        if size < row.size:
            text = f"it has {size} bytes, but the manifest says {row.size}"
            self._findings.error(Check.FILES, path, text)
        elif size > row.size and not is_last:
            self._report_longer(row, path, size)
        elif is_last and self._was_clean and size != row.size:
            text = "the last stop is marked as clean, but the manifest does not know the file's end"
            self._findings.error(Check.DIRECTORY, path, text)
        # An empty active segment may be a new one, which has no index files yet.
        is_settled = not is_last or size == row.size > 0
        return self._verify_segment(row, is_settled=is_settled, is_last=is_last)

    def _report_longer(self, row: SegmentRow, path: str, size: int) -> None:
        text = f"it has {size - row.size} bytes more than the manifest says"
        if self._manifest.truncate_to != UNKNOWN:
            self._findings.note(Check.FILES, path, f"{text}, which recovery cuts off")
        else:
            self._findings.warn(Check.FILES, path, text)

    def _verify_segment(
        self, row: SegmentRow, *, is_settled: bool, is_last: bool = True
    ) -> SegmentContents:
        path = join(self._directory, self._name(row, LOG))
        index = IndexVerification(
            self._fs,
            join(self._directory, self._name(row, OFFSET_INDEX)),
            join(self._directory, self._name(row, TIME_INDEX)),
            base_offset=row.base_offset,
            is_settled=is_settled,
            findings=self._findings,
        )
        manifest = self._manifest
        verification = SegmentVerification(
            row,
            (index.take, self._epoch_taker(path), self._producers.take, self._aborted.take),
            cleaned=range(manifest.log_start_offset, manifest.clean_offset - 1),
            is_truncated=manifest.generation > 0,
            findings=self._findings,
            report=self._report,
        )
        self._report.segments += 1
        file = self._fs.open(path)
        try:
            size = file.size if is_last else min(file.size, row.size)
            found = verification.run(file, size, self._progress)
        finally:
            file.close()
        index.finish()
        return found

    def _name(self, row: SegmentRow, kind: str) -> str:
        """Returns the name of a segment's file, staged if a swap has not renamed it yet."""
        final = segment_file(row.base_offset, row.file_version, kind)
        staged = segment_file(row.base_offset, row.file_version, kind, cleaned=True)
        return staged if final not in self._sizes and staged in self._sizes else final

    def _epoch_taker(self, path: str) -> Take:
        return partial(_take_epoch, self._epochs, path)

    # ---------------------------------------------------------------- the whole

    def _check_offsets(self, manifest: Manifest, log_end_offset: int) -> None:
        report, path = self._report, join(self._directory, MANIFEST)
        report.log_start_offset = manifest.log_start_offset
        report.clean_offset = manifest.clean_offset
        report.log_end_offset = log_end_offset
        if manifest.log_start_offset > log_end_offset:
            text = f"the log starts at {manifest.log_start_offset} and ends at {log_end_offset}"
            self._findings.error(Check.OFFSETS, path, text)
        if manifest.clean_offset > log_end_offset:
            text = f"it is clean up to {manifest.clean_offset} but ends at {log_end_offset}"
            self._findings.error(Check.OFFSETS, path, text)


def _take_epoch(
    epochs: EpochVerification, path: str, batch: ScannedBatch, position: int, _: memoryview
) -> None:
    epochs.take(batch, path, position)
