"""Helpers for the tests of the 24 invariants of log compaction, each with a real log and a real pass.

The invariants come from Apache Kafka's cleaner, its tests and a decade of bugs (KAFKA-631 and later).
Here each has a readable test with its number; the thorough tests are elsewhere: properties in
tests/properties, crash states in tests/crash, races in tests/cleaner/test_races.py.
"""

from __future__ import annotations

from dataclasses import replace

from storage.log.log import PartitionLog
from tests.harness.compacted_log import CONFIG, CompactedLog, records_of
from tests.harness.memory_fs import Loss

RETENTION_MS = CONFIG.delete_retention_ms
EACH_SEGMENT_ITS_GROUP = replace(CONFIG, segment_bytes=1)


def values_of(log: PartitionLog) -> dict[bytes | None, bytes]:
    """Returns the last value of each key, as in a table built from the log."""
    values = {record.key: record.value for record in records_of(log)}
    return {key: value for key, value in values.items() if value is not None}


def open_again(log: CompactedLog) -> PartitionLog:
    """Returns the log as the start after a crash opens it from the file system."""
    log.reopen(is_clean=False, loss=Loss.NOTHING)
    return log.log
