"""Find out which of several keys have records in a log, by the hashes of the keys alone.

    search    with key sidecars where they are sound; only the other segments are read
    proof     every segment is read, and each record's key is hashed again; no sidecar is trusted

Equal keys have equal hashes, so a hash that is not found proves that its key has no record. All keys are
looked for in one reading. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cleaner.inspect.sidecar_search import HASH_BYTES, bytes_of
from cleaner.kernel.kernel import KeyIndexer
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.index import indexed_blocks
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.files.errors import DamagedSidecar, MissingFile
from storage.formats.key_sidecar import ENTRY, TOMBSTONE, VERSION, KeyBlock, key_block
from storage.log.cleaning_view import CleanableSegment, CleaningView

LEAST_OFFSET = Offset(0)

FEW_KEYS = 8
"""So many hashes are looked for one after the other in a block, which is faster than entry by entry."""


@dataclass(slots=True)
class KeyTrace:
    """The records of one key that were found."""

    count: int
    first_offset: int
    last_offset: int
    highest_version: int
    """The highest of their versions; 0 if the log ranks records by offset."""

    def plus(self, other: KeyTrace) -> KeyTrace:
        """Returns the traces of two parts of a log together."""
        return KeyTrace(
            self.count + other.count,
            min(self.first_offset, other.first_offset),
            max(self.last_offset, other.last_offset),
            max(self.highest_version, other.highest_version),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTraces:
    """What a reading of a log has found."""

    traces: Mapping[bytes, KeyTrace]
    """By the hash of the key; a key without records is missing."""
    view: CleaningView
    """The log as it was read."""
    end_offset: Offset
    """Below it the log was read."""
    records: int
    """Records that were looked at."""
    bytes_read: int

    def first_offset(self, key_hash: bytes) -> int:
        """Returns the offset of a key's first record; `OFFSET_MAX` if it has none."""
        trace = self.traces.get(key_hash)
        return OFFSET_MAX if trace is None else trace.first_offset


def trace_keys(
    view: CleaningView,
    hashes: Collection[bytes],
    settings: CleanerSettings,
    *,
    meter: PassMeter,
    start_offset: Offset = LEAST_OFFSET,
    end_offset: Offset = OFFSET_MAX,
    trusts_sidecars: bool,
) -> KeyTraces:
    """Look for keys in [start_offset, end_offset) of a view `as_if_rolled`. For a worker thread.

    Args:
        hashes: of the keys, under the view's `hash_key`.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: a pass has swapped a segment meanwhile; retry with a new view.
    """
    wanted = [
        each
        for each in view.segments
        if each.row.base_offset < end_offset and each.row.end_offset > start_offset
    ]
    search = _Search(view, frozenset(hashes), settings, meter, start_offset, end_offset)
    meter.progress.expect_left(Phase.SEARCH, sum(each.row.size for each in wanted))
    meter.progress.enter(Phase.SEARCH)
    for segment in wanted:
        if not (trusts_sidecars and search.by_sidecar(segment)):
            search.by_records(segment)
    return KeyTraces(
        traces=search.traces,
        view=view,
        end_offset=Offset(min(end_offset, view.log_end_offset)),
        records=search.records,
        bytes_read=search.bytes_read,
    )


class _Search:
    """One reading of a log."""

    __slots__ = (
        "_end_offset", "_hashes", "_meter", "_settings", "_start_offset", "_view", "bytes_read",
        "records", "traces",
    )  # fmt: skip

    def __init__(
        self,
        view: CleaningView,
        hashes: frozenset[bytes],
        settings: CleanerSettings,
        meter: PassMeter,
        start_offset: Offset,
        end_offset: Offset,
    ) -> None:
        # Constant after construction.
        self._view = view
        self._hashes = hashes
        self._settings = settings
        self._meter = meter
        self._start_offset = start_offset
        self._end_offset = end_offset
        # State.
        self.traces: dict[bytes, KeyTrace] = {}
        self.records = 0
        self.bytes_read = 0

    def by_sidecar(self, segment: CleanableSegment) -> bool:
        """Look into a segment's key sidecar. Returns False if it is missing or damaged."""
        with suppress(MissingFile, DamagedSidecar):
            sidecar = segment.open_key_sidecar(self._view.hash_key, self._view.config.strategy)
            self._take(segment, self._metered(sidecar.blocks()))
            return True
        return False

    def by_records(self, segment: CleanableSegment) -> None:
        """Read a segment, and hash each key again."""
        indexer = KeyIndexer(
            self._view.hash_key,
            base_offset=segment.row.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
            strategy=self._view.config.strategy,
        )
        blocks = indexed_blocks(
            segment, indexer, chunk_bytes=self._settings.chunk_bytes, meter=self._meter
        )
        self._take(segment, (key_block(each, position=0, first_entry=0) for each in blocks))
        self.bytes_read += segment.row.size

    def _metered(self, blocks: Iterator[KeyBlock]) -> Iterator[KeyBlock]:
        for block in blocks:
            self._meter.read(len(block.data))
            yield block

    def _take(self, segment: CleanableSegment, blocks: Iterator[KeyBlock]) -> None:
        """Add what a segment has, once all of it was read: a damaged sidecar adds nothing."""
        found: dict[bytes, KeyTrace] = {}
        records = 0
        for block in blocks:
            records += block.entry_count + block.unkeyed_count
            for key_hash, trace in _traces_in(block, self._hashes, segment.row.base_offset):
                if self._start_offset <= trace.first_offset < self._end_offset:
                    _add(found, key_hash, trace)
        for key_hash, trace in found.items():
            _add(self.traces, key_hash, trace)
        self.records += records


def _add(traces: dict[bytes, KeyTrace], key_hash: bytes, trace: KeyTrace) -> None:
    before = traces.get(key_hash)
    traces[key_hash] = trace if before is None else before.plus(trace)


def _traces_in(
    block: KeyBlock, hashes: frozenset[bytes], base_offset: int
) -> Iterator[tuple[bytes, KeyTrace]]:
    """Yields each entry of a block that has one of the hashes, as a trace of one record."""
    data = bytes_of(block.data)
    places = _places_of_few if len(hashes) <= FEW_KEYS else _places_of_many
    for at in places(data, hashes, block):
        relative = int.from_bytes(data[at + HASH_BYTES : at + HASH_BYTES + 4], "big") & ~TOMBSTONE
        offset, version = base_offset + relative, 0
        if block.has_column:
            number = (at - block.entries_at) // ENTRY.size
            (version,) = VERSION.unpack_from(data, block.versions_at + number * VERSION.size)
        yield data[at : at + HASH_BYTES], KeyTrace(1, offset, offset, version)


def _places_of_few(data: bytes, hashes: frozenset[bytes], block: KeyBlock) -> Iterator[int]:
    for key_hash in hashes:
        at = data.find(key_hash, block.entries_at, block.versions_at)
        while at >= 0:
            if (at - block.entries_at) % ENTRY.size == 0:
                yield at
            at = data.find(key_hash, at + 1, block.versions_at)


def _places_of_many(data: bytes, hashes: frozenset[bytes], block: KeyBlock) -> Iterator[int]:
    for at in range(block.entries_at, block.versions_at, ENTRY.size):
        if data[at : at + HASH_BYTES] in hashes:
            yield at
