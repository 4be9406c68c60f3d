"""The state of a log's idempotent producers: enough to tell a duplicate from a gap.

    snapshot := header{magic "KPRS"} | row{count} | checksum      (storage/formats/row_file.py)
    row      := producer_id: int64 | producer_epoch: int16 | batch_count: int16
                | coordinator_epoch: int32 | current_txn_first_offset: int64
                | last_timestamp: int64 | batch{5}
    batch    := first_sequence: int32 | last_sequence: int32 | last_offset: int64

All big-endian. `<offset>.snapshot` holds the state of everything below that offset. Kafka's own format
keeps one batch per producer; with it a restart would forget four of the five batches that a
producer may have in flight.

The rules, for a batch with a producer id:
    no state for the id     any sequence is accepted: the log may have been compacted since
    same epoch              the next sequence, or one of the last five batches again (a duplicate);
                            0 after a marker that began the epoch
    a newer epoch           begins at sequence 0
    an older epoch          is fenced
    no sequence             accepted within its epoch: the broker's own, a group's TxnOffsetCommit
    not transactional       refused while the producer has a transaction open
A transaction's marker has no sequence. A marker of a newer epoch fences like a batch would: its
coordinator raised the epoch to end the transaction that the producer had left open. A marker from an
older coordinator than that of the last marker comes from a deposed one, and is refused.
Source: KIP-98; Apache Kafka, ProducerStateManager.java, ProducerAppendInfo.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import TransactionMarker
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.formats.row_file import RowFile

BATCHES_KEPT = 5
"""A producer may have this many batches in flight (max.in.flight.requests.per.connection)."""

SEQUENCE_END = 1 << 31
NO_EPOCH = Epoch(-1)
NO_TRANSACTION = Offset(-1)
MAGIC = b"KPRS"
ROW = struct.Struct(
    ">"
    "q"  # producer id
    "h"  # producer epoch
    "h"  # batch count
    "i"  # coordinator epoch
    "q"  # current transaction's first offset
    "q"  # last timestamp
)
BATCH = struct.Struct(">iiq")
ROW_BYTES = ROW.size + BATCHES_KEPT * BATCH.size
FILE = RowFile(magic=MAGIC, format=1, row_bytes=ROW_BYTES, noun="producers")


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset

    @property
    def base_offset(self) -> Offset:
        count = (self.last_sequence - self.first_sequence) % SEQUENCE_END
        return Offset(self.last_offset - count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state of one producer in a log."""

    producer_epoch: Epoch
    last_timestamp: int
    """The wall time of its last append, from which its expiry counts."""
    batches: tuple[AppendedBatch, ...] = ()
    """Its last batches, at most five, oldest first."""
    coordinator_epoch: Epoch = NO_EPOCH
    current_txn_first_offset: Offset = NO_TRANSACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that no marker has ended; everything from its first offset on is undecided."""

    producer_id: ProducerId
    producer_epoch: Epoch
    coordinator_epoch: Epoch
    """That of the producer's last marker."""
    first_offset: Offset
    last_append_ms: int
    """The wall time of the producer's last append."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already in the log, with these offsets."""

    base_offset: Offset
    last_offset: Offset


