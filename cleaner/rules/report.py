"""The report of a cleaning pass, for the log line, the metrics, the tests and the CLI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cleaner.rules.fence import Fence
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.step import GroupAccount, Outranked, VerdictCount
from cleaner.rules.text import count_text, duration_text, size_text
from protocol.wire.numbers import OFFSET_MAX
from storage.formats.compaction_history import LAST_VALUE
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import SegmentRow

FENCES_NAMED_MAX = 3
"""The log line of a pass names what is wrong with so many damaged segments."""

Counts = Mapping[Verdict, VerdictCount]
"""Records, and their uncompressed bytes, by verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The report of one group of neighbouring segments."""

    sources: tuple[SegmentRow, ...]
    """The original segments, in offset order."""
    outputs: tuple[SegmentRow, ...]
    """The segments that replace them."""
    by_source: tuple[Counts, ...]
    """The verdicts on each source's records; without verdicts that occurred on none."""
    account: GroupAccount = field(repr=False, compare=False)
    """What must remain of the sources; incomplete in a pass that does not verify."""

    @property
    def by_verdict(self) -> Counts:
        """The verdicts on the records of all sources."""
        return sum_counts(self.by_source)


def counts_between(before: Counts, after: Counts) -> Counts:
    """Returns the increase between two readings of growing counts, without zeros. Pure."""
    return {
        verdict: VerdictCount(
            records=count.records - before[verdict].records,
            bytes=count.bytes - before[verdict].bytes,
        )
        for verdict, count in after.items()
        if count.records > before[verdict].records
    }


