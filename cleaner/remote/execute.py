"""The steps of `clean` as separate tasks, executed from a plan in a process without the broker.

    with RemotePass(plan) as executor:
        keys = [executor.index(number) for number in executor.numbers]       one task per segment
        section = executor.section(keys)                                     where the pass ends
        marked = executor.mark(keys, section)                                or marks found by Spark
        if not is_one_task(keys):
            found = [executor.findings(each, its) for each, its in zip(keys, marked)]
            for group in executor.groups(found):                             one task per group
                result = executor.recopy_group(keys[group], marked[group], section)
        else:
            results = executor.recopy_log(keys, marked, section)             one task

Tasks pass small values that can be pickled. Segments are opened by their paths and only read. A
`RemotePass` is one attempt and writes only to its own folder, below the lease's folder; files are
durable before a task returns them. A task that runs twice writes to two folders, and the result says
which one counts. Records are judged, copied and verified by the code of a local pass, so a loop over
these steps leaves the same log as `clean`.

`Marked`: bit i & 7 of byte i >> 3 of `marks` says that the segment's entry i is superseded: a later
record with its key lies below the end of the dirty section and is not aborted. Records that are aborted,
or lie at or above the end, get no mark themselves.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType
from typing import Self

from cleaner.inspect.unswapped_log import UnswappedLog
from cleaner.kernel.kernel import OffsetMap
from cleaner.pacing.meter import PassMeter, unpaced_meter
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.dirty_section import DirtySection, dirty_section
from cleaner.passes.index import IndexedSegment, SegmentIndex
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.mark import Marked, mark_window
from cleaner.passes.rewrite import Rewriting, are_contiguous_from, group_bounds, work_of
from cleaner.passes.verify_pass import PassVerifier
from cleaner.remote.plan import BuiltSidecar, GroupResult, RemotePlan, RemoteResult
from cleaner.remote.segment import RemoteSegment
from cleaner.remote.travelling_plan import cleaning_plan_from
from cleaner.rules.group import Findings, group_segments
from cleaner.rules.report import GroupReport
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem, ReadOnlyFileSystem
from storage.files.paths import HASH_KEY, join
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, hash_key_check
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegmentWriter

EMPTY_ROW_KIND = 5
TRANSACTIONAL_FLAG = 1


class LeaseGone(Exception):
    """The lease's folder does not exist: the lease has ended, or the path belongs to another machine."""


class WrongHashKey(Exception):
    """The hash key in the log directory is not the one that the plan was made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeys:
    """A segment of the plan, and where its task found or made the sidecar."""

    number: int
    """The index of the segment: one of `RemotePass.numbers`."""
    row: SegmentRow
    made_by: str | None
    """The attempt whose folder has the sidecar; None: the broker's own sidecar is sound."""
    totals: KeyTotals
    has_transactions: bool


