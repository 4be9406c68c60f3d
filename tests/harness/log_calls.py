"""What most tests of one log do with it: append, make readable, read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from protocol.wire.numbers import Offset
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.log_builder import KeyValue, batch_of, records_in, valid
from tests.harness.log_home import SMALL, LogHome
from tests.harness.memory_fs import MemoryFileSystem


def home_of(**config: object) -> LogHome:
    """A log's home, with the small configuration except for `config`."""
    return LogHome(MemoryFileSystem(), config=dataclasses.replace(SMALL, **config))  # type: ignore[arg-type]


def append(log: PartitionLog, *pairs: KeyValue, now_ms: int = 0) -> Appended:
    appended = log.appender.append_as_leader(
        valid(batch_of(pairs or [(b"k", b"v")])), now_ms=now_ms
    )
    assert isinstance(appended, Appended)
    return appended


def publish(log: PartitionLog) -> None:
    log.advance_high_watermark(log.sync())


def fetch(
    log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20, whole: bool = True
) -> Sequence[int]:
    """Returns the offsets of the records that a fetch returns."""
    result = log.reader.read(
        Offset(offset),
        max_bytes=max_bytes,
        whole_first_batch=whole,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    assert isinstance(result, ReadResult)
    data = b"".join(region.read_bytes() for region in result.regions)
    for region in result.regions:
        region.release()
    return [record.offset for record in records_in(data)]
