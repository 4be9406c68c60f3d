"""The kernel's steps over a log of one segment: index, walk, map, mark, filter; one function each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Buffer

from cleaner.kernel.kernel import (
    BatchFilter,
    History,
    KeyIndexer,
    OffsetMap,
    Transactions,
    count_keys,
    map_keys,
    mark_keys,
    raise_keys,
)
from cleaner.rules.history import levels_of
from cleaner.rules.step import FilterStep, SegmentSummary
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.config_property import LONG_MAX
from storage.formats.key_totals import KeyTotals
from tests.cleaner.kernel_log import HASH_KEY, INFLATED_BYTES_MAX
from tests.harness.key_blocks import TIMESTAMP, block_of, keys_of, totals_of
from tests.harness.log_builder import headers_in


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedLog:
    """A log in one segment, with the blocks of its key sidecar."""

    data: bytes
    base_offset: int
    blocks: tuple[bytes, ...]
    totals: KeyTotals
    strategy: CompactionStrategy = BY_OFFSET
    history: CompactionHistory = LAST_VALUE
    now_ms: int = 0

    def empty_map(self) -> tuple[OffsetMap, History | None]:
        """Returns a map for it, and its history for the kernel."""
        return map_for(self.strategy, self.history, self.now_ms)


def map_for(
    strategy: CompactionStrategy, history: CompactionHistory, now_ms: int
) -> tuple[OffsetMap, History | None]:
    """Returns an empty map, and the history for the kernel."""
    offset_map = OffsetMap(
        1 << 16,
        HASH_KEY,
        has_versions=strategy.has_versions,
        has_counts=history.keeps_more,
    )
    if not history.keeps_more:
        return offset_map, None
    levels = levels_of(history)
    cells = OffsetMap(1 << 16, HASH_KEY) if levels else None
    kept = History(versions=history.versions, levels=levels, now_ms=now_ms, cells=cells)
    return offset_map, kept


def index_log(
    data: bytes,
    *,
    base_offset: int = 0,
    chunk_bytes: int = 1 << 20,
    strategy: CompactionStrategy = BY_OFFSET,
) -> IndexedLog:
    """Index a log in chunks; a chunk grows if a batch does not fit."""
    indexer = KeyIndexer(
        HASH_KEY,
        base_offset=base_offset,
        decompressed_bytes_max=INFLATED_BYTES_MAX,
        strategy=strategy,
    )
    position, size, blocks = 0, chunk_bytes, list[bytes]()
    while position < len(data):
        step = indexer.feed(data[position : position + size], position=position)
        blocks += [] if step.block is None else [step.block]
        position += step.consumed_bytes
        size = max(chunk_bytes, step.needed_bytes)
        assert position + step.needed_bytes <= len(data), "the log ends inside a batch"
    return IndexedLog(
        data=data,
        base_offset=base_offset,
        blocks=tuple(blocks),
        totals=indexer.totals,
        strategy=strategy,
    )


def assert_blocks_hold(indexed: IndexedLog) -> None:
    """Compare the blocks and their totals with the plain oracle's, byte for byte."""
    position = 0
    for block in indexed.blocks:
        end = position + data_bytes(block)
        batches = keys_of(indexed.data[position:end])
        assert block == block_of(
            batches,
            base_offset=indexed.base_offset,
            hash_key=HASH_KEY,
            ranked_by=ranked_by(indexed.strategy),
        )
        position = end
    assert position == len(indexed.data)
    assert indexed.totals == replace(totals_of(indexed.data), blocks=len(indexed.blocks))


def ranked_by(strategy: CompactionStrategy) -> str:
    """Returns the strategy as the oracle of key blocks takes it."""
    return strategy.header or (TIMESTAMP if strategy.has_column else "")


def walk_log(
    indexed: IndexedLog, *, start_offset: int, end_offset: int, fence_block: int | None = None
) -> Transactions:
    """Returns the outcomes of a log's transactions; a fence may begin before one of its blocks."""
    transactions = Transactions(start_offset=start_offset, end_offset=end_offset)
    for number, block in enumerate(indexed.blocks):
        if number == fence_block:
            transactions.begin_fence(headers_in(indexed.data)[number].base_offset)
        if not transactions.walk(block, base_offset=indexed.base_offset):
            break
    return transactions


