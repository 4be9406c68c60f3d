"""What an executor does with a plan: `clean`'s steps, each by itself, in a process without the broker.

    with RemotePass(plan) as executor:
        keys = [executor.index(number) for number in executor.numbers]       a task a segment
        section = executor.section(keys)                                     where the pass ends
        marked = executor.mark(keys, section)                                or as Spark finds it
        if not is_one_task(keys):
            found = [executor.findings(each, its) for each, its in zip(keys, marked)]
            for group in executor.groups(found):                             a task a group
                result = executor.recopy_group(keys[group], marked[group], section)
        else:
            results = executor.recopy_log(keys, marked, section)             one task

What goes from a task to the next is a small value that can be pickled. Segments are opened by their
paths and only read; whatever is written lies in this attempt's folder (a `RemotePass` is one), below the
lease's, and is durable when it is told of. A task that runs twice writes two folders, and the result
says which one counts. The records are judged, copied and verified by the code of a local pass, so a loop
over these steps leaves what `clean` leaves.

`Marked`: bit i & 7 of byte i >> 3 of `marks` says that the segment's entry i is superseded: a later
record of the dirty section has its key, lies below its end, and is not aborted. What is aborted, or lies
at or past the end, gets no mark itself; in a section with transactions `aborted_offsets` tells.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType
from typing import Self

from cleaner.group import Findings, group_segments
from cleaner.index import IndexedSegment, SegmentIndex
from cleaner.kernel import OffsetMap
from cleaner.mark import DirtySection, KeyParts, Marked, dirty_section, mark_window
from cleaner.meter import PassMeter
from cleaner.probe import SilentProbe
from cleaner.remote_plan import GroupResult, MadeKeys, RemotePlan, RemoteResult
from cleaner.remote_segment import RemoteSegment
from cleaner.report import GroupReport
from cleaner.rewrite import Rewriting, group_bounds, leave_no_gap, work_of
from cleaner.settings import CleanerSettings
from cleaner.throttle import Throttle
from cleaner.travelling_plan import arrived_plan
from cleaner.unswapped_log import UnswappedLog
from cleaner.verify_pass import PassVerifier
from storage.cleaned_segment import CleanedSegmentWriter
from storage.errors import DamagedSidecar
from storage.files import FileSystem
from storage.key_sidecar import KeyBlock, hash_key_check
from storage.key_totals import KeyTotals
from storage.local_files import LocalFileSystem, ReadOnlyFileSystem
from storage.manifest import SegmentRow
from storage.paths import HASH_KEY, join

EMPTY_ROW_KIND = 5
TRANSACTIONAL_FLAG = 1


class LeaseGone(Exception):
    """The lease's folder is not there: the lease has ended, or this is another machine's directory."""


class WrongHashKey(Exception):
    """The hash key beside the log is not the one that the plan was made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeys:
    """A segment of the plan with the sidecar that its task has found or made."""

    number: int
    """Of `RemotePass.numbers`."""
    row: SegmentRow
    made_by: str | None
    """The attempt whose folder has the sidecar; None: the one beside the segment is sound."""
    totals: KeyTotals
    has_transactions: bool


