"""A transactional producer at the level of the log: numbered batches, and the markers that end them."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.compression import Codec
from protocol.records.control_record import ControlType
from protocol.wire.numbers import Epoch, ProducerId
from storage.log.appender import Appended
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import KeyValue, batch_of, valid


class TransactionalProducer:
    """Appends to a log, like a broker for its client and for the coordinator."""

    def __init__(self, log: CompactedLog, producer_id: int, *, producer_epoch: int = 0) -> None:
        self._log = log
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._sequence = 0

    def send(self, *pairs: KeyValue, codec: Codec = Codec.NONE) -> int:
        """Append a batch to the open transaction. Returns its base offset."""
        batch = self._next_batch(pairs, codec)
        self._sequence += len(pairs)
        return self._log.append_batch(valid(batch)).base_offset

    def _next_batch(self, pairs: Sequence[KeyValue], codec: Codec) -> bytearray:
        return batch_of(
            pairs,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )

    def next_header(self) -> BatchHeader:
        """Returns the header of a batch that could be the next one."""
        return read_header(self._next_batch([(b"k", b"v")], Codec.NONE))

    def commit(self) -> int:
        """Append a COMMIT marker. Returns its offset."""
        return self._end(ControlType.COMMIT)

    def abort(self) -> int:
        """Append an ABORT marker. Returns its offset."""
        return self._end(ControlType.ABORT)

    def fence(self) -> int:
        """Append an ABORT marker with the next epoch, like the coordinator for a lost producer."""
        self._producer_epoch += 1
        self._sequence = 0
        return self.abort()

    def _end(self, kind: ControlType) -> int:
        appended = self._log.log.appender.append_marker(
            ProducerId(self._producer_id),
            Epoch(self._producer_epoch),
            is_commit=kind is ControlType.COMMIT,
            coordinator_epoch=Epoch(0),
            now_ms=self._log.now_ms,
        )
        assert isinstance(appended, Appended), appended
        self._log.make_durable()
        return appended.base_offset
