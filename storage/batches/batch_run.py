"""A run of batches that another broker sent, checked so that a follower may append it. Pure.

    answer   | in the log | batch | batch | batch | batch | bat
                          |<------ run ------>|<---- rest ----     the next run
                                                           `- cut off by the bound on the answer

A source sends whole batches, of which the first ones may be in the log already and the last may be cut
off. Offsets grow; gaps are legal, because the source may be compacted; epochs never fall.
"""

from __future__ import annotations

from protocol.records.batch_header import LENGTH_AT, LENGTH_OVERHEAD, BatchHeader
from protocol.records.batch_run import RunScan, scan_run
from protocol.records.batch_scan import StopReason, scan_batches
from protocol.wire.numbers import Epoch, Offset
from protocol.wire.value_class import value_class
from storage.threads import any_thread

RUN_BYTES_MAX = 1 << 20
"""A run is at most this large, unless it is one batch: the loop checks it in 0.2 ms, and one write of
it takes as long."""

RUN_BATCHES_MAX = 1000
"""A run has at most so many batches: each may be of another producer, whose state changes with it, and
that takes 4 us."""


@value_class(kw_only=True)
class BatchRun:
    """Whole batches that continue a log, and what follows them in the answer."""

    view: memoryview
    """The batches, without other data; empty if there are none."""
    base_offset: Offset
    """Of the first batch."""
    end_offset: Offset
    """The end of the log after the run."""
    last_epoch: Epoch
    """The leader epoch of the last batch, the largest of all."""
    first_gap: Offset | None
    """The first offset from the log's end on without a record; None if there is no such offset."""
    fault: str
    """What is wrong with the batch after the run, as a sentence; empty if nothing is."""
    rest: memoryview
    """The bytes from which the next run is made; empty if no whole batch follows."""


@any_thread
def check_run(
    records: memoryview,
    *,
    end: Offset,
    last_epoch: Epoch,
    size_max: int = RUN_BYTES_MAX,
    batches_max: int = RUN_BATCHES_MAX,
) -> BatchRun:
    """Returns the first run of an answer, for a log that ends at `end` in `last_epoch`.

    Checks of each batch: magic, length, CRC, counts; its offsets are above those before it; its epoch is
    not lower, and at most 2^30, so that this broker can lead above it. A fault ends the run: what
    precedes it may be appended, the rest not. Releases the GIL.
    """
    scan = scan_run(
        records,
        end_offset=end,
        last_epoch=last_epoch,
        size_max=size_max,
        batches_max=batches_max,
    )
    has_more = scan.stop is StopReason.FULL
    return BatchRun(
        view=records[scan.start_position : scan.end_position],
        base_offset=scan.base_offset,
        end_offset=scan.end_offset,
        last_epoch=scan.last_epoch,
        first_gap=None if scan.first_gap < 0 else scan.first_gap,
        fault=_fault(records[scan.end_position :], scan),
        rest=records[scan.end_position if has_more else len(records) :],
    )


def run_of_one(header: BatchHeader, view: memoryview) -> BatchRun:
    """Returns the run of one batch that the caller has checked."""
    is_dense = header.record_count == header.next_offset - header.base_offset
    return BatchRun(
        view=view,
        base_offset=header.base_offset,
        end_offset=header.next_offset,
        last_epoch=header.leader_epoch,
        first_gap=None if is_dense else header.base_offset,
        fault="",
        rest=view[len(view) :],
    )


def takes_long(records: memoryview) -> bool:
    """Returns whether the first run has one batch larger than `RUN_BYTES_MAX`: check it in a thread."""
    return len(records) > RUN_BYTES_MAX and _size_of_first(records) > RUN_BYTES_MAX


def _fault(rest: memoryview, scan: RunScan) -> str:
    if scan.stop in (StopReason.END, StopReason.TRUNCATED, StopReason.FULL):
        return ""
    if scan.stop is not StopReason.OUT_OF_ORDER:
        return scan_batches(rest).detail
    found = scan_batches(rest, 0, _size_of_first(rest)).batches[0]
    return (
        f"the batch at offset {found.base_offset} in epoch {found.leader_epoch} does not continue the"
        f" log up to {scan.end_offset} in epoch {scan.last_epoch}"
    )


def _size_of_first(batches: memoryview) -> int:
    length = int.from_bytes(batches[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    return length + LENGTH_OVERHEAD
