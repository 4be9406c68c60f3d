"""Find the records of a key that are still on disk, and say when they will go.

If a segment has a sound key sidecar, only the batches that it names are read
(`cleaner/inspect/sidecar_search.py`); other segments are read completely, in bounded memory. Nothing is
changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cleaner.inspect.key_fate import COUNTING_DECISIONS, NO_OLDER_VALUES, OlderValues, fate
from cleaner.inspect.sidecar_search import SidecarMismatch, SidecarSearch
from cleaner.kernel.find_key import KeyFinder
from cleaner.kernel.kernel import siphash128
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.scan import ReadableSegment, scan_segment
from cleaner.rules.history import PastRecord, due_ms_of, older_values
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.latest import wins
from cleaner.rules.step import Decision, KeyHit, ReadStep
from storage.files.errors import DamagedSidecar, MissingFile
from storage.formats.compaction_history import CompactionHistory
from storage.formats.key_sidecar import KeySidecar
from storage.formats.manifest import SegmentRow
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleanableSegment, CleaningView

HITS_MAX = 1000
"""Only the last records of a key, up to this number, are listed."""

COMPARED_HITS_MAX = 100_000
"""So many are compared where records have versions, or older ones stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One record of the key."""

    hit: KeyHit
    segment_base_offset: int
    segment_file_version: int
    superseded_by: int | None
    """The offset of the key's current record, if that outranks this one and this one does not stay."""
    is_older_value: bool
    """Whether it stays beside the current one (`compaction.versions`, `compaction.thinning`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """The records of a key on disk in one partition."""

    topic_partition: TopicPartition
    key: bytes
    count: int
    """Number of its records on disk; `records` may list fewer."""
    records: tuple[KeyRecord, ...]
    """The last of them, in offset order."""
    tombstone_offset: int | None
    """The offset of its current record, if that deletes the key."""
    tombstone_goes_at_ms: int | None
    """Wall time from which a pass drops the tombstone; None while no pass has set it."""
    fate: tuple[str, ...]
    """Sentences that say when the records will go."""
    last_offset: int | None = None
    """The offset of its current record; None if it has none, or nothing of it is decided."""
    departures: tuple[str, ...] = ()
    """Sentences that say with which passes older records went, from the ledger."""

    @property
    def is_gone(self) -> bool:
        """Whether no record of the key is in the log's segments."""
        return self.count == 0


def find_key(
    view: CleaningView,
    key: bytes,
    settings: CleanerSettings,
    *,
    meter: PassMeter,
    now_ms: int,
    hold: Hold = NO_HOLD,
) -> KeyHistory:
    """Search the log of a view `as_if_rolled` for a key. For a worker thread.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: a pass has swapped a segment meanwhile; retry with a new view.
    """
    distrusted: set[int] = set()
    while True:
        strategy = view.config.strategy
        compares = strategy.has_versions or view.config.history.keeps_more
        finder = KeyFinder(
            key,
            decompressed_bytes_max=settings.decompressed_bytes_max,
            hits_max=COMPARED_HITS_MAX if compares else HITS_MAX,
            strategy=strategy,
            ttl=view.config.ttl,
        )
        try:
            _search(view, finder, settings, meter, distrusted)
        except SidecarMismatch as reason:
            distrusted.add(reason.base_offset)
        else:
            return key_history(view, key, finder.hits, finder.count, now_ms=now_ms, hold=hold)


def _search(
    view: CleaningView,
    finder: KeyFinder,
    settings: CleanerSettings,
    meter: PassMeter,
    distrusted: Container[int],
) -> None:
    sources = [(segment, _sidecar_of(segment, view, distrusted)) for segment in view.segments]
    size = sum(sidecar.size if sidecar else segment.row.size for segment, sidecar in sources)
    meter.progress.expect_left(Phase.SEARCH, size)
    meter.progress.enter(Phase.SEARCH)
    key_hash = siphash128(view.hash_key, finder.key)
    for segment, sidecar in sources:
        if sidecar is not None:
            SidecarSearch(segment, sidecar, finder, key_hash=key_hash, meter=meter).run()
        else:
            read_segment(segment, finder, chunk_bytes=settings.chunk_bytes, meter=meter)


def _sidecar_of(
    segment: CleanableSegment, view: CleaningView, distrusted: Container[int]
) -> KeySidecar | None:
    """Returns the sidecar if it exists and its header is valid; a damaged one is left in place."""
    if segment.row.base_offset in distrusted:
        return None
    with suppress(MissingFile, DamagedSidecar):
        return segment.open_key_sidecar(view.hash_key, view.config.strategy)
    return None


def read_segment(
    segment: ReadableSegment, finder: KeyFinder, *, chunk_bytes: int, meter: PassMeter
) -> None:
    """Feed a whole segment to `finder`. Raises as `find_key`."""

    def step(chunk: bytes, position: int) -> ReadStep:
        return finder.feed(chunk, position=position)

    for _ in scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter):
        pass


def key_history(
    view: CleaningView, key: bytes, hits: Sequence[KeyHit], count: int, *, now_ms: int, hold: Hold
) -> KeyHistory:
    """Returns the history of a key from its hits. Pure."""
    hits = [_assume_committed(hit, view.clean_offset) for hit in hits]
    counting = [
        hit
        for hit in hits
        if hit.decision in COUNTING_DECISIONS and hit.offset >= view.log_start_offset
    ]
    last = max(counting, key=lambda hit: hit.rank, default=None)
    older = _older_values(counting, view.config.history, now_ms)
    tombstone = last if last is not None and last.value_bytes is None else None
    return KeyHistory(
        topic_partition=view.topic_partition,
        key=key,
        count=count,
        records=tuple(_records(view.sealed_rows, hits[-HITS_MAX:], last, older)),
        tombstone_offset=tombstone.offset if tombstone else None,
        tombstone_goes_at_ms=tombstone.delete_horizon_ms if tombstone else None,
        fate=tuple(fate(view, hits, last, older, count, now_ms, hold)),
        last_offset=last.offset if last else None,
    )


def _assume_committed(hit: KeyHit, clean_offset: int) -> KeyHit:
    """Return an undecided hit below the clean offset as committed: a pass has dropped all others."""
    if hit.decision is Decision.OPEN and hit.offset < clean_offset:
        return replace(hit, decision=Decision.COMMITTED)
    return hit


def _older_values(
    counting: Sequence[KeyHit], history: CompactionHistory, now_ms: int
) -> OlderValues:
    """Returns the hits that stay beside the last one."""
    if not history.keeps_more:
        return NO_OLDER_VALUES
    past = [PastRecord(hit.offset, hit.timestamp, hit.value_bytes is None) for hit in counting]
    return OlderValues(
        offsets=frozenset(each.offset for each in older_values(past, history, now_ms)),
        due_ms=due_ms_of(past, history, now_ms),
    )


def _records(
    rows: Sequence[SegmentRow],
    hits: Sequence[KeyHit],
    last: KeyHit | None,
    older: OlderValues,
) -> Iterator[KeyRecord]:
    bases = [row.base_offset for row in rows]
    for hit in hits:
        row = rows[bisect_right(bases, hit.offset) - 1]
        is_older_value = hit.offset in older.offsets
        yield KeyRecord(
            hit=hit,
            segment_base_offset=row.base_offset,
            segment_file_version=row.file_version,
            superseded_by=(
                last.offset
                if last is not None and wins(last.rank, hit.rank) and not is_older_value
                else None
            ),
            is_older_value=is_older_value,
        )
