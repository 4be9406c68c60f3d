"""Reads what the last event of each log says. Blocks: for a thread."""

from __future__ import annotations

from protocol.records.batch_header import read_header
from protocol.records.record_batch import read_records
from server.coordination.state_loading import feed_log
from server.events.event import is_running, log_of
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import any_thread

INFLATED_BYTES_MAX = 128 << 20
"""Bound on the records of a batch: the broker writes small ones, without a codec."""


@any_thread
def last_events(log: PartitionLog) -> dict[TopicPartition, bool]:
    """Returns, for each log that a partition of the topic has, whether a pass runs after its last event.

    Raises:
        StorageError, ProtocolError: the partition cannot be read.
    """
    found: dict[TopicPartition, bool] = {}

    def feed(piece: bytes) -> int:
        position, next_offset = 0, 0
        while position < len(piece):
            header = read_header(piece, position)
            if not header.is_control:
                for record in read_records(
                    piece, position, decompressed_bytes_max=INFLATED_BYTES_MAX
                ):
                    of = log_of(record.key or b"")
                    if of is None:
                        continue  # Not one of ours.
                    if record.value is None:
                        found.pop(of, None)
                    else:
                        found[of] = is_running(record.value)
            position += header.size_bytes
            next_offset = header.last_offset + 1
        return next_offset

    feed_log(log, log.log_start_offset, log.high_watermark, feed)
    return found
