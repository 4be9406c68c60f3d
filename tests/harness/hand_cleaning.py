"""Cleans segments by hand: the caller decides which records go. Storage only sees files and a swap."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record_batch import Record, build_batch, build_empty_batch, read_records
from protocol.wire.numbers import Offset
from storage.formats.manifest import SegmentRow
from storage.log.cleaning_view import CleanableSegment
from storage.log.log import PartitionLog
from storage.segment.cleaned_segment import CleanedSegment
from tests.harness.key_blocks import blocks_of, totals_of
from tests.harness.log_builder import PLENTY


def recopied(
    sources: Sequence[CleanableSegment],
    keep: Callable[[Record], bool],
    producer_last_offsets: Sequence[int],
) -> tuple[list[bytes], set[int]]:
    """Returns the remaining batches of the sources, and the offsets of the removed records."""
    batches: list[bytes] = []
    dropped: set[int] = set()
    for source in sources:
        data = source.read_at(0, source.row.size)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            records = read_records(batch, decompressed_bytes_max=PLENTY)
            kept = [record for record in records if keep(record)]
            dropped.update(record.offset for record in records if record not in kept)
            if kept == records and records:
                batches.append(batch)
            elif kept:
                batches.append(_rebuilt(kept, header))
            elif header.last_offset in producer_last_offsets:
                batches.append(bytes(build_empty_batch(header)))
            position += header.size_bytes
    return batches, dropped


def _rebuilt(kept: list[Record], header: BatchHeader) -> bytes:
    return bytes(
        build_batch(
            kept,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            last_offset=header.last_offset,
        )
    )


def write_cleaned(
    log: PartitionLog,
    sources: Sequence[CleanableSegment],
    batches: list[bytes],
    *,
    cut: int,
    has_keys: bool = True,
) -> list[CleanedSegment]:
    """Write the batches as up to two segments, the second from batch `cut` on, over [base, end).

    Args:
        has_keys: whether they get key sidecars.
    """
    groups = [group for group in (batches[:cut], batches[cut:]) if group]
    bases = [sources[0].row.base_offset]
    bases += [read_header(group[0]).base_offset for group in groups[1:]]
    ends = [*bases[1:], sources[-1].row.end_offset]
    return [
        _write(log, sources, group, base, end, has_keys=has_keys)
        for group, base, end in zip(groups, bases, ends, strict=False)
    ]


def _write(
    log: PartitionLog,
    sources: Sequence[CleanableSegment],
    batches: list[bytes],
    base_offset: int,
    end_offset: int,
    *,
    has_keys: bool,
) -> CleanedSegment:
    writer = log.cleaning.new_cleaned_segment(Offset(base_offset))
    record_count, control_count, youngest, youngest_offset = 0, 0, -1, -1
    for batch in batches:
        header = read_header(batch)
        record_count += header.record_count
        control_count += header.record_count * header.is_control
        if header.record_count and header.max_timestamp > youngest:
            youngest, youngest_offset = header.max_timestamp, header.last_offset
        entry = array("q")
        if writer.size and youngest >= 0:
            entry.extend((header.last_offset, writer.size, youngest, youngest_offset))
        writer.append(batch, memoryview(entry))
    totals = None
    if has_keys:
        data, hash_key = b"".join(batches), log.identity.hash_key
        for block in blocks_of(data, base_offset=base_offset, hash_key=hash_key):
            writer.append_keys(block)
        totals = totals_of(data)
    return writer.finish(
        SegmentRow(
            base_offset=Offset(base_offset),
            file_version=0,
            end_offset=Offset(end_offset),
            max_timestamp=youngest,
            offset_of_max_timestamp=Offset(youngest_offset),
            created_ms=0,
            first_append_ms=min(source.row.first_append_ms for source in sources),
            last_append_ms=max(source.row.last_append_ms for source in sources),
            record_count=record_count,
            control_count=control_count,
        ),
        totals,
    )
