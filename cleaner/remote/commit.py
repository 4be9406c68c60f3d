"""Commit an executor's result: check -> index -> take -> verify -> swap, in a thread of the broker.

    check    the result against the plan: the sources of a group are neighbours, its outputs cover them
    index    every source has a key sidecar, an existing one or one that the executor made
    take     move every output from the lease's folder to the log's directory; nothing lists it yet
    verify   read each output again with the second reader: rows, account, digest; and compare keys, so
             that every missing record is one that the broker itself finds superseded (`check.py`)
    swap     group by group, oldest first: `LogCleaning.swap` replaces the sources in one manifest
             commit, unless the log's generation has changed or a source is no longer listed
             (`storage/log/cleaning.py`)

All groups are taken and verified before the first swap, so a wrong result leaves the log as it was.
After a crash the log has the groups that were swapped before it, as in a local pass; recovery removes
the files of the others.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise

from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.certificate import NO_CERTIFICATES, PassCertificates
from cleaner.passes.index import IndexedSegment, SegmentIndex
from cleaner.passes.verify_pass import PassVerifier, VerificationFailed, offsets_text
from cleaner.remote.check import KeyCheck, KeysLost
from cleaner.remote.plan import GroupResult, RemoteResult
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.report import PassReport
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from storage.files.errors import (
    CorruptLog,
    DamagedSidecar,
    DiskError,
    NoSpace,
    SegmentRemoved,
    StorageError,
    SwapRefused,
    SyncFailed,
)
from storage.files.paths import KEYS, join, segment_file
from storage.formats.manifest import FLAG_CLEANED, UNKNOWN, SegmentRow
from storage.log.cleaning import LogCleaning
from storage.log.cleaning_view import CleanableSegment
from storage.log.log import PartitionLog
from storage.segment.cleaned_segment import CleanedSegment, discard_staged


class ResultRefused(Exception):
    """A result does not match its plan or its files. The log is unchanged."""


def commit(
    log: PartitionLog,
    plan: CleaningPlan,
    folder: str,
    result: RemoteResult,
    settings: CleanerSettings,
    *,
    meter: PassMeter,
    monotonic: Callable[[], float],
    certificates: PassCertificates = NO_CERTIFICATES,
) -> PassReport:
    """Replace the sources by an executor's outputs. Returns the report of the pass.

    Args:
        folder: the lease's folder.
        certificates: as for `cleaner.passes.clean.clean`.

    Raises:
        ResultRefused: the outputs are not what the plan requires, or cannot be read.
        CleaningAborted: the meter's `check` found that the commit was asked to stop, or that the log was
            truncated, deleted or reconfigured.
        SwapRefused: the same was found by a swap, or a source is no longer listed; groups that were
            swapped before stay.
        StorageError: the disk failed.
    """
    started = monotonic()
    check_result(plan, result)
    with (
        certificates.ended() as ended,
        _refuse_if_removed(),
        SegmentIndex(plan.view.hash_key, settings, meter, is_thorough=True) as index,
    ):
        covered = plan.segments_from(plan.view.log_start_offset)
        _take_sidecars(covered, folder, result, plan.view.hash_key)
        segments = index.index_segments(covered)
        report = _commit(
            log, plan, folder, result, settings, segments, meter, monotonic, certificates
        )
        report = replace(report, sidecars_built=index.built, seconds=monotonic() - started)
        return ended(replace(report, pass_id=certificates.pass_id))


def _take_sidecars(
    segments: Sequence[CleanableSegment], folder: str, result: RemoteResult, hash_key: bytes
) -> None:
    """Take the sidecars that the executor made; `SegmentIndex` rebuilds those that are damaged.

    Where a segment has one already, the executor has found it to be wrong, or it was made meanwhile. The
    broker trusts neither, and `SegmentIndex` makes it again from the segment.
    """
    made = {each.row: each.attempt for each in result.keys}
    for segment in segments:
        attempt = made.get(segment.row)
        if attempt is None:
            continue
        if segment.key_sidecar(hash_key) is not None:
            segment.drop_key_sidecar()
        else:
            name = segment_file(segment.row.base_offset, segment.row.file_version, KEYS)
            with suppress(DamagedSidecar, DiskError):
                segment.take_key_sidecar(join(join(folder, attempt), name), hash_key)


@contextmanager
def _refuse_if_removed() -> Iterator[None]:
    """Raise SwapRefused for a source that retention or another pass has removed meanwhile."""
    try:
        yield
    except SegmentRemoved as error:
        raise SwapRefused(str(error)) from error


def _commit(
    log: PartitionLog,
    plan: CleaningPlan,
    folder: str,
    result: RemoteResult,
    settings: CleanerSettings,
    segments: Sequence[IndexedSegment],
    meter: PassMeter,
    monotonic: Callable[[], float],
    certificates: PassCertificates,
) -> PassReport:
    check = KeyCheck(plan, segments, settings, meter=meter, choose=secrets.randbelow)
    _expect(
        check.end_offset == result.end_offset,
        f"it ends at offset {result.end_offset}, its transactions require {check.end_offset}",
    )
    verifier = PassVerifier(replace(settings, verify=True), meter=meter, monotonic=monotonic)
    taken = _TakenOutputs(log, plan, folder)
    try:
        outputs = [taken.take_group(group) for group in result.groups]
        meter.progress.enter(Phase.VERIFY)
        for group, cleaned in zip(result.groups, outputs, strict=True):
            _verify(plan, group, cleaned, verifier)
        _check_keys(segments, result, outputs, check)
        meter.check()
        undo_number = _swap(log.cleaning, plan, result, outputs, taken, certificates)
    except BaseException:
        taken.discard()
        raise
    return replace(
        _report(plan, result, meter, verifier),
        keys_mapped=check.keys,
        parts=check.parts,
        undo_number=undo_number,
    )


class _TakenOutputs:
    """The outputs that were moved to the log's directory but are not listed in the manifest yet."""

    __slots__ = ("_folder", "_log", "_plan", "_unlisted")

    def __init__(self, log: PartitionLog, plan: CleaningPlan, folder: str) -> None:
        # Constant after construction.
        self._log = log
        self._plan = plan
        self._folder = folder
        # State.
        self._unlisted: list[CleanedSegment] = []

    def take_group(self, group: GroupResult) -> tuple[CleanedSegment, ...]:
        """Take a group's outputs. Raises ResultRefused, or StorageError if the disk fails."""
        return tuple(self._take(group, row) for row in _broker_rows(group, self._plan.stamp_ms))

    def _take(self, group: GroupResult, row: SegmentRow) -> CleanedSegment:
        try:
            segment = self._log.cleaning.take_cleaned_segment(
                join(self._folder, group.attempt), row
            )
        except (NoSpace, SyncFailed):
            raise
        except (DiskError, CorruptLog) as error:
            raise ResultRefused(f"an output cannot be taken: {error}") from error
        self._unlisted.append(segment)
        return segment

    def leave_to_the_manifest(self, cleaned: Sequence[CleanedSegment]) -> None:
        """Forget outputs that a swap has listed, or may have listed: then the next recovery decides."""
        self._unlisted = [each for each in self._unlisted if each not in cleaned]

    def discard(self) -> None:
        """Remove the outputs that no manifest lists; if that fails, the next recovery removes them."""
        for each in self._unlisted:
            with suppress(StorageError):
                discard_staged(each.fs, each.directory, each.row.base_offset, each.row.file_version)


