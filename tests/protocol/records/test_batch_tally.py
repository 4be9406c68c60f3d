"""The compiled sums over batches say what a plain loop over the same batches says."""

from __future__ import annotations

import itertools
import struct
from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_scan import ScannedBatch, StopReason, crc32c, scan_batches
from protocol.records.batch_tally import (
    BatchTally,
    ProducerBatch,
    sound_offset_entries,
    sound_time_entries,
)
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import build_control_batch
from protocol.wire.numbers import ProducerId
from storage.state.producer_state import AppendedBatch, ProducerStates

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL = 0x10
CONTROL = 0x20
CODECS = 0x07
LONG_MAX = (1 << 63) - 1


def marker(kind: ControlType, coordinator_epoch: int) -> bytes:
    """The record of a marker, as it stands in its batch."""
    said = TransactionMarker(type=kind, coordinator_epoch=coordinator_epoch)
    whole = build_control_batch(said, timestamp=0, producer_id=0, producer_epoch=0)
    return bytes(whole[HEADER.size :])


MARKERS = {
    marker(kind, epoch): (kind, epoch)
    for kind in (ControlType.ABORT, ControlType.COMMIT)
    for epoch in (0, 3)
}


def batch(
    base_offset: int,
    *,
    offsets: int = 1,
    record_count: int = 1,
    max_timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
    attributes: int = 0,
    payload: bytes = b"",
) -> bytes:
    """A batch whose header is true and whose records nobody looks at."""
    fields = (attributes, offsets - 1, 0, max_timestamp, producer_id, producer_epoch)
    summed = struct.pack(">hiqqqhii", *fields, base_sequence, record_count) + payload
    size = HEADER.size + len(payload)
    return struct.pack(">qiibI", base_offset, size - 12, leader_epoch, 2, crc32c(summed)) + summed


@dataclass
class Plain:
    """What the compiled sums must be, one batch after the other."""

    base_offset: int
    interval: int
    producers_from: int = 0
    position: int = 0
    end_offset: int = 0
    record_count: int = 0
    control_count: int = 0
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    bytes_since_entry: int = 0
    entries: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    aborted: list[tuple[int, int, int, bool]] = field(default_factory=list)
    open_since: dict[int, int] = field(default_factory=dict)
    marked: set[int] = field(default_factory=set)
    coordinators: dict[int, int] = field(default_factory=dict)

    def feed(self, chunk: bytes) -> StopReason:
        scan = scan_batches(chunk)
        for each in scan.batches:
            too_far = each.last_offset - self.base_offset >= 1 << 31
            if each.base_offset < self.end_offset or too_far or each.next_offset > LONG_MAX:
                return StopReason.OUT_OF_ORDER
            if each.record_count and each.max_timestamp > self.max_timestamp:
                self.max_timestamp = each.max_timestamp
                self.offset_of_max_timestamp = each.last_offset
            if self.bytes_since_entry > self.interval:
                self._add_entry(each.last_offset)
                self.bytes_since_entry = 0
            if not self.epochs or each.leader_epoch > self.epochs[-1][0]:
                self.epochs.append((each.leader_epoch, each.base_offset))
            wanted = each.producer_id >= 0 and each.base_offset >= self.producers_from
            if wanted:
                at = each.position
                self._transact(each, chunk[at + HEADER.size : at + each.size_bytes])
            if wanted and each.attributes & CONTROL:
                self.producers.marked(each.producer_id, each.producer_epoch, now_ms=0)
            elif wanted:
                first, span = each.base_sequence, each.last_offset - each.base_offset
                last = (first + span) % (1 << 31) if first >= 0 else -1
                appended = AppendedBatch(first, last, each.last_offset)
                self.producers.remember(each.producer_id, each.producer_epoch, appended, now_ms=0)
            self.bytes_since_entry += each.size_bytes
            self.position += each.size_bytes
            self.end_offset = each.next_offset
            self.record_count += each.record_count
            self.control_count += each.record_count if each.attributes & CONTROL else 0
        return scan.stop

    def _transact(self, batch: ScannedBatch, payload: bytes) -> None:
        producer = batch.producer_id
        if not batch.attributes & CONTROL:
            if batch.attributes & TRANSACTIONAL:
                self.open_since.setdefault(producer, batch.base_offset)
            return
        is_first = producer not in self.marked
        may_be_open = producer in self.open_since or is_first
        first_offset = self.open_since.pop(producer, -1)
        self.marked.add(producer)
        if payload not in MARKERS or batch.record_count == 0 or batch.attributes & CODECS:
            return
        kind, epoch = MARKERS[payload]
        if kind is ControlType.ABORT and may_be_open:
            self.aborted.append((producer, first_offset, batch.last_offset, is_first))
        self.coordinators[producer] = max(self.coordinators.get(producer, -1), epoch)

    @property
    def transactions(self) -> set[tuple[int, int, bool, int]]:
        return {
            (
                producer,
                self.open_since.get(producer, -1),
                producer in self.marked,
                self.coordinators.get(producer, -1),
            )
            for producer in {*self.open_since, *self.marked}
        }

    def _add_entry(self, last_offset: int) -> None:
        self.entries.append((last_offset - self.base_offset, self.position))
        if not self.times or self.max_timestamp > self.times[-1][0]:
            youngest = max(self.offset_of_max_timestamp - self.base_offset, 0)
            self.times.append((self.max_timestamp, youngest))