class RemotePass:
    """One attempt at tasks of one plan; a context, at whose end the segments' files are closed."""

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
            fs: of the log and the lease's folder; the system's, through which segments are only read.
            settings: memory and read sizes of this executor; outputs are verified whatever they say.
            meter: where it accounts for its bytes, and learns that it is to stop.

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
            # The broker makes those of the outputs, as it reads their keys.
            keeps_key_sidecars=False,
            decompressed_bytes_max=plan.decompressed_bytes_max,
        )
        self._meter = meter or _free_meter()
        self._monotonic = monotonic
        self._hash_key = _hash_key(self._fs, plan)
        self._plan = arrived_plan(plan, fs or ReadOnlyFileSystem(), self._hash_key)
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
        """Of the segments that the pass looks at, in offset order."""
        return range(len(self._segments))

    @property
    def folder(self) -> str:
        """What this attempt writes."""
        return join(self.plan.folder, self.attempt)

    # ---------------------------------------------------------------- index

    def index(self, number: int, *, anew: bool = False) -> SegmentKeys:
        """Find a segment's key sidecar, read to its end, or make one in this attempt's folder.

        Args:
            anew: make one, whatever is there: for who has met one that lies (`VerificationFailed`).

        Raises:
            LeaseGone: see there.
            CorruptBatch, DecompressionTooLarge, StorageError: the segment is damaged, or gone.
        """
        found = None if anew else self._found(number)
        if found is not None:
            return found
        self._make_folder()
        segment = self._remote(number, self.folder)
        index = SegmentIndex(self._hash_key, self._settings, self._meter)
        with index:
            (made,) = index.of([segment])
        self._fs.sync_directory(self.folder)
        return self._keys(number, made, self.attempt)

    def _found(self, number: int) -> SegmentKeys | None:
        segment = self._remote(number, None)
        sidecar = segment.key_sidecar(self._hash_key)
        if sidecar is None:
            return None
        try:
            return self._keys(number, IndexedSegment(segment, sidecar, self._meter), None)
        except DamagedSidecar:
            return None

    def _keys(self, number: int, segment: IndexedSegment, made_by: str | None) -> SegmentKeys:
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

    def opened(self, keys: SegmentKeys) -> IndexedSegment:
        """A segment with the sidecar that `index` told of.

        Raises:
            DamagedSidecar: it is not there any more, or no good.
        """
        folder = None if keys.made_by is None else join(self.plan.folder, keys.made_by)
        segment = self._remote(keys.number, folder)
        sidecar = segment.key_sidecar(self._hash_key)
        if sidecar is None:
            raise DamagedSidecar(segment.keys_path, "it was there when the segment was indexed")
        return IndexedSegment(segment, sidecar, self._meter)

    def blocks(self, keys: SegmentKeys) -> Iterator[KeyBlock]:
        """The blocks of a segment's sidecar, for who looks for the last offset of each key."""
        return self.opened(keys).blocks()

    # ---------------------------------------------------------------- section, marks, groups

    def section(self, keys: Sequence[SegmentKeys]) -> DirtySection:
        """What became of the transactions, and so where the pass ends. Give it all segments' keys."""
        if is_one_task(keys):
            return dirty_section(
                [self.opened(each) for each in keys],
                start_offset=self.plan.start_offset,
                end_offset=self.plan.end_offset,
            )
        start, end = self.plan.start_offset, self.plan.end_offset
        return DirtySection(
            sources=[
                self.opened(each)
                for each in keys
                if each.row.end_offset > start and each.row.base_offset < end
            ],
            start_offset=start,
            end_offset=end,
            transactions=None,
        )

    def mark(self, keys: Sequence[SegmentKeys], section: DirtySection) -> list[Marked]:
        """Mark all segments here, as a local pass does; in this executor's memory, but for the marks."""
        segments = [self.opened(each) for each in keys]
        offset_map = OffsetMap(
            self._settings.map_bytes, self._hash_key, self._settings.map_load_factor
        )
        verifier = self._verifier()
        return mark_window(segments, section, KeyParts(section, offset_map), verifier)

    def findings(self, keys: SegmentKeys, its: Marked, section: DirtySection) -> Findings:
        """What decides whether a segment is rewritten; only where groups are tasks of their own."""
        return self._rewriting(
            section, UnswappedLog(self.plan, self.new_cleaned_segment), sees_all=False
        ).findings(self.opened(keys), its)

    def groups(self, found: Sequence[Findings]) -> tuple[slice, ...]:
        """The groups to rewrite, of all segments' findings; what is in none stays as it is."""
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
        """Write and verify one group's outputs; None if they are what is there already, to the byte.

        Raises:
            LeaseGone: see there.
            VerificationFailed: the outputs, the marks or a sidecar are not what they must be.
            CorruptBatch, DecompressionTooLarge, StorageError: see `clean`.
        """
        assert not is_one_task(keys), "groups of a log with transactions depend on each other"
        log = UnswappedLog(self.plan, self.new_cleaned_segment)
        rewriting = self._rewriting(section, log, sees_all=False)
        group = [(self.opened(each), its) for each, its in zip(keys, marked, strict=True)]
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
            (self.opened(each), its)
            for each, its in zip(keys, marked, strict=True)
            if each.row.base_offset < section.end_offset
        ]
        sees_all = leave_no_gap([each.row for each, _ in below], self.plan.log_start_offset)
        rewriting = self._rewriting(section, log, sees_all=sees_all)
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

    def _rewriting(self, section: DirtySection, log: UnswappedLog, *, sees_all: bool) -> Rewriting:
        return Rewriting(
            log,
            self._plan,
            section,
            self._settings,
            sees_all=sees_all,
            verifier=self._verifier(),
            meter=self._meter,
        )

    def _verifier(self) -> PassVerifier:
        return PassVerifier(self._settings, meter=self._meter, monotonic=self._monotonic)

    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter:
        """Begin an output in this attempt's folder."""
        version = next(self._versions)
        return CleanedSegmentWriter(self._fs, self.folder, base_offset, version, self._hash_key)

    def _make_folder(self) -> None:
        if not self._fs.exists(self.plan.folder):
            raise LeaseGone(f"{self.plan.folder} is not there: the lease has ended")
        self._fs.make_directory(self.folder)
        self._fs.sync_directory(self.plan.folder)

    def _remote(self, number: int, keys_folder: str | None) -> RemoteSegment:
        sealed = self._segments[number]
        return RemoteSegment(sealed.row, sealed.segment, keys_folder, self._fs)


def is_one_task(keys: Sequence[SegmentKeys]) -> bool:
    """Whether the log, of whose segments these are all, must be recopied as one. Pure.

    Where any of it, dirty or not, has batches of transactions, what becomes of a marker depends on what
    is left below it. Without them groups know nothing of each other.
    """
    return any(each.has_transactions for each in keys)


def result_of(
    plan: RemotePlan,
    end_offset: int,
    groups: Sequence[GroupResult | None],
    keys: Sequence[SegmentKeys] = (),
) -> RemoteResult:
    """What goes to the broker: the groups in offset order, without those that changed nothing. Pure.

    Args:
        keys: all segments'; what was made of them the broker takes.
    """
    there = [group for group in groups if group is not None]
    return RemoteResult(
        lease=plan.lease,
        end_offset=end_offset,
        groups=tuple(sorted(there, key=lambda group: group.sources[0].base_offset)),
        keys=tuple(MadeKeys(attempt=each.made_by, row=each.row) for each in keys if each.made_by),
    )


def aborted_offsets(block: KeyBlock, row: SegmentRow, section: DirtySection) -> list[range]:
    """The offsets of a block's aborted batches: their entries are in no map, and get no mark."""
    aborted = section.transactions.aborted if section.transactions else []
    ranges = [(each.producer_id, each.first_offset, each.marker_offset) for each in aborted]
    return [
        range(row.base_offset + each.first_offset, row.base_offset + each.last_offset + 1)
        for each in block.special_rows()
        if any(
            producer == each.producer_id and first <= row.base_offset + each.first_offset < marker
            for producer, first, marker in ranges
        )
    ]


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


def _free_meter() -> PassMeter:
    """An account that nothing throttles or stops."""
    return PassMeter(
        throttle=Throttle(clock=time.monotonic),
        probe=SilentProbe(),
        sleep=lambda _seconds: False,
        is_stale=lambda: False,
    )
