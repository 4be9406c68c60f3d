"""Opens partition logs on any file system, with background work that the test runs when it wants."""

from __future__ import annotations

import dataclasses
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from protocol.records.record_batch import Record
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.log.opening import LogOpening, create_log, open_log
from storage.segment.reader import Isolation
from tests.harness.log_builder import end_of, records_in
from tests.harness.memory_fs import MemoryFileSystem

SMALL = dataclasses.replace(
    LogConfig(), segment_bytes=700, index_interval_bytes=100, cleanup_policy=("compact",)
)
"""A configuration with segments of a few batches."""

TOPIC_ID = uuid.UUID(int=7)


class Deferred:
    """Background work that waits until the test runs it; with `inline` it runs at once."""

    def __init__(self, *, inline: bool = True) -> None:
        self.inline = inline
        self.waiting: deque[Callable[[], None]] = deque()

    def __call__(self, work: Callable[[], None]) -> None:
        if self.inline:
            work()
        else:
            self.waiting.append(work)

    def run_one(self) -> None:
        """Run the oldest waiting work, if any."""
        if self.waiting:
            self.waiting.popleft()()

    def run_all(self) -> None:
        """Run all waiting work, including work that it adds."""
        while self.waiting:
            self.run_one()


class LogHome:
    """A directory for one log on a file system."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        directory: str = "/data/orders/0",
        config: LogConfig = SMALL,
        background: Deferred | None = None,
    ) -> None:
        self.fs = fs
        self.config = config
        self.background = background if background is not None else Deferred()
        self.failures: list[StorageError] = []
        self.identity = LogIdentity(
            topic_partition=TopicPartition("orders", 0),
            topic_id=TOPIC_ID,
            directory=directory,
            directory_id="test",
            hash_key=bytes(16),
        )

    def opening(self, *, epoch: int, is_clean: bool, now_ms: int) -> LogOpening:
        return LogOpening(
            leader_epoch=Epoch(epoch),
            background=self.background,
            on_failure=self.failures.append,
            now_ms=now_ms,
            is_clean=is_clean,
        )

    def create(self, *, epoch: int = 1, now_ms: int = 0) -> PartitionLog:
        """Create the log durably."""
        self.fs.make_directory(self.identity.directory)
        path = ""
        for name in self.identity.directory.strip("/").split("/"):
            self.fs.sync_directory(path or "/")
            path = f"{path}/{name}"
        opening = self.opening(epoch=epoch, is_clean=False, now_ms=now_ms)
        log = create_log(self.fs, self.identity, self.config, opening)
        log.new_files.sync()
        log.new_files.mark_safe()
        return log

    def open(self, *, epoch: int = 2, is_clean: bool = False, now_ms: int = 0) -> PartitionLog:
        """Open the existing log."""
        opening = self.opening(epoch=epoch, is_clean=is_clean, now_ms=now_ms)
        return open_log(self.fs, self.identity, self.config, opening)


def read_all(log: PartitionLog, *, max_bytes: int = 300) -> list[Record]:
    """Returns every record from the log start to the high watermark, as a client would fetch them."""
    records: list[Record] = []
    for answer in answers(log, Isolation.READ_UNCOMMITTED, max_bytes=max_bytes):
        found = records_in(answer.data)
        assert found, "an answer of empty batches only makes clients spin"
        records += [record for record in found if record.offset >= answer.offset]
    return records


class Answer(NamedTuple):
    """The result of one read."""

    offset: int
    """The requested offset; the first batch may begin before it."""
    data: bytes
    """Whole batches."""
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of aborted transactions."""


def answers(log: PartitionLog, isolation: Isolation, *, max_bytes: int) -> Iterator[Answer]:
    """Read from the log start to the end of what an isolation level may read, like a client."""
    offset = log.log_start_offset
    while True:
        result = log.reader.read(
            offset, max_bytes=max_bytes, whole_first_batch=True, isolation=isolation
        )
        assert not isinstance(result, ErrorCode), (result, offset)
        if not result.regions:
            return
        data = b"".join(region.read_bytes() for region in result.regions)
        result.release()
        yield Answer(offset, data, result.aborted)
        # Clients do the same, because the last records of a batch may have been cleaned away.
        next_offset = end_of(data)
        assert next_offset > offset, "the answer makes no progress"
        offset = Offset(next_offset)


@contextmanager
def rolled_at(
    operation: int, fs: MemoryFileSystem, log: PartitionLog
) -> Iterator[Callable[[], bool]]:
    """Roll a log, as its clock does, after so many operations of the disk within the context.

    Yields a function that returns whether there were so many.
    """
    left = operation

    def count(_action: str, _path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            log.roll(0)

    fs.on_operation = count
    yield lambda: left <= 0
    fs.on_operation = None
