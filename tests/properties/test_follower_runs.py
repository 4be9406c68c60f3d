"""A run of batches leaves a follower's log as its batches would, appended one by one."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Codec, build_control_batch, build_empty_batch
from protocol.wire.numbers import Epoch, Offset
from storage.files.paths import LOG
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of, headers_in, run_of, valid
from tests.harness.log_home import SMALL, LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem

EPOCH = 50
"""The follower's own epoch, above those of the batches."""


class Source:
    """Makes the batches of a leader that has cleaned its log now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._end, self._epoch, self._clock = random.choice((0, 0, 5)), 1, 1000
        self._producers: dict[int, tuple[int, int]] = {}
        """Each producer's epoch and next sequence."""

    def batch(self) -> bytearray:
        """Returns the next batch."""
        random = self._random
        if random.random() < 0.2:
            self._end += random.randrange(1, 30)
        if random.random() < 0.1:
            self._epoch += random.randrange(1, 3)
        self._clock += random.randrange(-5, 20)
        choice = random.random()
        if choice < 0.45:
            batch = self._data()
        elif choice < 0.8:
            batch = self._data_of(random.choice((7, 8, 9)))
        else:
            batch = self._marker(random.choice((7, 8, 9)))
        if random.random() < 0.1:
            (header,) = headers_in(bytes(batch))
            batch = build_empty_batch(header)
        return batch

    def _data(self, **producer: Any) -> bytearray:
        random, count = self._random, self._random.randrange(1, 5)
        batch = batch_of(
            [(b"k%d" % random.randrange(9), random.randbytes(random.randrange(40)))] * count,
            base_offset=self._end,
            leader_epoch=self._epoch,
            timestamps=[self._clock + random.randrange(9) for _ in range(count)],
            codec=random.choice((*Codec, Codec.NONE, Codec.NONE)),
            **producer,
        )
        self._end += count
        return batch

    def _data_of(self, producer_id: int) -> bytearray:
        epoch, sequence = self._producers.get(producer_id, (0, 0))
        if self._random.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        before = self._end
        batch = self._data(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer_id < 9,
        )
        self._producers[producer_id] = epoch, sequence + self._end - before
        return batch

    def _marker(self, producer_id: int) -> bytearray:
        epoch, sequence = self._producers.get(producer_id, (0, 0))
        if self._random.random() < 0.3:
            epoch, sequence = epoch + 1, 0
        self._producers[producer_id] = epoch, sequence
        kind = self._random.choice((ControlType.COMMIT, ControlType.ABORT))
        batch = build_control_batch(
            TransactionMarker(type=kind, coordinator_epoch=self._random.randrange(4)),
            timestamp=self._clock,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        stamped = memoryview(batch)
        stamped[:8] = self._end.to_bytes(8, "big")
        stamped[12:16] = self._epoch.to_bytes(4, "big")
        self._end += 1
        return batch


def append_one(log: PartitionLog, batch: bytearray, now_ms: int) -> None:
    """Append one batch as a leader's appends do it, with the offsets and the epoch that it has."""
    one = valid(batch)
    log._states.assign_epoch(one.header.leader_epoch, one.header.base_offset)
    log.appender._write(one, one.header.last_offset, now_ms)


def contents(log: PartitionLog) -> dict[str, Any]:
    """Returns everything that appends leave, in memory and on disk."""
    transactions = log._states.transactions
    return {
        "rows": [segment.full_row() for segment in log.segments],
        "bytes": [log._fs.read_bytes(segment.path(LOG)) for segment in log.segments],
        "offsets": [segment.index().offset_file() for segment in log.segments],
        "times": [segment.index().time_file() for segment in log.segments],
        "since entry": log.segments[-1]._bytes_since_entry,
        "producers": dict(log.producers.items()),
        "epochs": log.epochs.entries,
        "aborted": log._states.aborted.rows,
        "open": list(transactions._first_offsets.items()),
        "ended": transactions._ended,
        "bounds": (log.log_end_offset, log.high_watermark, log.last_stable_offset),
    }


def restored(log: PartitionLog) -> dict[str, Any]:
    """Returns what a restart restores, except the times of appends."""
    found = contents(log)
    rows, producers = found["rows"], found["producers"]
    found["rows"] = [(row.base_offset, row.end_offset, row.size, row.record_count) for row in rows]
    found["producers"] = {key: replace(each, last_timestamp=0) for key, each in producers.items()}
    return {key: found[key] for key in ("rows", "bytes", "producers", "epochs", "aborted", "open")}


def reopened(home: LogHome, *, is_clean: bool) -> PartitionLog:
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)
    left = LogHome(disk.after_crash(Loss.NOTHING, Random(0)), config=home.config)
    return left.open(epoch=EPOCH + 1, is_clean=is_clean, now_ms=9)