class ProducerStates:
    """The producers of one log. Its `PartitionLog` owns it."""

    __slots__ = ("_states",)

    def __init__(self, states: Mapping[ProducerId, ProducerState] | None = None) -> None:
        self._states: dict[ProducerId, ProducerState] = dict(states or {})

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        """Returns a producer's state; None if it is unknown."""
        return self._states.get(producer_id)

    def ids(self) -> list[ProducerId]:
        """Returns every producer id, in no order."""
        return list(self._states)

    def items(self) -> Iterable[tuple[ProducerId, ProducerState]]:
        """Returns every producer id with its state, in order of ids."""
        return sorted(self._copied().items())

    def check_append(
        self, header: BatchHeader, marker: TransactionMarker | None = None
    ) -> Duplicate | ErrorCode:
        """Returns whether a batch may be appended: NONE, an error, or that it is already in the log.

        Args:
            marker: the decoded marker, if it is a control batch.
        """
        state = self._states.get(header.producer_id)
        if header.producer_id < 0 or state is None:
            return ErrorCode.NONE
        if header.producer_epoch < state.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.is_control:
            is_deposed = marker is not None and marker.coordinator_epoch < state.coordinator_epoch
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED if is_deposed else ErrorCode.NONE
        if state.current_txn_first_offset >= 0 and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        if header.base_sequence < 0:
            return ErrorCode.NONE
        return _check_sequence(header, state)

    def appended(
        self,
        header: BatchHeader,
        *,
        last_offset: Offset,
        now_ms: int,
        marker: TransactionMarker | None = None,
    ) -> None:
        """Update the state with a batch that was appended, and with its marker if it has one."""
        if header.producer_id < 0:
            return
        if header.is_control:
            coordinator_epoch = NO_EPOCH if marker is None else Epoch(marker.coordinator_epoch)
            self.marked(
                header.producer_id,
                header.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                now_ms=now_ms,
            )
            return
        batch = AppendedBatch(header.base_sequence, header.last_sequence, last_offset)
        self.remember(header.producer_id, header.producer_epoch, batch, now_ms=now_ms)
        if header.is_transactional:
            base_offset = Offset(last_offset - (header.last_offset - header.base_offset))
            self.transacted(header.producer_id, base_offset, has_marker=False)

    def transacted(
        self,
        producer_id: ProducerId,
        first_offset: Offset,
        *,
        has_marker: bool,
        coordinator_epoch: Epoch = NO_EPOCH,
    ) -> None:
        """Record a producer's open transaction, unless an earlier one is still open.

        Args:
            first_offset: of the transaction; -1 for none.
            has_marker: whether a marker has ended the transaction that was open before.
            coordinator_epoch: the one in the markers; -1 if there is none.
        """
        state = self._states.get(producer_id)
        if state is not None and (has_marker or state.current_txn_first_offset < 0):
            self._states[producer_id] = replace(
                state,
                current_txn_first_offset=first_offset,
                coordinator_epoch=max(state.coordinator_epoch, coordinator_epoch),
            )

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Returns the open transactions, in order of first offsets."""
        found = [
            OpenTransaction(
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                coordinator_epoch=state.coordinator_epoch,
                first_offset=state.current_txn_first_offset,
                last_append_ms=state.last_timestamp,
            )
            for producer_id, state in self._copied().items()
            if state.current_txn_first_offset >= 0
        ]
        return tuple(sorted(found, key=lambda each: each.first_offset))

    def remember(
        self, producer_id: ProducerId, producer_epoch: Epoch, batch: AppendedBatch, *, now_ms: int
    ) -> None:
        """Add a producer's batch; it is the last one that the producer has in the log."""
        state = self._in_epoch(producer_id, producer_epoch)
        # Not `replace`, which takes twice as long: this is done for each idempotent batch.
        self._states[producer_id] = ProducerState(
            producer_epoch=producer_epoch,
            last_timestamp=now_ms,
            batches=(*state.batches, batch)[-BATCHES_KEPT:],
            coordinator_epoch=state.coordinator_epoch,
            current_txn_first_offset=state.current_txn_first_offset,
        )
        self._check_batches_in_order(producer_id)

    def _check_batches_in_order(self, producer_id: ProducerId) -> None:
        assert producer_id >= 0
        batches = self._states[producer_id].batches
        assert len(batches) <= BATCHES_KEPT
        if len(batches) > 1:
            assert batches[-2].last_offset < batches[-1].last_offset

    def marked(
        self,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        *,
        coordinator_epoch: Epoch = NO_EPOCH,
        now_ms: int,
    ) -> None:
        """Record a producer's marker; it is after all that the producer has in the log.

        Args:
            coordinator_epoch: the one in the marker; -1 if unknown.
        """
        known = self._states.get(producer_id)
        epoch = producer_epoch if known is None else max(known.producer_epoch, producer_epoch)
        state = self._in_epoch(producer_id, epoch)
        self._states[producer_id] = replace(
            state,
            last_timestamp=now_ms,
            coordinator_epoch=max(state.coordinator_epoch, coordinator_epoch),
            current_txn_first_offset=NO_TRANSACTION,
        )

    def _in_epoch(self, producer_id: ProducerId, producer_epoch: Epoch) -> ProducerState:
        """Returns a producer's state for this epoch; sequences start again with each epoch."""
        state = self._states.get(producer_id)
        if state is None:
            return ProducerState(producer_epoch=producer_epoch, last_timestamp=-1)
        if state.producer_epoch == producer_epoch:
            return state
        return replace(state, producer_epoch=producer_epoch, batches=())

    def expire(self, before_ms: int) -> None:
        """Forget producers without an append since `before_ms`.

        A producer with an open transaction stays, because it holds readers and the cleaner back.
        """
        expired = [
            key
            for key, state in self._states.items()
            if state.last_timestamp < before_ms and state.current_txn_first_offset < 0
        ]
        for producer_id in expired:
            del self._states[producer_id]

    def last_data_offsets(self) -> tuple[Offset, ...]:
        """Returns the last offset of each producer's last batch: the cleaner keeps those batches."""
        states = self._copied().values()
        return tuple(state.batches[-1].last_offset for state in states if state.batches)

    def marker_epochs(self) -> dict[int, int]:
        """Returns the epoch of each producer with markers only: the cleaner keeps that epoch's."""
        states = self._copied().items()
        return {key: state.producer_epoch for key, state in states if not state.batches}

    def copy(self) -> ProducerStates:
        """Returns a copy of the current states, for a snapshot that is written later."""
        return ProducerStates(self._states)

    def _copied(self) -> dict[ProducerId, ProducerState]:
        """Returns a copy to iterate over, because producers may append meanwhile in another thread.

        dict(dict) copies in one atomic step. list(dict.items()) does not: it allocates a tuple for each
        item, the garbage collector may run at any of them, and then another thread.
        """
        return dict(self._states)

    def clear(self) -> None:
        """Forget all producers."""
        self._states.clear()

    def encode(self) -> bytes:
        """Returns the bytes of a snapshot file."""
        return FILE.encode(b"".join(_encode_row(key, state) for key, state in self.items()))