def entries_of(tally: BatchTally) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    offsets, positions, times, time_offsets = tally.index_entries
    return (
        list(zip(array("i", offsets), array("i", positions), strict=True)),
        list(zip(array("q", times), array("i", time_offsets), strict=True)),
    )


def replayed(batches: list[ProducerBatch]) -> ProducerStates:
    states = ProducerStates()
    for each in batches:
        if each.is_marker:
            states.marked(each.producer_id, each.producer_epoch, now_ms=0)
            continue
        appended = AppendedBatch(each.base_sequence, each.last_sequence, each.last_offset)
        states.remember(each.producer_id, each.producer_epoch, appended, now_ms=0)
    return states


def assert_same(tally: BatchTally, plain: Plain) -> None:
    for name in (
        "position", "end_offset", "record_count", "control_count", "max_timestamp",
        "offset_of_max_timestamp", "bytes_since_entry", "epochs",
    ):  # fmt: skip
        assert getattr(tally, name) == getattr(plain, name), name
    assert entries_of(tally) == (plain.entries, plain.times)
    assert tally.aborted == plain.aborted
    assert set(tally.transactions()) == plain.transactions
    assert replayed(tally.last_batches()).encode() == plain.producers.encode()


TIMES = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), LONG_MAX))
STEPS = st.fixed_dictionaries(
    {
        "gap": st.sampled_from([0, 0, 0, 1, 7, -1, -9, 1 << 30, (1 << 62)]),
        "offsets": st.one_of(st.integers(1, 4), st.just(1 << 31)),
        "has_records": st.booleans(),
        "max_timestamp": TIMES,
        "producer_id": st.integers(-1, 3),
        "producer_epoch": st.integers(0, 2),
        "base_sequence": st.sampled_from([-1, 0, 5, (1 << 31) - 1]),
        "leader_epoch": st.integers(-2, 4),
        "attributes": st.sampled_from(
            [0, 0, TRANSACTIONAL, TRANSACTIONAL, CONTROL, CONTROL | TRANSACTIONAL, CONTROL | 1]
        ),
        "payload": st.one_of(st.binary(max_size=40), st.sampled_from(list(MARKERS))),
    }
)


@given(
    st.lists(STEPS, max_size=30),
    st.lists(st.integers(1, 400), max_size=8),
    st.sampled_from([0, 100, 4096]),
    st.sampled_from([0, 10, LONG_MAX]),
    st.sampled_from([0, 5]),
    st.integers(0, 3000),
    st.sampled_from([0, 0, 0x01, 0x80]),
)
def test_sums_are_those_of_a_plain_loop(
    steps: list[dict[str, int]],
    cuts: list[int],
    interval: int,
    producers_from: int,
    base_offset: int,
    damage_at: int,
    damage: int,
) -> None:
    data, offset = bytearray(), base_offset
    for step in steps:
        fields = dict(step)
        offset = min(max(offset + fields.pop("gap"), 0), LONG_MAX)
        count = fields["offsets"] if fields.pop("has_records") else 0
        data += batch(offset, record_count=min(count, (1 << 31) - 1), **fields)  # type: ignore[arg-type]
        offset += fields["offsets"]
    if data:
        data[damage_at % len(data)] ^= damage
    tally = BatchTally(
        base_offset=base_offset, index_interval_bytes=interval, producers_from=producers_from
    )
    plain = Plain(base_offset, interval, producers_from, end_offset=base_offset)
    for size in [*cuts, len(data)]:
        chunk = bytes(data[plain.position : plain.position + size])
        assert tally.feed(chunk) is plain.feed(chunk)
        assert_same(tally, plain)


