"""The digest of a log's table (the last value of each key): index -> mark -> sum. Changes nothing.

    index    make the missing key sidecars, as scratch files
    mark     every key of the log, by parts of the hash space -> a bit for each superseded record
    sum      read the last records that have a value and sum them (`cleaner/kernel/table_digest.h`)

The digest covers one range of offsets, [start, end). The end is at most the last stable offset, so for
every record it is known whether it was committed. A cleaning pass below the end does not change the
digest: it drops superseded and aborted records, records without a key, and tombstones, and none of them
counts. A pass that has gone beyond the end may have dropped the last value below it; so two digests up
to the same end can be compared only while the clean offset is at or below that end.

Sidecars are not trusted: all records that are read are compared with them, and if one is wrong it is
rebuilt and the work starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cleaner.kernel.kernel import LogSum, Transactions
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.work_left import MarkLeft
from cleaner.passes.dirty_section import DirtySection, dirty_section, scan_bytes
from cleaner.passes.index import IndexedSegment, SegmentIndex, run_with_sidecars
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.mark import Marked, mark_window
from cleaner.passes.memory import map_beside_marks, windows
from cleaner.passes.scan import read_exactly
from cleaner.passes.verify_pass import PassVerifier
from cleaner.rules.step import KeysDiffer
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar
from storage.files.paths import KEYS
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleaningView


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDigest:
    """The table digest of one partition."""

    topic_partition: TopicPartition
    start_offset: int
    """The log start offset: records below it do not count."""
    end_offset: int
    """Exclusive: records at or above it do not count."""
    clean_offset: int
    """If above `end_offset`, last values below the end may be gone, superseded by others."""
    keys: int
    """Number of keys that have a value."""
    digest: int
    """128 bits."""
    strategy: CompactionStrategy
    """Which record of a key counted as its last one."""


def log_digest(
    view: CleaningView, end_offset: int | None, settings: CleanerSettings, *, meter: PassMeter
) -> LogDigest:
    """Sum the last records of a view of rehearsed segments, `as_if_rolled`. For a worker thread.

    Args:
        end_offset: at most the last stable offset, which is the default.

    Raises:
        ValueError: `end_offset` is not in the log, or not stable.
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        SegmentRemoved: retention has removed a segment meanwhile; retry with a new view.
        VerificationFailed: the offset map is wrong.
    """
    end = stable_end(view.log_start_offset, view.last_stable_offset, end_offset)
    settings = replace(settings, verify=True)
    return run_with_sidecars(
        view.hash_key,
        settings,
        meter,
        lambda index: _execute(view, end, settings, index, meter),
        strategy=view.config.strategy,
    )


def stable_end(
    log_start_offset: Offset, last_stable_offset: Offset, end_offset: int | None
) -> Offset:
    """Returns the end offset of a digest. Pure.

    Raises:
        ValueError: `end_offset` is above the last stable offset or below the log start.
    """
    if end_offset is None:
        return last_stable_offset
    if not log_start_offset <= end_offset <= last_stable_offset:
        raise ValueError(
            f"end offset {end_offset} is not in [{log_start_offset}, {last_stable_offset}]:"
            " from the log start to the last stable offset"
        )
    return Offset(end_offset)


def _execute(
    view: CleaningView,
    end_offset: Offset,
    settings: CleanerSettings,
    index: SegmentIndex,
    meter: PassMeter,
) -> LogDigest:
    indexed = index.index_segments([each for each in view.segments if each.row.size])
    meter.progress.expect_left(Phase.RECOPY, 0)
    meter.progress.enter(Phase.MARK)
    start_offset = view.log_start_offset
    segments = [
        each
        for each in indexed
        if each.row.end_offset > start_offset and each.row.base_offset < end_offset
    ]
    section = DirtySection(
        sources=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        transactions=_transactions_of(view, indexed),
        strategy=view.config.strategy,
        log_start_offset=start_offset if view.config.strategy.has_versions else 0,
    )
    log_sum = LogSum(
        view.hash_key,
        start_offset=start_offset,
        end_offset=end_offset,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        transactions=section.transactions,
    )
    _sum_all(view.hash_key, segments, section, log_sum, settings, meter)
    return LogDigest(
        topic_partition=view.topic_partition,
        start_offset=start_offset,
        end_offset=end_offset,
        clean_offset=view.clean_offset,
        keys=log_sum.keys,
        digest=log_sum.digest,
        strategy=view.config.strategy,
    )


def _transactions_of(view: CleaningView, indexed: Sequence[IndexedSegment]) -> Transactions | None:
    """Returns the outcomes of the log's transactions; None if it has none.

    All transactional records left below the clean offset were committed, though their markers may be
    gone. A transaction below the last stable offset may have its marker above it, hence the high
    watermark.
    """
    return dirty_section(
        indexed, start_offset=view.clean_offset, end_offset=view.high_watermark
    ).transactions


def _sum_all(
    hash_key: bytes,
    segments: Sequence[IndexedSegment],
    section: DirtySection,
    log_sum: LogSum,
    settings: CleanerSettings,
    meter: PassMeter,
) -> None:
    """Window by window: mark the superseded records, and sum the others."""
    meter.progress.expect_left(Phase.DIGEST, sum(each.recopied_bytes for each in segments))
    strategy = section.strategy
    spans = windows([each.totals.entries for each in segments], settings.marks_bytes, strategy)
    parts = KeyParts(section, map_beside_marks(hash_key, segments, spans, settings, strategy))
    verifier = PassVerifier(settings, meter=meter, monotonic=lambda: 0.0)
    left = MarkLeft(meter.progress)
    for number, span in enumerate(spans, 1):
        window, to_map = segments[span], section.scan_bytes * (len(spans) - number)
        left.begin_window(scan_bytes(segments[span.stop :], section.strategy) + to_map)
        marked = mark_window(window, section, parts, verifier, report_left=left.report)
        meter.progress.enter(Phase.DIGEST)
        for segment, its in zip(window, marked, strict=True):
            _sum(segment, its, log_sum, meter)


def _sum(segment: IndexedSegment, its: Marked, log_sum: LogSum, meter: PassMeter) -> None:
    log_sum.start_source(segment.row.base_offset, its.marks)
    try:
        for block in segment.blocks():
            data = read_exactly(segment, block.position, block.data_bytes)
            meter.read(len(data))
            log_sum.feed(data, block.data, position=block.position)
    except KeysDiffer as error:
        segment.segment.drop_key_sidecar()
        raise DamagedSidecar(segment.segment.segment.path(KEYS), str(error)) from error
