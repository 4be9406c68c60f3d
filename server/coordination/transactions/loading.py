"""Loads a partition of `__transaction_state`: the state of its transactional ids."""

from __future__ import annotations

from protocol.internal_topics.transaction_records import read_record
from protocol.records.batch_header import read_header
from protocol.records.record_batch import read_records
from protocol.wire.errors import ProtocolError
from server.coordination.coordinator_topic import (
    CoordinatorTopic,
    LoadFailed,
    decode_values,
    feed_log,
)
from server.coordination.transactions.metadata import TransactionMetadata, metadata_of
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.log.log import PartitionLog


async def load_partition(topic: CoordinatorTopic, partition: int) -> dict[str, TransactionMetadata]:
    """Returns the last state of each transactional id.

    Raises:
        StorageError: it cannot be read.
    """
    log = await topic.settle(partition)
    return await topic.loading.run(read_partition, log, log.high_watermark)


def read_partition(log: PartitionLog, end_offset: int) -> dict[str, TransactionMetadata]:
    """Read a log up to `end_offset`. Blocks.

    Raises:
        StorageError: it cannot be read.
    """
    scan = _Scan()
    try:
        feed_log(log, end_offset, scan.feed)
        found, _ = decode_values(log, scan.values, _read, unreadable_count=scan.unreadable_count)
        return dict(found)
    except ProtocolError as error:
        raise LoadFailed(f"{log.topic_partition}: {error}") from error


class _Scan:
    """Collects the last value of each key. Batches are fed in log order."""

    __slots__ = ("unreadable_count", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.unreadable_count = 0

    def feed(self, piece: bytes) -> int:
        """Add a piece of whole batches. Returns the offset after the last one."""
        position = next_offset = 0
        while position < len(piece):
            header = read_header(piece, position)
            if not header.is_control:
                self._take(piece, position)
            position += header.size_bytes
            next_offset = header.last_offset + 1
        return next_offset

    def _take(self, piece: bytes, position: int) -> None:
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
