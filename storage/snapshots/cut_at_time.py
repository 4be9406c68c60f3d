"""Cuts a log of a snapshot back to what the log had at an earlier time.

    the first batch with a record of that time or a later one, and all that follow, go
    a transaction that was open then gets an ABORT marker behind the rest

A batch is appended as a whole, so what it has of earlier records came at that time, too. Without the
coordinators' topics nobody else would end the transactions that were open.

The result is exact only where cleaning has not used later records to remove earlier ones: below
`PartitionLog.cut_offset_min` nothing is cut.
"""

from __future__ import annotations

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import CutRefused
from storage.log.appender import Appended
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.threads import any_thread


@any_thread
def cut_at_time(log: PartitionLog, at_ms: int) -> LinkedLog:
    """Cut a log of a snapshot that is being made. Returns what it has then. A worker thread.

    Raises:
        CutRefused: cleaning or retention has removed what the log had.
        StorageError: the disk failed, or the log is damaged.
    """
    end_offset = end_at(log, at_ms)
    if reason := obstacle(log, end_offset):
        raise CutRefused(reason)
    cut_back(log, end_offset, at_ms)
    return LinkedLog(
        start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        size_bytes=log.size_bytes,
    )


@any_thread
def cut_back(log: PartitionLog, end_offset: Offset, now_ms: int) -> None:
    """Cut a log of a snapshot that is being made at an offset, and abort the transactions that are open
    there.

    Raises:
        CutRefused: cleaning has used what is cut.
        StorageError: the disk failed or is full, or the log is damaged.
    """
    if end_offset < log.log_end_offset:
        log.truncate_to(end_offset, keeps_keys=True)
    # The markers have the epoch of the last record at least: those of a mirror are another broker's.
    log.lead_above(Epoch(log.epochs.latest - 1))
    for each in log.producers.open_transactions():
        ended = log.appender.append_marker(
            each.producer_id,
            each.producer_epoch,
            is_commit=False,
            coordinator_epoch=each.coordinator_epoch,
            now_ms=now_ms,
        )
        assert isinstance(ended, Appended), ended
    log.advance_high_watermark(log.sync())


@any_thread
def end_at(log: PartitionLog, at_ms: int) -> Offset:
    """Returns the offset of the first record of a time or later; the high watermark if there is none.

    Raises:
        StorageError: the log cannot be read.
    """
    found = log.reader.offset_for_timestamp(at_ms)
    return log.high_watermark if found is None else found.offset


@any_thread
def obstacle(log: PartitionLog, end_offset: Offset) -> str | None:
    """Returns why a log cannot be had as it was when it ended at an offset (`end_at`).

    None if nothing is known to be in the way.
    """
    if end_offset < log.clean_offset:
        return (
            f"{log.topic_partition} was compacted by records up to {log.clean_offset}, some of which"
            " came later"
        )
    if has_unfinished_pass(log) and end_offset < log.log_end_offset:
        return f"a cleaning pass over {log.topic_partition} is not finished, or leaves damage out"
    if log.log_start_offset and end_offset <= log.log_start_offset < log.high_watermark:
        return f"{log.topic_partition} begins at {log.log_start_offset}: all that it had then is deleted"
    return None


@any_thread
def has_unfinished_pass(log: PartitionLog) -> bool:
    """Returns whether a pass that has swapped segments is not finished, or leaves damage out."""
    return log.cut_offset_min > log.clean_offset


@any_thread
def earliest_ms(log: PartitionLog) -> int | None:
    """Returns a time from which on neither passes nor retention are in the way, in ms.

    None while a pass is not finished.
    """
    if has_unfinished_pass(log):
        return None
    bound = max(log.clean_offset, log.log_start_offset + 1 if log.log_start_offset else 0)
    below = [each.max_timestamp for each in log.segments if each.base_offset < bound]
    return max(below, default=-1) + 1
