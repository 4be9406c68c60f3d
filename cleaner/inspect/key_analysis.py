"""Count the keys of a log: how many, how hot, how old. Changes nothing (docs/design/key-analytics.md).

index    make the missing key sidecars, as scratch files
count    by parts of the hash space: a slot for each key, from the sidecars of all segments
name     read the last records of the hot keys
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner.inspect.hot_keys import NamedHotKey, named_hot_keys
from cleaner.inspect.key_counting import CountedKeys, KeyCounting
from cleaner.kernel.key_counts import SLOT_BYTES, KeyCounts
from cleaner.kernel.key_counts import VERSION_BYTES as COUNTED_VERSION_BYTES
from cleaner.keys.counts import KeyTally
from cleaner.keys.growth import (
    Forecast,
    Growth,
    GrowthBasis,
    KeySizes,
    forecasts,
    growth_basis,
    growth_of,
    sizes_now,
)
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import (
    MAP_ENTRY_BYTES,
    MAP_SLOTS_MIN,
    VERSION_BYTES,
    CleanerSettings,
)
from cleaner.passes.dirty_section import dirty_section, scan_bytes
from cleaner.passes.index import IndexedSegment, SegmentIndex, run_with_sidecars
from cleaner.rules.fence import Fence
from cleaner.rules.tombstone_debt import TombstoneDebt, tombstone_debt
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleaningView


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnalysis:
    """What was counted of one partition's keys."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    clean_offset: int
    counted_ms: int
    tally: KeyTally
    records: int
    """Keyed records that are committed."""
    record_bytes: int
    """Their size, uncompressed."""
    tombstones: int
    aborted: int
    undecided: int
    unkeyed: int
    """Records without a key, also those that were aborted or are below the log start."""
    parts: int
    """How many times all sidecars were scanned."""
    damaged: tuple[Fence, ...]
    """Segments that were not counted."""
    top: int
    """How many hot keys were asked for."""
    hot_keys: tuple[NamedHotKey, ...]
    debt: TombstoneDebt
    """The tombstones that passes have counted."""
    sizes: KeySizes
    map_capacity_bytes: int
    """The memory that a pass has for its offset map."""
    growth: Growth | str
    """Or why nothing is said about it."""
    forecasts: tuple[Forecast, ...] | str
    """The same."""

    @property
    def superseded(self) -> int:
        return self.records - self.tally.keys

    @property
    def deleted_keys(self) -> int:
        return self.tally.keys - self.tally.live


def key_analysis(
    view: CleaningView, settings: CleanerSettings, *, meter: PassMeter, now_ms: int, top: int
) -> KeyAnalysis:
    """Count the keys of a view of rehearsed segments, `as_if_rolled`. For a worker thread.

    Args:
        now_ms: the wall time, for growth.
        top: how many hot keys to name.

    Raises:
        CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: retention has removed a segment meanwhile; retry with a new view.
    """
    return run_with_sidecars(
        view.hash_key,
        settings,
        meter,
        lambda index: _Analysis(view, settings, index, meter, now_ms=now_ms, top=top).run(),
        strategy=view.config.strategy,
    )


