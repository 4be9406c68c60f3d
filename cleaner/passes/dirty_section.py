"""The dirty section of a pass: which segments fill the offset map, and where the pass ends.

The outcomes of the section's transactions are known before the map is filled: aborted records are never
in it, and a pass ends before the first transaction that is not decided.

A pass that sweeps takes the whole log for dirty: it maps the keys of the clean section, too.

A transaction that is open where a fence begins (`cleaner/rules/fence.py`) does not end the pass: its
records are in no map, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleaner.kernel.kernel import Transactions
from cleaner.rules.fence import Fence, clean_offset_max
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, blocks_bytes
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow


class KeySource(Protocol):
    """A segment whose keys can be read repeatedly, in blocks."""

    @property
    def row(self) -> SegmentRow: ...
    @property
    def totals(self) -> KeyTotals: ...
    def blocks(self) -> Iterator[KeyBlock]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtySection:
    """The mapped section: the offsets [map_offset, end_offset), and the segments that hold them."""

    sources: Sequence[KeySource]
    start_offset: Offset
    """Where the dirty section begins: the outcomes of transactions are known from here on."""
    end_offset: Offset
    """Where the pass ends: all transactions below it are decided."""
    transactions: Transactions | None
    """The outcomes of its transactions; None if it has none."""
    strategy: CompactionStrategy = BY_OFFSET
    """How the records of a key are ranked."""
    below: Sequence[KeySource] = ()
    """The segments with records below `map_offset` that may outrank those of the map, or are counted
    with them."""
    log_start_offset: int = 0
    """Records below it neither win nor lose; 0 unless records have versions."""
    sweeps: bool = False
    """Whether the clean section is mapped, too."""
    history: CompactionHistory = LAST_VALUE
    """Which older values stay."""
    now_ms: int = 0
    """The time by which values are thinned."""
    spares: bool = False
    """Whether segments are spared, so that it must be known which records come before a tombstone."""

    fences: Sequence[Fence] = ()
    """The damaged segments below `end_offset`, which are not among the sources."""

    @property
    def counts_records(self) -> bool:
        """Whether the records of each key are counted."""
        return self.history.keeps_more or self.spares

    @property
    def clean_offset_max(self) -> Offset:
        """How far a pass may move the clean offset; see `cleaner/rules/fence.py`."""
        undecided = self.transactions.first_undecided if self.transactions else OFFSET_MAX
        return clean_offset_max(self.fences, undecided)

    @property
    def map_offset(self) -> int:
        """The first offset whose record gets into the map."""
        return max(0 if self.sweeps else self.start_offset, self.log_start_offset)

    @property
    def entries_max(self) -> int:
        """An upper bound of the number of distinct keys."""
        return sum(source.totals.entries for source in self.sources)

    @property
    def scan_bytes(self) -> int:
        """The bytes that filling the map with one part reads."""
        return scan_bytes([*self.sources, *self.below], self.strategy)


def dirty_section(
    sources: Sequence[KeySource],
    *,
    start_offset: Offset,
    end_offset: Offset,
    strategy: CompactionStrategy = BY_OFFSET,
    log_start_offset: int = 0,
    sweeps: bool = False,
    history: CompactionHistory = LAST_VALUE,
    now_ms: int = 0,
    spares: bool = False,
    fences: Sequence[Fence] = (),
) -> DirtySection:
    """Returns the dirty section; the outcomes of its transactions determine where the pass ends.

    Args:
        sweeps, history, now_ms, spares: see `DirtySection`.
        fences: the damaged segments that are not among the sources.
    """
    sources = [source for source in sources if source.row.base_offset < end_offset]
    dirty = [source for source in sources if source.row.end_offset > start_offset]
    looks_below = strategy.has_versions or history.keeps_more or spares
    below = [each for each in sources if looks_below and each.row.base_offset < start_offset]
    transactions = None
    if any(source.totals.special_rows for source in dirty):
        transactions = Transactions(start_offset=start_offset, end_offset=end_offset)
        _walk(transactions, dirty, fences)
    section_end = transactions.end_offset if transactions else end_offset
    # Of a log that begins within an undecided batch, nothing is left to judge, and no batch is split.
    sweeps = sweeps and section_end > log_start_offset
    return DirtySection(
        sources=sources if sweeps else dirty,
        start_offset=start_offset,
        end_offset=section_end,
        transactions=transactions,
        strategy=strategy,
        below=[] if sweeps else below,
        log_start_offset=log_start_offset if strategy.has_versions else 0,
        sweeps=sweeps,
        history=history,
        now_ms=now_ms,
        spares=spares,
        fences=[fence for fence in fences if fence.base_offset < section_end],
    )


def _walk(
    transactions: Transactions, sources: Iterable[KeySource], fences: Sequence[Fence]
) -> None:
    to_come = list(reversed(fences))
    for source in sources:
        while to_come and to_come[-1].base_offset < source.row.base_offset:
            transactions.begin_fence(to_come.pop().base_offset)
        for block in source.blocks():
            if not transactions.walk(block.data, base_offset=source.row.base_offset):
                return
    if to_come:
        transactions.begin_fence(to_come[-1].base_offset)


def scan_bytes(sources: Iterable[KeySource], strategy: CompactionStrategy) -> int:
    """Returns the bytes that one scan of these segments' sidecars reads."""
    has_column = strategy.has_column
    return sum(blocks_bytes(source.totals, has_column=has_column) for source in sources)