def decode_producer_states(data: bytes, path: str) -> ProducerStates:
    """Decode a snapshot file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it.
        DamagedFile: it is cut short or its checksum differs.
    """
    rows, row_bytes = FILE.decode(data, path)
    starts = range(0, len(rows), row_bytes)
    return ProducerStates(dict(_decode_row(rows, start) for start in starts))


def _check_sequence(header: BatchHeader, state: ProducerState) -> Duplicate | ErrorCode:
    """Check that a batch of the producer's epoch, or of a newer one, follows its last batch."""
    if header.producer_epoch > state.producer_epoch:
        return _none_or_out_of_order(header.base_sequence == 0)
    for batch in state.batches:
        if (batch.first_sequence, batch.last_sequence) == (
            header.base_sequence,
            header.last_sequence,
        ):
            return Duplicate(batch.base_offset, batch.last_offset)
    last_sequence = state.batches[-1].last_sequence if state.batches else -1
    return _none_or_out_of_order(header.base_sequence == (last_sequence + 1) % SEQUENCE_END)


def _none_or_out_of_order(is_next: bool) -> ErrorCode:
    return ErrorCode.NONE if is_next else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _encode_row(producer_id: ProducerId, state: ProducerState) -> bytes:
    row = bytearray(
        ROW.pack(
            producer_id,
            state.producer_epoch,
            len(state.batches),
            state.coordinator_epoch,
            state.current_txn_first_offset,
            state.last_timestamp,
        )
    )
    for batch in state.batches:
        row += BATCH.pack(batch.first_sequence, batch.last_sequence, batch.last_offset)
    return bytes(row.ljust(ROW_BYTES, b"\0"))


def _decode_row(rows: memoryview, position: int) -> tuple[ProducerId, ProducerState]:
    producer_id, epoch, count, coordinator_epoch, first_offset, timestamp = ROW.unpack_from(
        rows, position
    )
    first = position + ROW.size
    return producer_id, ProducerState(
        producer_epoch=epoch,
        last_timestamp=timestamp,
        batches=tuple(
            AppendedBatch(*BATCH.unpack_from(rows, first + index * BATCH.size))
            for index in range(count)
        ),
        coordinator_epoch=coordinator_epoch,
        current_txn_first_offset=first_offset,
    )