CONFIGS = st.builds(
    lambda **changes: replace(SMALL, **changes),
    segment_bytes=st.sampled_from([200, 700, 3000]),
    index_interval_bytes=st.sampled_from([0, 100, 1000]),
    segment_index_bytes=st.sampled_from([24, 1 << 20]),
    segment_ms=st.sampled_from([10, 1 << 40]),
    segment_jitter_ms=st.just(0),
)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 30), config=CONFIGS, count=st.integers(1, 60))
def test_run_equals_its_batches_one_by_one(seed: int, config: LogConfig, count: int) -> None:
    random = Random(seed)
    source = Source(random)
    homes = [LogHome(MemoryFileSystem(), config=config) for _ in range(2)]
    by_runs, by_ones = (home.create(epoch=EPOCH) for home in homes)
    now_ms, left = 0, count
    while left:
        now_ms += random.choice((0, 1, 20))
        batches = [source.batch() for _ in range(min(left, random.choice((1, 2, 5, 30))))]
        left -= len(batches)
        by_runs.appender.append_as_follower(run_of(*batches), now_ms=now_ms)
        for batch in batches:
            append_one(by_ones, batch, now_ms)
        if random.random() < 0.5:
            unsynced = random.choice((0, 2))
            for log in (by_runs, by_ones):
                log.advance_high_watermark(Offset(log.sync() - unsynced))
        assert contents(by_runs) == contents(by_ones)

    for log in (by_runs, by_ones):
        log.sync()
    live = restored(by_runs)
    for is_clean in (False, True):
        if is_clean:
            by_runs.close()
            by_ones.close()
        first, second = (reopened(home, is_clean=is_clean) for home in homes)
        assert contents(first) == contents(second)
        assert restored(first) == live


@pytest.mark.parametrize("gap", [1 << 31, 5 << 31])
def test_run_across_a_gap_that_no_index_can_express_is_in_segments_that_can(gap: int) -> None:
    home = LogHome(MemoryFileSystem(), config=replace(SMALL, index_interval_bytes=0))
    log = home.create(epoch=EPOCH)
    pairs = [(b"k", b"v")]
    places = (0, 1, gap, gap + 1, 2 * gap, 2 * gap + 7)
    log.appender.append_as_follower(
        run_of(*[batch_of(pairs, base_offset=at, leader_epoch=3) for at in places]), now_ms=0
    )
    log.sync()

    for each in (log, reopened(home, is_clean=False)):
        assert each.log_end_offset == 2 * gap + 8
        assert all(one.end_offset - one.base_offset <= 1 << 31 for one in each.segments)
        assert each.epochs.entries == ((Epoch(3), Offset(0)),)
        assert sum(one.record_count for one in each.segments) == len(places)


def test_run_takes_one_write_for_each_segment() -> None:
    home = LogHome(MemoryFileSystem())
    log = home.create(epoch=EPOCH)
    batches = [batch_of([(b"k", bytes(30))], base_offset=at, leader_epoch=3) for at in range(40)]
    writes: list[str] = []
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)

    def note(action: str, path: str) -> None:
        if action == "append to":
            writes.append(path)

    disk.on_operation = note
    log.appender.append_as_follower(run_of(*batches), now_ms=0)

    assert writes == [segment.path(LOG) for segment in log.segments]
    assert len(writes) > 2
