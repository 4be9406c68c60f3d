"""The 24 invariants of log compaction, each through a real log and a real pass.

They were gathered from Apache Kafka's cleaner, its tests and the bugs of a decade (KAFKA-631 and on).
Here each has one test of its name that a reader can go through; the depth is elsewhere: properties in
tests/properties, crash states in tests/crash, races in tests/cleaner/test_races.py. This file has what
tests of several files need.
"""

from __future__ import annotations

from dataclasses import replace

from storage.log import PartitionLog
from tests.harness.compacted_log import CONFIG, CompactedLog, records_of
from tests.harness.memory_fs import Loss

RETENTION_MS = CONFIG.delete_retention_ms
EACH_SEGMENT_ITS_GROUP = replace(CONFIG, segment_bytes=1)


def values_of(log: PartitionLog) -> dict[bytes | None, bytes]:
    """The last value of each key, as a table built from the log would have it."""
    values = {record.key: record.value for record in records_of(log)}
    return {key: value for key, value in values.items() if value is not None}


def open_again(log: CompactedLog) -> PartitionLog:
    """The log as a start after a crash finds it on what its file system holds."""
    log.reopen(is_clean=False, loss=Loss.NOTHING)
    return log.log
