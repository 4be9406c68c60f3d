"""Loads a partition of `__transaction_state`: the state of its transactional ids."""

from __future__ import annotations

from cleaner.kernel.live_records import RecordSum
from protocol.internal_topics.transaction_records import read_record
from protocol.records.batch_header import read_header
from protocol.records.record_batch import read_records
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from server.coordination.coordinator_topic import CoordinatorTopic, decode_values
from server.coordination.state_loading import LoadFailed, LoadReport, load_state
from server.coordination.transactions.metadata import TransactionMetadata, metadata_of
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.log.log import PartitionLog


async def load_partition(topic: CoordinatorTopic, partition: int) -> dict[str, TransactionMetadata]:
    """Returns the last state of each transactional id.

    Raises:
        StorageError: it cannot be read.
    """
    log = await topic.settle(partition)
    loaded, report = await topic.loading.run(read_partition, log, log.high_watermark)
    topic.checkpoints.loaded(partition, report)
    return loaded


def read_partition(
    log: PartitionLog, end_offset: Offset
) -> tuple[dict[str, TransactionMetadata], LoadReport]:
    """Read a log up to `end_offset`. Blocks.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        scan, report = load_state(log, end_offset, TransactionScan)
        found, _ = decode_values(log, scan.values, _read, unreadable_count=scan.unreadable_count)
        return dict(found), report
    except ProtocolError as error:
        raise LoadFailed(f"{log.topic_partition}: {error}") from error


class TransactionScan:
    """Collects the last value of each key. Batches are fed in log order. It is a `Scan`."""

    __slots__ = ("_next_offset", "_sum", "_sums", "is_gapless", "unreadable_count", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.unreadable_count = 0
        self.is_gapless = True
        self._next_offset = 0
        self._sums = False
        self._sum = RecordSum(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)

    def expect(self, next_offset: int, /) -> None:
        self._next_offset, self.is_gapless = next_offset, True

    def sum_records(self, sums: bool, /) -> None:
        self._sums = sums

    @property
    def digest(self) -> int:
        return self._sum.digest

    def feed(self, piece: bytes | memoryview, /) -> int:
        """Add a piece of whole batches. Returns the offset after the last one."""
        if self._sums:
            self._sum.feed(piece)
        position = 0
        while position < len(piece):
            header = read_header(piece, position)
            records_count = header.next_offset - header.base_offset
            self.is_gapless &= (
                header.base_offset == self._next_offset and header.record_count == records_count
            )
            if not header.is_control:
                self._take(piece, position)
            position += header.size_bytes
            self._next_offset = header.next_offset
        return self._next_offset

    def _take(self, piece: bytes | memoryview, position: int) -> None:
        for record in read_records(piece, position, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
            if record.key is None:
                self.unreadable_count += 1
                continue
            key = bytes(record.key)
            self.values.pop(key, None)
            if record.value is not None:
                self.values[key] = bytes(record.value)


def _read(key: bytes, value: bytes) -> tuple[str, TransactionMetadata]:
    record = read_record(key, value)
    assert record.value is not None
    return record.key.transactional_id, metadata_of(record.value)