def test_sums_go_on_where_others_ended() -> None:
    data = b"".join(
        batch(at, max_timestamp=at % 7, payload=bytes(80), leader_epoch=at // 5) for at in range(20)
    )
    whole = BatchTally(base_offset=0, index_interval_bytes=200)
    assert whole.feed(data) is StopReason.END
    first = BatchTally(base_offset=0, index_interval_bytes=200)
    half = len(data) // 2
    first.feed(data[:half])
    entries, times = entries_of(first)
    second = BatchTally(
        base_offset=0,
        index_interval_bytes=200,
        position=first.position,
        end_offset=first.end_offset,
        record_count=first.record_count,
        max_timestamp=first.max_timestamp,
        offset_of_max_timestamp=first.offset_of_max_timestamp,
        bytes_since_entry=first.bytes_since_entry,
        last_entry_timestamp=times[-1][0],
    )
    second.feed(data[first.position :])
    more_entries, more_times = entries_of(second)
    assert (entries + more_entries, times + more_times) == entries_of(whole)
    assert (second.position, second.end_offset, second.max_timestamp) == (len(data), 20, 6)


def test_last_five_batches_of_ten_thousand_producers_are_kept() -> None:
    tally = BatchTally(base_offset=0, index_interval_bytes=4096)
    for start in range(0, 70_000, 1000):
        chunk = b"".join(
            batch(at, producer_id=at * 31 % 10_000, producer_epoch=0, base_sequence=at // 10_000)
            for at in range(start, start + 1000)
        )
        assert tally.feed(chunk) is StopReason.END
    states = replayed(tally.last_batches())
    assert len(states) == 10_000
    for producer_id in range(0, 10_000, 997):
        state = states.get(ProducerId(producer_id))
        assert state is not None
        assert [each.first_sequence for each in state.batches] == [2, 3, 4, 5, 6]


def test_nothing_is_taken_of_an_empty_chunk() -> None:
    tally = BatchTally(base_offset=9, index_interval_bytes=0)
    assert tally.feed(b"") is StopReason.END
    assert (tally.position, tally.end_offset) == (0, 9)


def test_buffer_may_be_used_again_after_a_feed() -> None:
    buffer = bytearray(batch(0, producer_id=4, producer_epoch=1, base_sequence=0))
    tally = BatchTally(base_offset=0, index_interval_bytes=0)
    tally.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    (kept,) = tally.last_batches()
    assert (kept.producer_id, kept.producer_epoch, kept.base_offset) == (4, 1, 0)


@pytest.mark.parametrize("offset", [1 << 31, LONG_MAX])
def test_offset_out_of_reach_of_the_base_is_not_taken(offset: int) -> None:
    tally = BatchTally(base_offset=0, index_interval_bytes=0)
    assert tally.feed(batch(offset)) is StopReason.OUT_OF_ORDER
    assert tally.position == 0


COLUMN = st.lists(st.integers(-2, 12), max_size=8)


@given(COLUMN, COLUMN, st.integers(0, 12), st.integers(0, 12))
def test_sound_entries_end_at_the_first_that_cannot_stand_there(
    first: list[int], second: list[int], span: int, size: int
) -> None:
    both = list(zip(first, second, strict=False))

    def is_offset_index(entries: list[tuple[int, int]]) -> bool:
        inside = all(0 <= offset < span and 0 <= at < size for offset, at in entries)
        return inside and all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))

    def is_time_index(entries: list[tuple[int, int]]) -> bool:
        inside = all(0 <= offset < span for _, offset in entries)
        return inside and all(a[0] < b[0] and a[1] <= b[1] for a, b in itertools.pairwise(entries))

    counts = range(len(both) + 1)
    columns = (array("i", first), array("i", second))
    found = sound_offset_entries(*columns, span=span, size=size)
    assert found == max(n for n in counts if is_offset_index(both[:n]))
    found = sound_time_entries(array("q", first), columns[1], span=span)
    assert found == max(n for n in counts if is_time_index(both[:n]))