def map_log(
    indexed: IndexedLog,
    offset_map: OffsetMap,
    *,
    start_offset: int,
    end_offset: int,
    transactions: Transactions | None = None,
    history: History | None = None,
) -> None:
    """Map a log, or the map's part of its keys; it must fit."""
    for block in indexed.blocks:
        step = map_keys(
            block,
            offset_map,
            base_offset=indexed.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
            history=history,
        )
        assert not step.is_full
    for block in indexed.blocks:
        if history is not None:
            assert count_keys(
                block,
                offset_map,
                history,
                base_offset=indexed.base_offset,
                end_offset=start_offset,
                transactions=transactions,
            )
        elif indexed.strategy.has_versions:
            raise_keys(
                block,
                offset_map,
                base_offset=indexed.base_offset,
                start_offset=0,
                end_offset=start_offset,
            )


@dataclass(slots=True)
class Marked:
    """The marks of a log, and the counts made while they were set."""

    marks: bytearray
    winners: bytearray | None = None
    superseded: int = 0
    met: int = 0
    met_offset_sum: int = 0
    unknown: int = 0
    met_cells: int = 0
    due_ms: int = LONG_MAX

    def set_of(self, indexed: IndexedLog, offset_map: OffsetMap, **section: Any) -> None:
        """Mark the records superseded according to the map, which holds one part of the keys."""
        first_entry = 0
        for block in indexed.blocks:
            step = mark_keys(
                block,
                offset_map,
                self.marks,
                base_offset=indexed.base_offset,
                first_entry=first_entry,
                winners=self.winners,
                **section,
            )
            first_entry += entry_count(block)
            self.superseded += step.superseded
            self.met += step.met.count
            self.met_offset_sum = (self.met_offset_sum + step.met.offset_sum) % 2**64
            self.unknown += step.unknown
            self.met_cells += step.met_cells.count


def entry_count(block: bytes) -> int:
    return int.from_bytes(block[8:12])


def data_bytes(block: bytes) -> int:
    return int.from_bytes(block[:4])


def mark_log(
    indexed: IndexedLog,
    *,
    start_offset: int = 0,
    end_offset: int,
    transactions: Transactions | None = None,
    parts: int = 1,
) -> Marked:
    """Map a log part by part, and mark its superseded records."""
    size, has_versions = (indexed.totals.entries + 7) // 8, indexed.strategy.has_versions
    marked = Marked(bytearray(size), bytearray(size) if has_versions else None)
    offset_map, history = indexed.empty_map()
    for part in range(parts):
        offset_map.clear(part=part, parts=parts)
        cells = None if history is None else history.cells
        if cells is not None:
            cells.clear()
        map_log(
            indexed,
            offset_map,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
            history=history,
        )
        marked.set_of(
            indexed,
            offset_map,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
            history=history,
        )
        assert offset_map.left == 0, "records were counted and not met"
        if history is not None:
            marked.due_ms = history.due_ms
    return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    summary: SegmentSummary
    data: bytes
    index_entries: tuple[tuple[int, int, int, int], ...]
    blocks: tuple[bytes, ...]
    totals: KeyTotals
    strategy: CompactionStrategy

    @property
    def as_indexed(self) -> IndexedLog:
        return IndexedLog(
            data=self.data,
            base_offset=self.summary.base_offset,
            blocks=self.blocks,
            totals=self.totals,
            strategy=self.strategy,
        )


def filter_log(
    indexed: IndexedLog, marks: Buffer, batch_filter: BatchFilter, winners: Buffer | None = None
) -> list[CleanedSegment]:
    """Filter a log, block by block, into as many segments as needed."""
    strategy = indexed.strategy
    segments, steps = list[CleanedSegment](), list[FilterStep]()
    position = 0
    batch_filter.start_source(indexed.base_offset, marks, winners)
    batch_filter.start_segment(indexed.base_offset)
    for block in indexed.blocks:
        end = position + data_bytes(block)
        while position < end:
            step = batch_filter.feed(indexed.data[position:end], block, position=position)
            steps.append(step)
            position += step.consumed_bytes
            if step.segment_full:
                segments.append(cleaned_segment(batch_filter, steps, strategy))
                batch_filter.start_segment(step.next_base_offset)
                steps = []
    segments.append(cleaned_segment(batch_filter, steps, strategy))
    return segments


def cleaned_segment(
    batch_filter: BatchFilter, steps: list[FilterStep], strategy: CompactionStrategy
) -> CleanedSegment:
    numbers = [number for step in steps for number in step.index_entries.tolist()]
    entries = tuple(zip(numbers[0::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True))
    blocks = [*(step.key_block for step in steps), batch_filter.take_keys()]
    return CleanedSegment(
        summary=batch_filter.segment,
        data=b"".join(step.output for step in steps),
        index_entries=entries,
        blocks=tuple(block for block in blocks if block),
        totals=batch_filter.key_totals,
        strategy=strategy,
    )