class _Analysis:
    """One attempt, which ends early if a sidecar is damaged."""

    __slots__ = (
        "_fences", "_index", "_meter", "_now_ms", "_segments", "_settings", "_top", "_view",
    )  # fmt: skip

    def __init__(
        self,
        view: CleaningView,
        settings: CleanerSettings,
        index: SegmentIndex,
        meter: PassMeter,
        *,
        now_ms: int,
        top: int,
    ) -> None:
        self._view = view
        self._settings = settings
        self._index = index
        self._meter = meter
        self._now_ms = now_ms
        self._top = top
        self._segments: tuple[IndexedSegment, ...] = ()
        self._fences: tuple[Fence, ...] = ()

    def run(self) -> KeyAnalysis:
        view = self._view
        wanted = [
            each
            for each in view.segments
            if each.row.size and each.row.end_offset > view.log_start_offset
        ]
        self._segments, self._fences = self._index.index_around_damage(
            wanted, (), now_ms=self._now_ms
        )
        self._meter.progress.expect_left(Phase.RECOPY, 0)
        basis = growth_basis(
            [each.row for each in wanted],
            clean_offset=view.clean_offset,
            log_start_offset=view.log_start_offset,
            has_unfinished_pass=view.has_unfinished_pass,
            has_damage=bool(self._fences),
            now_ms=self._now_ms,
        )
        counted = self._count({} if isinstance(basis, str) else basis.ages)
        named = named_hot_keys(
            counted.hottest,
            self._segments,
            hash_key=view.hash_key,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
            meter=self._meter,
        )
        return self._analysis(counted, named, basis)

    def _count(self, ages: Mapping[int, int]) -> CountedKeys:
        view, settings = self._view, self._settings
        progress = self._meter.progress
        has_versions = view.config.strategy.has_versions
        slot_bytes = SLOT_BYTES + COUNTED_VERSION_BYTES * has_versions
        counts = KeyCounts(
            max(settings.map_bytes, MAP_SLOTS_MIN * slot_bytes),
            settings.map_load_factor,
            has_versions=has_versions,
            start_offset=view.log_start_offset,
            end_offset=view.high_watermark,
            left_out=self._left_out(),
        )
        once = scan_bytes(self._segments, view.config.strategy)
        progress.enter(Phase.COUNT)
        return KeyCounting(
            self._segments,
            counts,
            ages=ages,
            top=self._top,
            report_left=lambda scans: progress.expect_left(Phase.COUNT, scans * once),
        ).run()

    def _left_out(self) -> Sequence[tuple[int, int, int, bool]]:
        """Returns the transactions whose records count for no key: the aborted and the open ones.

        Below the clean offset passes have dropped what was aborted. A transaction that is open at a
        damaged segment stays undecided: its marker may lie in there.
        """
        view = self._view
        transactions = dirty_section(
            self._segments,
            start_offset=view.clean_offset,
            end_offset=view.high_watermark,
            fences=self._fences,
        ).transactions
        if transactions is None:
            return ()
        transactions.begin_fence(view.high_watermark)
        return transactions.left_out

    def _analysis(
        self, counted: CountedKeys, named: tuple[NamedHotKey, ...], basis: GrowthBasis | str
    ) -> KeyAnalysis:
        view, tally, total = self._view, counted.tally, counted.all
        rows = [each.row for each in self._segments]
        unkeyed = sum(each.totals.unkeyed for each in self._segments)
        config = view.config
        slot_bytes = MAP_ENTRY_BYTES + VERSION_BYTES * config.strategy.has_versions
        key_bytes = slot_bytes / self._settings.map_load_factor
        sizes = sizes_now(
            tally,
            file_bytes=sum(row.size for row in rows),
            all_bytes=total.all_bytes,
            has_only_last=not (config.history.keeps_more or config.spares_segments or unkeyed),
            key_bytes=key_bytes,
        )
        growth: Growth | str = (
            basis
            if isinstance(basis, str)
            else growth_of(
                basis,
                tally,
                records=counted.above.records,
                record_bytes=counted.above.record_bytes,
            )
        )
        return KeyAnalysis(
            topic_partition=view.topic_partition,
            start_offset=view.log_start_offset,
            end_offset=view.high_watermark,
            clean_offset=view.clean_offset,
            counted_ms=self._now_ms,
            tally=tally,
            records=total.records,
            record_bytes=total.record_bytes,
            tombstones=total.tombstones,
            aborted=total.aborted,
            undecided=total.undecided,
            unkeyed=unkeyed,
            parts=counted.parts,
            damaged=self._fences,
            top=self._top,
            hot_keys=named,
            debt=tombstone_debt(rows),
            sizes=sizes,
            map_capacity_bytes=self._settings.map_bytes,
            growth=growth,
            forecasts=(
                growth
                if isinstance(growth, str)
                else forecasts(sizes, growth, config=config, key_bytes=key_bytes)
            ),
        )
