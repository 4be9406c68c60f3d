"""What is seen of transactions in a log that is cleaned, and what lets time pass over them."""

from __future__ import annotations

from tests.harness.compacted_log import CONFIG, CompactedLog

DELETE_RETENTION_MS = CONFIG.delete_retention_ms


def offsets(log: CompactedLog) -> list[int]:
    """Of all records, the markers, too."""
    return [record.offset for record in log.records()]


def batches(log: CompactedLog) -> list[int]:
    """The last offset of every batch, the empty ones, too; Kafka's `lastOffsetsPerBatchInLog`."""
    return [header.last_offset for header in log.headers()]


def values(log: CompactedLog) -> dict[bytes | None, bytes | None]:
    """What a reader of committed data is left with; keys of markers are none."""
    control = {header.base_offset for header in log.headers() if header.is_control}
    return {record.key: record.value for record in log.records() if record.offset not in control}


def horizons(log: CompactedLog) -> dict[int, int | None]:
    """The delete horizon of every marker that is left, by its offset."""
    return {
        header.base_offset: header.delete_horizon_ms
        for header in log.headers()
        if header.is_control and header.record_count
    }


def later(log: CompactedLog) -> None:
    """Let everything that was stamped by now become due."""
    log.now_ms += DELETE_RETENTION_MS


def guard(log: CompactedLog, number: int = 0) -> int:
    """Append a record behind everything, so that nothing stays only because it is the last."""
    return log.append((b"guard %d" % number, b"")).base_offset