def _swap(
    cleaning: LogCleaning,
    plan: CleaningPlan,
    result: RemoteResult,
    outputs: Sequence[tuple[CleanedSegment, ...]],
    taken: _TakenOutputs,
    certificates: PassCertificates,
) -> int:
    """Swap all groups. Returns the number by which the pass can be undone; 0 if it cannot be."""
    generation = plan.view.generation
    for group, cleaned in zip(result.groups, outputs, strict=True):
        offset = result.end_offset if group is result.groups[-1] else None
        number = certificates.certify(
            plan, group.sources, cleaned, group.account, clean_offset=offset, is_verified=True
        )
        try:
            with certificates.swapping(number):
                cleaning.swap(group.sources, cleaned, generation=generation, clean_offset=offset)
        except SwapRefused:
            raise
        except BaseException:
            taken.leave_to_the_manifest(cleaned)
            raise
        taken.leave_to_the_manifest(cleaned)
    if not result.groups and result.end_offset > plan.view.clean_offset:
        cleaning.commit_clean_offset(result.end_offset, generation=generation)
    return cleaning.kept_number


def _verify(
    plan: CleaningPlan,
    group: GroupResult,
    cleaned: Sequence[CleanedSegment],
    verifier: PassVerifier,
) -> None:
    account = group.account
    try:
        verifier.check_group(
            account,
            group.sources,
            cleaned,
            marked=account.marked,
            hold_offset=plan.hold.offset,
        )
    except (VerificationFailed, ValueError) as error:
        raise ResultRefused(str(error)) from error


