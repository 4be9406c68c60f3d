"""A key's records that are still on disk, and what becomes of them.

Where a segment has a sound key sidecar, that tells where the key's records are, and only these are read
(`cleaner/sidecar_search.py`); other segments are read as a whole, in bounded memory. Nothing is changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cleaner.find_key import KeyFinder
from cleaner.kernel import siphash128
from cleaner.key_fate import COUNTING, fate
from cleaner.meter import PassMeter
from cleaner.progress import Phase
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.settings import CleanerSettings
from cleaner.sidecar_search import SidecarNotBelieved, SidecarSearch
from cleaner.step import Decision, KeyHit, ReadStep
from storage.cleaning_view import CleanableSegment, CleaningView
from storage.errors import DamagedSidecar, MissingFile
from storage.key_sidecar import KeySidecar
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
    view: CleaningView, key: bytes, settings: CleanerSettings, *, meter: PassMeter, now_ms: int
) -> KeyHistory:
    """Look through the log of a view `as_if_rolled` for a key; a worker thread.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: a pass has swapped a segment meanwhile; take another view.
    """
    not_believed: set[int] = set()
    while True:
        finder = KeyFinder(
            key, decompressed_bytes_max=settings.decompressed_bytes_max, hits_max=HITS_MAX
        )
        try:
            _search(view, finder, settings, meter, not_believed)
        except SidecarNotBelieved as reason:
            not_believed.add(reason.base_offset)
        else:
            return key_history(view, key, finder.hits, finder.count, now_ms=now_ms)


def _search(
    view: CleaningView,
    finder: KeyFinder,
    settings: CleanerSettings,
    meter: PassMeter,
    not_believed: Container[int],
) -> None:
    sources = [
        (segment, _sidecar_of(segment, view.hash_key, not_believed)) for segment in view.segments
    ]
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
    segment: CleanableSegment, hash_key: bytes, not_believed: Container[int]
) -> KeySidecar | None:
    """The sidecar, if it is there and sound as far as one can tell; nothing is removed."""
    if segment.row.base_offset in not_believed:
        return None
    with suppress(MissingFile, DamagedSidecar):
        return segment.open_key_sidecar(hash_key)
    return None


def read_segment(
    segment: ReadableSegment, finder: KeyFinder, *, chunk_bytes: int, meter: PassMeter
) -> None:
    """Let `finder` meet all of a segment. Raises as `find_key`."""

    def step(chunk: bytes, position: int) -> ReadStep:
        return finder.feed(chunk, position=position)

    for _ in scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter):
        pass


def key_history(
    view: CleaningView, key: bytes, hits: Sequence[KeyHit], count: int, *, now_ms: int
) -> KeyHistory:
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
        fate=tuple(fate(view, hits, last, count, now_ms)),
    )


def _settled(hit: KeyHit, clean_offset: int) -> KeyHit:
    """Below the clean offset what is left was committed, though its marker may be gone."""
    if hit.decision is Decision.OPEN and hit.offset < clean_offset:
        return replace(hit, decision=Decision.COMMITTED)
    return hit


def _last_that_counts(hits: Sequence[KeyHit]) -> KeyHit | None:
    return next((hit for hit in reversed(hits) if hit.decision in COUNTING), None)


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