def sum_counts(each: Iterable[Counts]) -> Counts:
    """Returns the sum of counts by verdict. Pure."""
    total: dict[Verdict, VerdictCount] = {}
    for counts in each:
        for verdict, count in counts.items():
            so_far = total.get(verdict, VerdictCount(records=0, bytes=0))
            total[verdict] = VerdictCount(
                records=so_far.records + count.records, bytes=so_far.bytes + count.bytes
            )
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """The outcome of one completed pass over one partition."""

    topic: str
    partition: int
    reason: str
    """Why the log was picked: the name of a `pick.Reason`."""
    start_offset: int
    """The first dirty offset, where the dirty section begins."""
    end_offset: int
    """The new clean offset; below the planned end if a transaction there is not decided, if the last
    record has lost, or if there is a fence."""
    planned_end_offset: int
    """The first uncleanable offset when the pass was planned."""
    bytes_read: int
    """All bytes read: of segments, of key sidecars (counted for each scan), and of the output if it was
    verified."""
    bytes_written: int
    """Bytes of segments and key sidecars written, without indexes."""
    bytes_before: int
    """Segment bytes of the groups that were rewritten."""
    bytes_after: int
    """Segment bytes that replaced them."""
    records_before: int
    """Records read by the recopy."""
    records_after: int
    """Records recopied."""
    records_by_verdict: Mapping[str, int] = field(default_factory=dict)
    """Number of records for each `retain.Verdict`; the keys are its values."""
    bytes_untouched: int = 0
    """Bytes of the segments in which nothing changed; they were neither read nor written."""
    unkeyed_untouched: int = 0
    """Records without a key in these segments."""
    keys_mapped: int = 0
    """Distinct keys of the dirty section."""
    log_end_offset: int = -1
    """The log end when the pass was planned; -1: unknown."""
    keys_capacity: int = 0
    """Keys that the offset map could have held, over all parts."""
    parts: int = 0
    """Parts of the hash space that the offset map held one after the other; 0: nothing was dirty."""
    keys_compared: int = 0
    """Keys of superseded records that were compared with those of later records, byte by byte; a key
    that was compared in several windows or fillings of the memory counts in each."""
    sidecars_built: int = 0
    """Segments that were read because they had no sound key sidecar."""
    groups: int = 0
    """Groups of segments that were recopied and swapped in."""
    segments_before: int = 0
    segments_after: int = 0
    segments_untouched: int = 0
    batches_unread: int = 0
    """Compressed batches that were copied without being inflated."""
    keys_to_check_bytes: int = 0
    """Bytes of the outputs' key sidecars that a pass that verifies reads again."""
    dirty_ratio: float = 0.0
    """The share of dirty bytes when the pass was planned."""
    hold_offset: int = OFFSET_MAX
    """Tombstones and markers at and above it stayed even after their delete horizon."""
    held_by: str = ""
    """Who holds them; empty: no one."""
    strategy: str = "offset"
    """How the records of a key were ranked."""
    history: str = str(LAST_VALUE)
    """Which values of a key stay."""
    history_due_ms: int = LONG_MAX
    """When older values that the pass has judged may have to go; LONG_MAX: never."""
    sweeps: bool = False
    """Whether the pass judged the older values of all keys."""
    segments_spared: int = 0
    """Segments that were left because too small a share of them is superseded."""
    records_spared: int = 0
    """The superseded records in them."""
    spared_due_ms: int = LONG_MAX
    """When these must go; LONG_MAX: never."""
    horizon_clock_ms: int = OFFSET_MAX
    """The clock by which delete horizons had passed, if it was not that of the plan."""
    fences: tuple[Fence, ...] = ()
    """The damaged segments that the pass has cleaned around, in offset order."""
    end_behind_fences: int = -1
    """Where the pass ended, if there are fences."""
    is_tail_lost: bool = False
    """Whether the last record of the pass stays although another outranks it; it is still dirty."""
    outranked: int = 0
    """Records that were superseded by one at a lower offset: writers race, or retry out of order."""
    outranked_examples: tuple[Outranked, ...] = ()
    """Some of these."""
    undo_number: int = 0
    """The number by which `kompakt compact undo` undoes the pass; 0 if it cannot be undone."""
    unkeyed_moved: int = 0
    """Records without a key that were moved to `unkeyed_topic`; also dropped as `dropped_unkeyed`."""
    unkeyed_topic: str = ""
    """The topic of `compaction.unkeyed.topic`, if such records are moved."""
    unkeyed_kept_because: str = ""
    """Why records without a key stay that should have been moved; empty: none do."""
    seconds: float = 0.0
    """Wall time of the pass; time spent throttled is part of it."""
    throttled_seconds: float = 0.0
    is_verified: bool = False
    """Whether each group was verified before its swap (`cleaner/passes/verify_pass.py`)."""
    verify_seconds: float = 0.0
    """The part of `seconds` spent on reading the output again and comparing it."""
    pass_id: str = field(default="", compare=False)
    """Names the pass in the history and in the ledger; empty for a rehearsal."""
    group_reports: tuple[GroupReport, ...] = ()
    """One report per group, in offset order."""

    @property
    def fenced_bytes(self) -> int:
        """Bytes of the damaged segments that the pass has cleaned around."""
        return sum(fence.size for fence in self.fences)

    @property
    def reached_offset(self) -> int:
        """Where the pass ended; with a fence the clean offset stays below."""
        return max(self.end_offset, self.end_behind_fences)

    @property
    def has_contested_tombstones(self) -> bool:
        """Whether tombstones stayed that may go in the next pass, because this one has dropped what they
        outrank, or has moved the clean offset past them."""
        counts = self.records_by_verdict
        is_news = self.end_offset > self.start_offset or (
            counts.get(Verdict.DROPPED_SUPERSEDED.value, 0) > 0
        )
        return is_news and counts.get(Verdict.KEPT_CONTESTED.value, 0) > 0

    def _count_by_verdict(self, prefix: str) -> str:
        """Returns the counts by verdict, largest first: "910 superseded, 3 tombstone"."""
        counts = {
            verdict.removeprefix(prefix): count
            for verdict, count in self.records_by_verdict.items()
            if count and verdict.startswith(prefix)
        }
        by_count = sorted(counts.items(), key=lambda item: -item[1])
        return ", ".join(f"{count} {verdict}" for verdict, count in by_count) or "none"

    def _rewritten(self) -> str:
        if not self.groups:
            return "nothing rewritten"
        return (
            f"{size_text(self.bytes_before)} -> {size_text(self.bytes_after)}"
            f", {count_text(self.segments_before, 'segment')} -> {self.segments_after}"
        )

    def _cost(self) -> str:
        return (
            f"read {size_text(self.bytes_read)}, wrote {size_text(self.bytes_written)}"
            f" in {duration_text(self.seconds)}, "
            + (
                f"{duration_text(self.verify_seconds)} of it to verify"
                if self.is_verified
                else "not verified"
            )
            + (
                f", throttled for {duration_text(self.throttled_seconds)}"
                if self.throttled_seconds
                else ""
            )
        )

    def _remarks(self) -> str:
        """Returns the parts of the log line that are left out if they do not apply."""
        untouched, built = self.segments_untouched, self.sidecars_built
        unread, spared = self.batches_unread, self.records_spared
        size = size_text(self.bytes_untouched)
        moved, why = self.unkeyed_moved, self.unkeyed_kept_because
        fenced = count_text(len(self.fences), "damaged segment")
        reasons = "; ".join(fence.reason for fence in self.fences[:FENCES_NAMED_MAX])
        remarks = (
            (self.fences, f"cleaned around {fenced}, which stay as they are: {reasons}"),
            (self.held_by, f"tombstones held from offset {self.hold_offset} on by {self.held_by}"),
            (self.outranked, f"{count_text(self.outranked, 'record')} outranked by earlier ones"),
            (moved, f"{count_text(moved, 'record')} without a key moved to {self.unkeyed_topic}"),
            (why, f"records without a key stay: {why}"),
            (untouched, f"{count_text(untouched, 'segment')} ({size}) left as they were"),
            (
                spared,
                f"{count_text(spared, 'superseded record')} left in"
                f" {count_text(self.segments_spared, 'segment')} (min.segment.dead.ratio)",
            ),
            (self.keys_compared, f"{count_text(self.keys_compared, 'key')} compared byte by byte"),
            (unread, f"{count_text(unread, 'batch', 'batches')} copied without being inflated"),
            (built, f"{count_text(built, 'key sidecar')} made"),
            (self.parts > 1, f"keys mapped in {count_text(self.parts, 'part')}"),
        )
        return "".join(f"; {remark}" for applies, remark in remarks if applies)

    def __str__(self) -> str:
        """Returns the summary for operators, in one line."""
        reason = self.reason.lower().replace("_", " ")
        return (
            f"{self.topic}-{self.partition}: cleaned [{self.start_offset}, {self.reached_offset}),"
            f" {self._rewritten()} ({reason}, dirty ratio {self.dirty_ratio:.2f});"
            f" dropped {self._count_by_verdict('dropped_')}; kept {self._count_by_verdict('kept_')};"
            f" {self._cost()}{self._remarks()}"
        )