def _check_keys(
    segments: Sequence[IndexedSegment],
    result: RemoteResult,
    outputs: Sequence[tuple[CleanedSegment, ...]],
    check: KeyCheck,
) -> None:
    """Compare each group with its outputs, and check the segments that are in no group."""
    by_row = {segment.row: segment for segment in segments}
    try:
        for group, cleaned in zip(result.groups, outputs, strict=True):
            check.check([by_row.pop(row) for row in group.sources], cleaned)
        for segment in by_row.values():
            if segment.row.base_offset < result.end_offset:
                check.check_untouched(segment)
    except (KeysLost, CorruptBatch, DecompressionTooLarge) as error:
        raise ResultRefused(str(error)) from error


# ---------------------------------------------------------------------------- the check, pure


def check_result(plan: CleaningPlan, result: RemoteResult) -> None:
    """Check that a result can belong to this plan. Pure.

    Raises:
        ResultRefused: it cannot; the message is one sentence.
    """
    _expect(
        plan.start_offset <= result.end_offset <= plan.end_offset,
        f"it ends at offset {result.end_offset}, the plan covers"
        f" [{plan.start_offset}, {plan.end_offset})",
    )
    rows = [segment.row for segment in plan.segments_from(plan.view.log_start_offset)]
    at = 0
    for group in result.groups:
        sources, name = list(group.sources), offsets_text(group.sources)
        _expect(
            sources[0] in rows[at:],
            f"{name}: not in the plan, or out of order",
        )
        start = rows.index(sources[0])
        at = start + len(sources)
        _expect(
            sources == rows[start:at],
            f"{name}: its sources are not neighbours",
        )
        _expect(
            sources[-1].base_offset < result.end_offset,
            f"{name}: it is beyond the end of the pass",
        )
        _check_outputs(group)


def _check_outputs(group: GroupResult) -> None:
    """Check that the rows of the outputs cover those of the sources."""
    sources, outputs, name = group.sources, group.outputs, offsets_text(group.sources)
    covers = (outputs[0].base_offset, outputs[-1].end_offset)
    _expect(
        covers == (sources[0].base_offset, sources[-1].end_offset)
        and all(a.end_offset == b.base_offset for a, b in pairwise(outputs))
        and all(row.base_offset < row.end_offset for row in outputs)
        and all(row.size >= 0 for row in outputs),
        f"{name}: its outputs do not cover the same offsets",
    )


def _broker_rows(group: GroupResult, stamp_ms: int) -> list[SegmentRow]:
    """Returns the outputs' rows, with the flags and times that the broker knows of their sources."""
    firsts = [row.first_append_ms for row in group.sources if row.first_append_ms != UNKNOWN]
    return [
        replace(
            row,
            flags=FLAG_CLEANED,
            created_ms=stamp_ms,
            first_append_ms=min(firsts, default=UNKNOWN),
            last_append_ms=max(source.last_append_ms for source in group.sources),
        )
        for row in group.outputs
    ]


def _expect(holds: bool, difference: str) -> None:
    if not holds:
        raise ResultRefused(difference)


def _report(
    plan: CleaningPlan,
    result: RemoteResult,
    meter: PassMeter,
    verifier: PassVerifier,
) -> PassReport:
    verdicts: Counter[Verdict] = Counter(dict.fromkeys(Verdict, 0))
    for group in result.groups:
        verdicts.update(group.account.records_by_verdict)
    sources = [row for group in result.groups for row in group.sources]
    outputs = [row for group in result.groups for row in group.outputs]
    seen = [segment.row for segment in plan.segments_from(plan.view.log_start_offset)]
    untouched = [row for row in seen if row not in set(sources)]
    return PassReport(
        topic=plan.view.topic_partition.topic,
        partition=plan.view.topic_partition.partition,
        reason=plan.reason.name,
        start_offset=plan.start_offset,
        end_offset=result.end_offset,
        planned_end_offset=plan.end_offset,
        log_end_offset=plan.view.log_end_offset,
        bytes_read=meter.bytes_read,
        bytes_written=meter.bytes_written,
        bytes_before=sum(row.size for row in sources),
        bytes_after=sum(row.size for row in outputs),
        bytes_untouched=sum(row.size for row in untouched),
        records_before=sum(group.account.records_read for group in result.groups),
        records_after=sum(count for verdict, count in verdicts.items() if verdict.is_kept),
        records_by_verdict={verdict.value: count for verdict, count in verdicts.items()},
        groups=len(result.groups),
        segments_before=len(sources),
        segments_after=len(outputs),
        segments_untouched=len(untouched),
        dirty_ratio=plan.dirty_ratio,
        hold_offset=plan.hold.offset,
        held_by=plan.hold.by,
        throttled_seconds=meter.throttled_seconds,
        is_verified=True,
        verify_seconds=verifier.seconds,
    )
