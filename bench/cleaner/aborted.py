"""The cost of very many aborted transactions for a read_committed reader."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.base.bare_log import identity, now_ms, opening
from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import CONFIG
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.batches.validate import ValidBatch
from storage.files.local_files import LocalFileSystem
from storage.log.log import PartitionLog
from storage.log.opening import create_log
from storage.segment.reader import Isolation

TRANSACTIONS = 100_000
READ_BYTES = 64 << 10
READS = 500


def aborted_figures(pairs: int) -> list[Figure]:
    """Measure a read of 64 KiB in the middle of a log that holds only aborted transactions."""
    with aborted_log() as log:
        return [
            interleaved(
                f"read among {TRANSACTIONS} aborted transactions",
                "us",
                lambda: microseconds_of_a_read(log, Isolation.READ_COMMITTED),
                lambda: microseconds_of_a_read(log, Isolation.READ_UNCOMMITTED),
                limit_is="the same read of uncommitted records",
                pairs=pairs,
                note=f"each returns {aborted_in_a_read(log)} of them",
            )
        ]


@contextmanager
def aborted_log() -> Iterator[PartitionLog]:
    """Build a log of transactions with one record of 1 KB each."""
    with tempfile.TemporaryDirectory() as folder:
        place = identity(Path(folder) / "log")
        log = create_log(LocalFileSystem(), place, CONFIG, opening(is_clean=True))
        for number in range(TRANSACTIONS):
            producer_id = number % 50
            log.appender.append_as_leader(_batch(producer_id), now_ms=now_ms())
            log.appender.append_marker(
                ProducerId(producer_id),
                Epoch(0),
                is_commit=False,
                coordinator_epoch=Epoch(0),
                now_ms=now_ms(),
            )
        log.advance_high_watermark(log.log_end_offset)
        yield log
        log.close()


def _batch(producer_id: int) -> ValidBatch:
    batch = build_batch(
        [Record(offset=0, timestamp=now_ms(), key=b"key", value=bytes(1000))],
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
    )
    return ValidBatch(read_header(batch), memoryview(batch))


def microseconds_of_a_read(log: PartitionLog, isolation: Isolation) -> float:
    started = time.perf_counter()
    for number in range(READS):
        _read(log, Offset(log.log_end_offset // 2 + number), isolation)
    return 1e6 * (time.perf_counter() - started) / READS


def aborted_in_a_read(log: PartitionLog) -> int:
    """Returns the number of aborted transactions in the result of one read."""
    return _read(log, Offset(log.log_end_offset // 2), Isolation.READ_COMMITTED)


def _read(log: PartitionLog, offset: Offset, isolation: Isolation) -> int:
    result = log.reader.read(
        offset, max_bytes=READ_BYTES, whole_first_batch=True, isolation=isolation
    )
    assert not isinstance(result, ErrorCode)
    result.release()
    return len(result.aborted)
