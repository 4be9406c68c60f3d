"""A read-only look at a log after a crash sees what its recovery then finds, and changes nothing.

The look takes no lock and does not write; recovery first makes durable what it finds. Both must find the
same records, the same end, and the same transactions, at every operation of a disk.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from pipeline.source.filters import BEYOND, LEAST
from pipeline.source.read import RangeOfLog, record_batches
from storage.log.on_disk import LogOnDisk, look_at_log
from tests.crash.expected import read_content
from tests.crash.sweep import Sweep
from tests.harness.log_home import LogHome
from tests.harness.log_transactions import committed_offsets
from tests.harness.memory_fs import MemoryFileSystem

SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "0")) or 400
SEEDS = 4


def offsets_read(disk: MemoryFileSystem, log: LogOnDisk, *, is_committed: bool) -> list[int]:
    """The offsets of the rows that a task over the whole log gives out."""
    wanted = RangeOfLog(
        topic="orders",
        partition=0,
        directory=log.identity.directory,
        first_offset=log.log_start_offset,
        end_offset=log.last_stable_offset if is_committed else log.end_offset,
        segments=log.segments,
        first_timestamp=LEAST,
        end_timestamp=BEYOND,
        aborted=log.aborted if is_committed else (),
    )
    batches = record_batches(disk, wanted, SCHEMA, rows_target=7)
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


class LookingSweep(Sweep):
    """Looks at each crash state before it is recovered."""

    looks = 0

    def _check(self, left: MemoryFileSystem, *, nested: bool) -> None:
        work, home = self.workload, LogHome(left)
        wrote: list[str] = []
        left.on_operation = lambda action, path: wrote.append(f"{action} {path}")
        seen = look_at_log(left, home.identity)
        read = offsets = None
        if seen is not None:
            read = offsets_read(left, seen, is_committed=False)
            offsets = offsets_read(left, seen, is_committed=True)
        left.on_operation = None
        log = home.open(epoch=work.epoch + 1, now_ms=work.now_ms)
        assert not wrote, wrote
        if seen is None:
            assert log.log_end_offset == 0
            return
        self.looks += 1
        assert seen.end_offset == log.log_end_offset
        assert seen.log_start_offset == log.log_start_offset
        assert seen.last_stable_offset == log.last_stable_offset
        assert read == sorted(
            offset for offset in read_content(log) if offset not in work.transactions.markers
        )
        assert offsets == committed_offsets(log)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_look_sees_what_recovery_finds(seed: int) -> None:
    sweep = LookingSweep(seed, states_max=STATES)

    sweep.run()

    assert sweep.looks > 100
