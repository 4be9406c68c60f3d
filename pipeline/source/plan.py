"""Plans a read of segment files: ranges of offsets, one per task.

The plan decides everything once, from one look at each log: where its range begins and ends, and which
transactions in it were aborted. Tasks only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from pipeline.source.cuts import cuts
from pipeline.source.filters import Range, RowFilter
from pipeline.source.options import EARLIEST, LATEST, BadOption, Bound, SegmentOptions
from pipeline.source.read import OffsetsGone, RangeOfLog, record_batches
from storage.files.files import FileSystem
from storage.formats.log_identity import LogIdentity
from storage.log.on_disk import LogOnDisk, look_at_log
from storage.verify.verify import find_logs

OFFSET_ONLY = pa.schema([pa.field("offset", pa.int64())])


def plan(fs: FileSystem, options: SegmentOptions, wanted: RowFilter) -> list[RangeOfLog]:
    """Returns the ranges to read, partition by partition.

    Raises:
        BadOption: the path holds no data of Kompakt, or a topic or partition does not exist.
        OffsetsGone: requested offsets are not in the log, and the options make that an error.
        StorageError: the files cannot be read.
    """
    ranges: list[RangeOfLog] = []
    for identity in logs_of(fs, options):
        topic_partition = identity.topic_partition
        if wanted.wants(topic_partition.topic, topic_partition.partition):
            log = look_at_log(fs, identity)
            if log is not None:
                ranges += _ranges_of(fs, log, options, wanted)
    return ranges


def logs_of(fs: FileSystem, options: SegmentOptions) -> list[LogIdentity]:
    """Returns the subscribed logs at the path."""
    found = find_logs(fs, options.path)
    if found is None:
        raise BadOption(
            f"{options.path} is not a data directory, topic's folder or partition's folder"
        )
    topics = {log.topic_partition.topic for log in found.logs}
    missing = options.subscription.missing(topics)
    if missing:
        raise BadOption(
            f"{options.path} has no topic {', '.join(missing)}; the files of a topic that was created a"
            " moment ago may follow within seconds: then read again"
        )
    return [
        log
        for log in found.logs
        if options.subscription.has(
            log.topic_partition.topic, log.topic_partition.partition, is_alone=len(topics) == 1
        )
    ]


def _ranges_of(
    fs: FileSystem, log: LogOnDisk, options: SegmentOptions, wanted: RowFilter
) -> Iterator[RangeOfLog]:
    """Returns the ranges of one log, cut between segments and, in a large segment, by its index."""
    whole = _whole(log, options)
    bounds = Range(*_bounds(fs, whole, log, options))
    bounds.narrow(wanted.offset.first, wanted.offset.end)
    milliseconds = wanted.milliseconds
    segments = [
        each
        for each in log.segments
        if each.base_offset < bounds.end
        and each.end_offset > bounds.first
        and not 0 <= each.max_timestamp < milliseconds.first
    ]
    for first, end, covering in cuts(fs, log, segments, options.partition_bytes_max):
        first, end = max(first, bounds.first), min(end, bounds.end)
        if first < end:
            yield replace(
                whole,
                first_offset=first,
                end_offset=end,
                segments=covering,
                first_timestamp=milliseconds.first,
                end_timestamp=milliseconds.end,
                aborted=tuple(row for row in whole.aborted if row[1] < end and row[2] >= first),
            )


def _whole(log: LogOnDisk, options: SegmentOptions) -> RangeOfLog:
    """Returns the whole readable range of a log."""
    topic_partition, is_committed = log.identity.topic_partition, options.read_committed
    return RangeOfLog(
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        directory=log.identity.directory,
        first_offset=log.log_start_offset,
        end_offset=log.last_stable_offset if is_committed else log.end_offset,
        segments=log.segments,
        aborted=log.aborted if is_committed else (),
        fail_on_data_loss=options.fail_on_data_loss,
    )


# ---------------------------------------------------------------- where a range begins and ends


def _bounds(
    fs: FileSystem, whole: RangeOfLog, log: LogOnDisk, options: SegmentOptions
) -> tuple[int, int]:
    """Returns the offsets that the options select.

    Raises:
        OffsetsGone: they are not all in the log, and the options make that an error.
    """
    first = _offset_of(fs, whole, options.start)
    if first is None:
        if options.must_have_start:
            raise OffsetsGone(
                f"{_name(whole)} has no record of the starting time or later;"
                " startingOffsetsByTimestampStrategy=latest reads nothing there"
            )
        first = whole.end_offset
    end = _offset_of(fs, whole, options.end)
    end = whole.end_offset if end is None else end
    if options.fail_on_data_loss and not _is_in(whole, first, end):
        raise OffsetsGone(
            f"{_name(whole)} has the offsets [{whole.first_offset}, {whole.end_offset}), and"
            f" [{first}, {end}) are requested; failOnDataLoss=false reads those that exist"
        )
    return max(first, whole.first_offset), min(end, whole.end_offset)


def _is_in(whole: RangeOfLog, first: int, end: int) -> bool:
    return whole.first_offset <= first <= whole.end_offset and end <= whole.end_offset


def _name(whole: RangeOfLog) -> str:
    return f"partition {whole.partition} of {whole.topic}"


def _offset_of(fs: FileSystem, whole: RangeOfLog, bound: Bound) -> int | None:
    """Returns the offset of a bound; None if it is a time that no record reaches."""
    number = bound.of(whole.topic, whole.partition)
    if bound.is_time:
        return _first_at_or_after(fs, whole, number)
    if number == EARLIEST:
        return whole.first_offset
    return whole.end_offset if number == LATEST else number


def _first_at_or_after(fs: FileSystem, whole: RangeOfLog, milliseconds: int) -> int | None:
    """Returns the offset of the first record at that time or later; as in the broker, markers count."""
    segments = tuple(
        each
        for each in whole.segments
        if each.end_offset > whole.first_offset and not 0 <= each.max_timestamp < milliseconds
    )
    look = replace(whole, segments=segments, first_timestamp=milliseconds, aborted=())
    batches = record_batches(fs, look, OFFSET_ONLY, rows_target=1, with_markers=True)
    first = next(batches, None)
    return None if first is None else int(first.column(0)[0].as_py())