class RemotePass:
    """One attempt at tasks of one plan; a context manager that closes the segments' files."""

    __slots__ = (
        "_fs", "_hash_key", "_meter", "_monotonic", "_opened", "_plan", "_segments", "_settings",
        "_versions", "attempt", "plan",
    )  # fmt: skip

    def __init__(
        self,
        plan: RemotePlan,
        *,
        fs: FileSystem | None = None,
        settings: CleanerSettings | None = None,
        meter: PassMeter | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            fs: the file system of the log and the lease's folder; by default the system's, read-only for
                segments.
            settings: memory and read sizes of this executor; outputs are always verified.
            meter: accounts for the bytes and can stop the pass; by default nothing does.

        Raises:
            WrongHashKey: see there.
            StorageError: the hash key cannot be read.
        """
        # Constant after construction.
        self.plan = plan
        self._fs = fs or LocalFileSystem()
        self.attempt = uuid.uuid4().hex
        self._settings = replace(
            settings or CleanerSettings(),
            verify=True,
            # The broker makes the sidecars of the outputs when it reads their keys.
            keeps_key_sidecars=False,
            decompressed_bytes_max=plan.decompressed_bytes_max,
        )
        self._meter = meter or unpaced_meter()
        self._monotonic = monotonic
        self._hash_key = _hash_key(self._fs, plan)
        self._plan = cleaning_plan_from(plan, fs or ReadOnlyFileSystem(), self._hash_key)
        self._segments = self._plan.segments_from(plan.log_start_offset)
        # State.
        self._versions = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._plan.view.segments:
            each.segment.files.close()

    @property
    def numbers(self) -> range:
        """The indexes of the segments that the pass covers, in offset order."""
        return range(len(self._segments))

    @property
    def folder(self) -> str:
        """The folder that this attempt writes to."""
        return join(self.plan.folder, self.attempt)

    # ---------------------------------------------------------------- index

    def index(self, number: int, *, rebuild: bool = False) -> SegmentKeys:
        """Find a segment's key sidecar and check all of it, or make one in this attempt's folder.

        Args:
            rebuild: ignore an existing sidecar, after `VerificationFailed` has shown that one is wrong.

        Raises:
            LeaseGone: see there.
            CorruptBatch, DecompressionTooLarge, StorageError: the segment is damaged, or gone.
        """
        found = None if rebuild else self._find_sidecar(number)
        if found is not None:
            return found
        self._make_folder()
        segment = self._remote_segment(number, self.folder)
        index = SegmentIndex(self._hash_key, self._settings, self._meter)
        with index:
            (made,) = index.index_segments([segment])
        self._fs.sync_directory(self.folder)
        return self._segment_keys(number, made, self.attempt)

    def _find_sidecar(self, number: int) -> SegmentKeys | None:
        segment = self._remote_segment(number, None)
        sidecar = segment.key_sidecar(self._hash_key)
        if sidecar is None:
            return None
        try:
            return self._segment_keys(number, IndexedSegment(segment, sidecar, self._meter), None)
        except DamagedSidecar:
            return None

    def _segment_keys(
        self, number: int, segment: IndexedSegment, made_by: str | None
    ) -> SegmentKeys:
        has_transactions = False
        for block in segment.blocks():
            has_transactions = has_transactions or _has_transactions(block)
        return SegmentKeys(
            number=number,
            row=segment.row,
            made_by=made_by,
            totals=segment.totals,
            has_transactions=has_transactions,
        )

    def open_segment(self, keys: SegmentKeys) -> IndexedSegment:
        """Returns a segment with the sidecar that `index` found or made.

        Raises:
            DamagedSidecar: the sidecar is gone or damaged.
        """
        folder = None if keys.made_by is None else join(self.plan.folder, keys.made_by)
        segment = self._remote_segment(keys.number, folder)
        sidecar = segment.key_sidecar(self._hash_key)
        if sidecar is None:
            raise DamagedSidecar(segment.keys_path, "it existed when the segment was indexed")
        return IndexedSegment(segment, sidecar, self._meter)

    def blocks(self, keys: SegmentKeys) -> Iterator[KeyBlock]:
        """Yields the blocks of a segment's sidecar, for executors that compute the last offsets."""
        return self.open_segment(keys).blocks()

    # ---------------------------------------------------------------- section, marks, groups

    def section(self, keys: Sequence[SegmentKeys]) -> DirtySection:
        """Returns the dirty section with its transactions and its end. Pass the keys of all segments."""
        if is_one_task(keys):
            return dirty_section(
                [self.open_segment(each) for each in keys],
                start_offset=self.plan.start_offset,
                end_offset=self.plan.end_offset,
            )
        start, end = self.plan.start_offset, self.plan.end_offset
        return DirtySection(
            sources=[
                self.open_segment(each)
                for each in keys
                if each.row.end_offset > start and each.row.base_offset < end
            ],
            start_offset=start,
            end_offset=end,
            transactions=None,
        )

    def mark(self, keys: Sequence[SegmentKeys], section: DirtySection) -> list[Marked]:
        """Mark all segments in this process, as a local pass does.

        The offset map stays within this executor's memory setting; the marks take memory beside it.
        """
        segments = [self.open_segment(each) for each in keys]
        offset_map = OffsetMap(
            self._settings.map_bytes, self._hash_key, self._settings.map_load_factor
        )
        verifier = self._verifier()
        return mark_window(segments, section, KeyParts(section, offset_map), verifier)

    def findings(self, keys: SegmentKeys, its: Marked, section: DirtySection) -> Findings:
        """Returns the findings that decide whether a segment is rewritten; not if `is_one_task`."""
        return self._rewriting(
            section, UnswappedLog(self.plan, self.new_cleaned_segment), sees_whole_log=False
        ).findings(self.open_segment(keys), its)

    def groups(self, found: Sequence[Findings]) -> tuple[slice, ...]:
        """Returns the groups to rewrite, from the findings of all segments; the others are untouched."""
        rows = [segment.row for segment in self._segments]
        works = [
            work_of(self._plan, row, findings) for row, findings in zip(rows, found, strict=True)
        ]
        groups = group_segments(works, group_bounds(self._plan))
        starts = [rows.index(group[0]) for group in groups]
        return tuple(
            slice(start, start + len(group)) for start, group in zip(starts, groups, strict=True)
        )

    # ---------------------------------------------------------------- recopy

    def recopy_group(
        self, keys: Sequence[SegmentKeys], marked: Sequence[Marked], section: DirtySection
    ) -> GroupResult | None:
        """Write and verify one group's outputs. Returns None if they are identical to the sources.

        Raises:
            LeaseGone: see there.
            VerificationFailed: the outputs, the marks or a sidecar are wrong.
            CorruptBatch, DecompressionTooLarge, StorageError: see `clean`.
        """
        assert not is_one_task(keys), "groups of a log with transactions depend on each other"
        log = UnswappedLog(self.plan, self.new_cleaned_segment)
        rewriting = self._rewriting(section, log, sees_whole_log=False)
        group = [(self.open_segment(each), its) for each, its in zip(keys, marked, strict=True)]
        self._make_folder()
        rewriting.rewrite(group, takes_offset=False)
        results = self._results(rewriting, log)
        return results[0] if results else None

    def recopy_log(
        self, keys: Sequence[SegmentKeys], marked: Sequence[Marked], section: DirtySection
    ) -> tuple[GroupResult, ...]:
        """Group, write and verify a whole log with its transactions. Raises as `recopy_group`."""
        log = UnswappedLog(self.plan, self.new_cleaned_segment)
        below = [
            (self.open_segment(each), its)
            for each, its in zip(keys, marked, strict=True)
            if each.row.base_offset < section.end_offset
        ]
        sees_whole_log = are_contiguous_from(
            [each.row for each, _ in below], self.plan.log_start_offset
        )
        rewriting = self._rewriting(section, log, sees_whole_log=sees_whole_log)
        self._make_folder()
        rewriting.run(below, is_last=True)
        return self._results(rewriting, log)

    def _results(self, rewriting: Rewriting, log: UnswappedLog) -> tuple[GroupResult, ...]:
        self._fs.sync_directory(self.folder)
        return tuple(
            _group_result(self.attempt, report)
            for report in rewriting.group_reports
            if report.sources[0].base_offset in log.swapped
        )

    def _rewriting(
        self, section: DirtySection, log: UnswappedLog, *, sees_whole_log: bool
    ) -> Rewriting:
        return Rewriting(
            log,
            self._plan,
            section,
            self._settings,
            sees_whole_log=sees_whole_log,
            verifier=self._verifier(),
            meter=self._meter,
        )

    def _verifier(self) -> PassVerifier:
        return PassVerifier(self._settings, meter=self._meter, monotonic=self._monotonic)

    def new_cleaned_segment(
        self, base_offset: Offset, strategy: CompactionStrategy
    ) -> CleanedSegmentWriter:
        """Returns a writer of an output in this attempt's folder."""
        version = next(self._versions)
        return CleanedSegmentWriter(
            self._fs, self.folder, base_offset, version, self._hash_key, strategy
        )

    def _make_folder(self) -> None:
        if not self._fs.exists(self.plan.folder):
            raise LeaseGone(f"{self.plan.folder} does not exist: the lease has ended")
        self._fs.make_directory(self.folder)
        self._fs.sync_directory(self.plan.folder)

    def _remote_segment(self, number: int, keys_folder: str | None) -> RemoteSegment:
        sealed = self._segments[number]
        return RemoteSegment(sealed.row, sealed.segment, keys_folder, self._fs)


def is_one_task(keys: Sequence[SegmentKeys]) -> bool:
    """Returns whether a log must be recopied in one task, given the keys of all its segments. Pure.

    If any segment, dirty or not, has transactional batches, whether a marker stays depends on what is
    left below it. Without them the groups are independent.
    """
    return any(each.has_transactions for each in keys)


def result_of(
    plan: RemotePlan,
    end_offset: Offset,
    groups: Sequence[GroupResult | None],
    keys: Sequence[SegmentKeys] = (),
) -> RemoteResult:
    """Returns the result for the broker: the groups in offset order, except unchanged ones. Pure.

    Args:
        keys: those of all segments; the broker takes the sidecars that were made.
    """
    there = [group for group in groups if group is not None]
    return RemoteResult(
        lease=plan.lease,
        end_offset=end_offset,
        groups=tuple(sorted(there, key=lambda group: group.sources[0].base_offset)),
        keys=tuple(
            BuiltSidecar(attempt=each.made_by, row=each.row) for each in keys if each.made_by
        ),
    )


def _has_transactions(block: KeyBlock) -> bool:
    return any(
        row.kind != EMPTY_ROW_KIND or row.flags & TRANSACTIONAL_FLAG for row in block.special_rows()
    )


def _group_result(attempt: str, report: GroupReport) -> GroupResult:
    return GroupResult(
        attempt=attempt, sources=report.sources, outputs=report.outputs, account=report.account
    )


def _hash_key(fs: FileSystem, plan: RemotePlan) -> bytes:
    hash_key = fs.read_bytes(join(plan.log_dir, HASH_KEY))
    if hash_key_check(hash_key).hex() != plan.hash_key_check:
        raise WrongHashKey(f"{plan.log_dir}/{HASH_KEY} is not the key of {plan.topic}")
    return hash_key
