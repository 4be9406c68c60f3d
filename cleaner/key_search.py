"""A key's records that are still on disk, and what becomes of them.

The whole log is read, segment by segment, in bounded memory: `search_segment` is the one place that
knows how, so that an index of a segment's keys can take its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cleaner.find_key import KeyFinder
from cleaner.meter import PassMeter
from cleaner.progress import Phase
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.settings import CleanerSettings
from cleaner.step import Decision, KeyHit, ReadStep
from cleaner.text import moment_text
from storage.cleaning_view import CleaningView
from storage.manifest import SegmentRow
from storage.topic_partition import TopicPartition

HITS_MAX = 1000
"""So many of a key's records are listed: the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One record of the key."""

    hit: KeyHit
    segment_base_offset: int
    segment_file_version: int
    superseded_by: int | None
    """The offset of the key's last record that counts, if that is a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """What is on disk of a key in one partition."""

    topic_partition: TopicPartition
    key: bytes
    count: int
    """All its records on disk; `records` may be fewer."""
    records: tuple[KeyRecord, ...]
    """The last of them, in offset order."""
    tombstone_offset: int | None
    """Of its last record, if that deletes the key."""
    tombstone_goes_at_ms: int | None
    """From this wall time on a pass drops the tombstone; None while no pass has set that."""
    fate: tuple[str, ...]
    """What becomes of them, in sentences."""

    @property
    def is_gone(self) -> bool:
        """Whether no record of the key is in the log's segments."""
        return self.count == 0


def find_key(
    view: CleaningView, key: bytes, settings: CleanerSettings, *, meter: PassMeter
) -> KeyHistory:
    """Read the log of a view `as_if_rolled` for a key; a worker thread.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: a pass has swapped a segment meanwhile; take another view.
    """
    finder = KeyFinder(
        key, decompressed_bytes_max=settings.decompressed_bytes_max, hits_max=HITS_MAX
    )
    meter.progress.expect(Phase.SEARCH, sum(row.size for row in view.sealed_rows))
    meter.progress.enter(Phase.SEARCH)
    for segment in view.segments:
        search_segment(segment, finder, chunk_bytes=settings.chunk_bytes, meter=meter)
    return key_history(view, key, finder.hits, finder.count)


def search_segment(
    segment: ReadableSegment, finder: KeyFinder, *, chunk_bytes: int, meter: PassMeter
) -> None:
    """Let `finder` meet what a segment has of its key. Raises as `find_key`."""

    def step(chunk: bytes, position: int) -> ReadStep:
        return finder.feed(chunk, position=position)

    for _ in scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter):
        pass


def key_history(view: CleaningView, key: bytes, hits: Sequence[KeyHit], count: int) -> KeyHistory:
    """What the hits come to. Pure."""
    hits = [_settled(hit, view.clean_offset) for hit in hits]
    last = _last_that_counts(hits)
    tombstone = last if last is not None and last.value_bytes is None else None
    return KeyHistory(
        topic_partition=view.topic_partition,
        key=key,
        count=count,
        records=tuple(_records(view.sealed_rows, hits, last)),
        tombstone_offset=tombstone.offset if tombstone else None,
        tombstone_goes_at_ms=tombstone.delete_horizon_ms if tombstone else None,
        fate=tuple(_fate(view, hits, last, count)),
    )


def _settled(hit: KeyHit, clean_offset: int) -> KeyHit:
    """Below the clean offset what is left was committed, though its marker may be gone."""
    if hit.decision is Decision.OPEN and hit.offset < clean_offset:
        return replace(hit, decision=Decision.COMMITTED)
    return hit


def _last_that_counts(hits: Sequence[KeyHit]) -> KeyHit | None:
    counting = (None, Decision.COMMITTED)
    return next((hit for hit in reversed(hits) if hit.decision in counting), None)


def _records(
    rows: Sequence[SegmentRow], hits: Sequence[KeyHit], last: KeyHit | None
) -> Iterator[KeyRecord]:
    bases = [row.base_offset for row in rows]
    for hit in hits:
        row = rows[bisect_right(bases, hit.offset) - 1]
        yield KeyRecord(
            hit=hit,
            segment_base_offset=row.base_offset,
            segment_file_version=row.file_version,
            superseded_by=last.offset if last is not None and hit.offset < last.offset else None,
        )


def _fate(
    view: CleaningView, hits: Sequence[KeyHit], last: KeyHit | None, count: int
) -> Iterator[str]:
    """What becomes of the key's records, in sentences."""
    if count == 0:
        yield "no record of this key is on disk: it never was there, or is physically gone"
        return
    if last is not None:
        older = count - sum(hit.offset >= last.offset for hit in hits)
        if older:
            yield (
                f"{older} superseded records go with the first pass that reaches offset"
                f" {last.offset}; the log is clean up to {view.clean_offset}"
            )
        yield _fate_of_last(view, last)
    undecided = sum(hit.decision is Decision.OPEN for hit in hits)
    if undecided:
        yield f"{undecided} records belong to a transaction that is still open, and wait for its end"
    aborted = sum(hit.decision is Decision.ABORTED for hit in hits)
    if aborted:
        yield f"{aborted} records were aborted, and go with the next pass that reaches them"


def _fate_of_last(view: CleaningView, last: KeyHit) -> str:
    if last.value_bytes is not None:
        return f"its last value, at offset {last.offset}, stays"
    name = f"its tombstone, at offset {last.offset},"
    if last.offset == view.log_end_offset - 1:
        return f"{name} is the log's last record, and stays until something follows it"
    if last.delete_horizon_ms is not None:
        return f"{name} goes with the first pass after {moment_text(last.delete_horizon_ms)}"
    retention = view.config.delete_retention_ms
    return (
        f"{name} waits for a first pass over it, which lets it stay for"
        f" delete.retention.ms={retention} more; the log is clean up to {view.clean_offset}"
    )
