"""Helpers that read the transactions of a cleaned log, and advance its time."""

from __future__ import annotations

from tests.harness.compacted_log import CONFIG, CompactedLog

DELETE_RETENTION_MS = CONFIG.delete_retention_ms


def offsets(log: CompactedLog) -> list[int]:
    """Returns the offsets of all records, including markers."""
    return [record.offset for record in log.records()]


def batches(log: CompactedLog) -> list[int]:
    """Returns the last offset of every batch, also of empty ones; Kafka's `lastOffsetsPerBatchInLog`."""
    return [header.last_offset for header in log.headers()]


def values(log: CompactedLog) -> dict[bytes | None, bytes | None]:
    """Returns the last values that a reader of committed data gets, without the keys of markers."""
    control = {header.base_offset for header in log.headers() if header.is_control}
    return {record.key: record.value for record in log.records() if record.offset not in control}


def horizons(log: CompactedLog) -> dict[int, int | None]:
    """Returns the delete horizons of the remaining markers, by offset."""
    return {
        header.base_offset: header.delete_horizon_ms
        for header in log.headers()
        if header.is_control and header.record_count
    }


def later(log: CompactedLog) -> None:
    """Advance the clock until all horizons stamped so far have passed."""
    log.now_ms += DELETE_RETENTION_MS


def guard(log: CompactedLog, number: int = 0) -> int:
    """Append a record at the end, so that no other record stays only because it is the last."""
    return log.append((b"guard %d" % number, b"")).base_offset
