"""Crash a cleaning pass at every operation it does on the disk, in every way, and start again.

After each operation of a pass the disk is taken as a power cut may leave it: with everything that
was not synced, with nothing of it, or torn in several random ways. The recovered log must be
    - whole: every group of segments is as it was before or as it is after its swap, oldest first;
    - current: no superseded value is any key's last one, nothing that was acknowledged is missing;
    - cleanable: one more pass leads to what the undisturbed pass led to, and leaves no staging.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from cleaner.kernel.kernel import BatchFilter
from cleaner.pacing.meter import CleaningAborted
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Codec, Record, build_batch, build_control_batch
from protocol.wire.numbers import ProducerId
from storage.files.errors import SwapRefused
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.segment.files import Background
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    SETTINGS,
    CompactedLog,
    identity,
    opening,
    records_of,
    run_at_once,
)
from tests.harness.groups import watched_swaps
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.sidecar_mode import SidecarMode

RETENTION_MS = CONFIG.delete_retention_ms
KEYS = [b"key-%d" % number for number in range(8)]
ALL_KEYS = {*KEYS, b"last"}
"""Of records; markers have others."""
ABORTED = b"aborted"
TORN_STATES = 20 if "KOMPAKT_SOAK" in os.environ else 3
"""Random crash states after each operation, beside the two that lose all and nothing."""
TORN_STATES_IN_TRAFFIC = 5 if "KOMPAKT_SOAK" in os.environ else 1
"""There are four times as many operations."""

Entry = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A log made ready, and how it is cleaned."""

    batches_count: int = 24
    segment_bytes: int = 300
    codec: Codec = Codec.NONE
    tombstones: bool = False
    tombstones_are_due: bool = False
    transactions: bool = False
    map_slots: int = 1000
    sidecars: SidecarMode = SidecarMode.KEPT
    output_bytes_max: int = (1 << 31) - 1
    """The size at which a group's output continues in another segment."""
    has_fence: bool = False
    """Whether a batch inflates beyond the bound, so that its segment stays as it is."""
    seed: int = 0

    def build(
        self, background: Background = run_at_once, kind: type[CompactedLog] = CompactedLog
    ) -> CompactedLog:
        """A log of many small segments in several groups, all durable and rolled."""
        log = kind(
            replace(CONFIG, segment_bytes=self.segment_bytes),
            replace(SETTINGS, dedupe_buffer_size=24 * self.map_slots),
            background=background,
            sidecars=self.sidecars,
        )
        random = Random(self.seed)
        if self.has_fence:
            log.settings = replace(log.settings, decompressed_bytes_max=10_000)
        for number in range(self.batches_count):
            log.append(*self._batch(random, number), codec=self.codec)
            if self.has_fence and number == self.batches_count // 2:
                log.append((KEYS[0], bytes(20_000)), (KEYS[1], None), codec=Codec.ZSTD)
            if self.transactions and number % 2 == 0:
                append_transaction(log, random.choice(KEYS), aborted=number % 4 == 0)
            if number % 3 == 2:
                log.roll()
        log.roll()
        if self.tombstones_are_due:
            log.clean_until_idle()
            log.now_ms += RETENTION_MS
            log.append((b"last", b"1"))
            log.roll()
        return log

    def _batch(self, random: Random, number: int) -> list[tuple[bytes, bytes | None]]:
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(random.randint(1, 4)):
            is_tombstone = self.tombstones and random.random() < 0.4
            value = None if is_tombstone else b"%d" % number * random.randint(1, 30)
            pairs.append((random.choice(KEYS), value))
        return pairs


def append_transaction(log: CompactedLog, key: bytes, *, aborted: bool) -> None:
    """A transaction of one record, and its marker."""
    producer_id, offset = 7 + aborted, log.log.log_end_offset
    state = log.log.producers.get(ProducerId(producer_id))
    record = Record(offset=0, timestamp=1000, key=key, value=ABORTED if aborted else b"committed")
    data = build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=state.batches[-1].last_sequence + 1 if state else 0,
        is_transactional=True,
    )
    log.append_batch(valid(data))
    kind = ControlType.ABORT if aborted else ControlType.COMMIT
    marker = build_control_batch(
        TransactionMarker(type=kind, coordinator_epoch=0),
        offset=offset + 1,
        timestamp=1000,
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=log.log.leader_epoch,
    )
    log.log.appender.append_as_follower(run_of(marker), now_ms=log.now_ms)
    log.make_durable()


SCENARIOS = [
    pytest.param(Scenario(), id="values"),
    pytest.param(Scenario(codec=Codec.LZ4, seed=1), id="compressed"),
    pytest.param(Scenario(tombstones=True, seed=2), id="tombstones"),
    pytest.param(Scenario(tombstones=True, tombstones_are_due=True, seed=3), id="tombstones_due"),
    pytest.param(Scenario(map_slots=16, seed=4), id="keys_in_parts"),
    pytest.param(
        Scenario(batches_count=15, sidecars=SidecarMode.OFF, tombstones=True, seed=10),
        id="sidecars_off",
    ),
    pytest.param(
        Scenario(sidecars=SidecarMode.DAMAGED, tombstones=True, tombstones_are_due=True, seed=11),
        id="sidecars_damaged",
    ),
    pytest.param(
        Scenario(
            batches_count=12,
            sidecars=SidecarMode.MISSING,
            tombstones=True,
            tombstones_are_due=True,
            seed=12,
        ),
        id="sidecars_missing",
    ),
    pytest.param(
        Scenario(
            batches_count=12,
            sidecars=SidecarMode.LYING,
            tombstones=True,
            tombstones_are_due=True,
            seed=13,
        ),
        id="sidecars_lying",
    ),
    pytest.param(Scenario(batches_count=12, segment_bytes=1, seed=5), id="one_segment_a_group"),
    pytest.param(Scenario(segment_bytes=1 << 20, seed=6), id="one_group"),
    pytest.param(
        Scenario(batches_count=14, transactions=True, tombstones=True, seed=7), id="transactions"
    ),
    pytest.param(
        Scenario(transactions=True, tombstones_are_due=True, seed=8), id="transactions_markers_due"
    ),
    pytest.param(
        Scenario(
            batches_count=14,
            transactions=True,
            tombstones=True,
            tombstones_are_due=True,
            has_fence=True,
            seed=14,
        ),
        id="fence",
    ),
    pytest.param(
        Scenario(segment_bytes=1500, output_bytes_max=200, seed=9), id="several_outputs_a_group"
    ),
]


def entries_of(log: PartitionLog) -> list[Entry]:
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def swapped_states(
    before: Sequence[Entry], after: Sequence[Entry], bounds: Sequence[int]
) -> list[list[Entry]]:
    """The log with its first groups swapped in, for every number of them, none to all."""
    return [
        [entry for entry in after if entry[0] < bound]
        + [entry for entry in before if entry[0] >= bound]
        for bound in bounds
    ]


def last_values(entries: Sequence[Entry]) -> dict[bytes | None, bytes]:
    """Of what is committed."""
    values = {key: value for _, key, value in entries if key in ALL_KEYS and value != ABORTED}
    return {key: value for key, value in values.items() if value is not None}


class Sweep:
    """Takes the disk's crash states while a pass runs, and checks the log that each leads to."""

    def __init__(self, log: CompactedLog, *, torn_states: int = TORN_STATES) -> None:
        self.log = log
        self.torn_states = torn_states
        self.states_count = 0
        self.random = Random(0)
        self.continued: set[frozenset[tuple[str, bytes]]] = set()
        self.before = entries_of(log.log)
        undisturbed = CompactedLog()
        undisturbed.fs = log.fs.after_crash(Loss.NOTHING, self.random)
        undisturbed.now_ms = log.now_ms
        undisturbed.settings = log.settings
        undisturbed.log = self.open(undisturbed.fs)
        undisturbed.sidecars = log.sidecars
        with watched_swaps() as groups:
            undisturbed.execute(undisturbed.plan(requested=False))
        self.after = entries_of(undisturbed.log)
        self.end_offset = undisturbed.log.log_end_offset
        undisturbed.clean_until_idle()
        self.finally_ = entries_of(undisturbed.log)
        self.bounds = [*(group[0].base_offset for group in groups), groups[-1][-1].end_offset]
        self.allowed = swapped_states(self.before, self.after, self.bounds)

    def open(self, fs: MemoryFileSystem) -> PartitionLog:
        return open_log(
            fs, identity(), self.log.log.config, opening(now_ms=self.log.now_ms, leader_epoch=1)
        )

    def run(self) -> None:
        self.log.fs.on_operation = lambda action, path: self.crash_here()
        self.crash_here()
        self.log.execute(self.log.plan(requested=False))
        self.log.fs.on_operation = None

    def crash_here(self) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING, *[Loss.TORN] * self.torn_states):
            self.check(self.log.fs.after_crash(loss, self.random))
            self.states_count += 1

    def check(self, fs: MemoryFileSystem) -> None:
        log = self.open(fs)

        entries = entries_of(log)
        assert entries in self.allowed
        assert last_values(entries) == last_values(self.before)
        assert (log.log_start_offset, log.log_end_offset) == (0, self.end_offset)
        assert not [name for name in fs.list(DIRECTORY) if name.endswith(".cleaned")]
        self.check_that_cleaning_goes_on(fs, log)

    def check_that_cleaning_goes_on(self, fs: MemoryFileSystem, log: PartitionLog) -> None:
        """Clean what was recovered, once for all crash states that lead to the same files."""
        files = frozenset(
            (name, fs.read_bytes(f"{DIRECTORY}/{name}")) for name in fs.list(DIRECTORY)
        )
        if files in self.continued:
            return
        self.continued.add(files)
        again = CompactedLog()
        again.fs, again.log = fs, log
        again.now_ms, again.settings = self.log.now_ms, self.log.settings
        again.sidecars = self.log.sidecars
        again.clean_until_idle()
        assert entries_of(log) == self.finally_
        assert not [name for name in fs.list(DIRECTORY) if name.endswith(".cleaned")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_at_any_operation_of_a_pass_loses_and_resurrects_nothing(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounded(hash_key: bytes, **options: Any) -> BatchFilter:
        bytes_max = min(scenario.output_bytes_max, options.pop("segment_bytes_max"))
        return BatchFilter(hash_key, segment_bytes_max=bytes_max, **options)

    monkeypatch.setattr("cleaner.passes.rewrite.BatchFilter", bounded)
    sweep = Sweep(scenario.build())

    sweep.run()

    assert sweep.states_count > 40 * (2 + TORN_STATES)
    assert entries_of(sweep.log.log) == sweep.after


class Traffic:
    """Appends, rolls and syncs that come between the operations of a pass."""

    def __init__(self) -> None:
        self.background: list[Callable[[], None]] = []
        self.is_busy = False
        self.appended: list[Entry] = []
        self.random = Random(7)

    def come(self, log: CompactedLog) -> None:
        """Do one random thing, as the loop's thread would while a worker cleans."""
        self.is_busy = True
        match self.random.randrange(6):
            case 0 | 1:
                key, value = self.random.choice(KEYS), b"new %d" % len(self.appended)
                # Noted first: it may survive a crash in the middle of its append.
                self.appended.append((log.log.log_end_offset, key, value))
                batch = valid(batch_of([(key, value)]))
                assert isinstance(
                    log.log.appender.append_as_leader(batch, now_ms=log.now_ms), Appended
                )
            case 2:
                log.roll()
            case 3:
                log.make_durable()
            case _:
                pass
        self.is_busy = False

    def run_background(self, _seconds: float = 0) -> bool:
        """Do what rolls left to do; called where the pass holds no lock. Never stops the pass."""
        self.is_busy = True
        while self.background:
            self.background.pop(0)()
        self.is_busy = False
        return False


class SweepInTraffic(Sweep):
    """A sweep over a pass that is not alone."""

    def __init__(self, log: CompactedLog, traffic: Traffic) -> None:
        super().__init__(log, torn_states=TORN_STATES_IN_TRAFFIC)
        self.traffic = traffic

    def run(self) -> None:
        self.log.fs.on_operation = lambda action, path: self.on_operation()
        self.log.execute(self.log.plan(requested=False), stop=self.traffic.run_background)
        self.log.fs.on_operation = None

    def on_operation(self) -> None:
        self.crash_here()
        if not self.traffic.is_busy:
            self.traffic.come(self.log)

    def check(self, fs: MemoryFileSystem) -> None:
        log = self.open(fs)

        entries = entries_of(log)
        old = [entry for entry in entries if entry[0] < self.end_offset]
        new = [entry for entry in entries if entry[0] >= self.end_offset]
        durable = [entry for entry in self.traffic.appended if entry[0] < self.high_watermark]
        assert old in self.allowed
        assert new == self.traffic.appended[: len(new)]
        assert len(new) >= len(durable)

    @property
    def high_watermark(self) -> int:
        return self.log.log.high_watermark


@pytest.mark.parametrize("seed", range(2))
def test_a_crash_loses_nothing_that_was_acknowledged_while_a_pass_ran(seed: int) -> None:
    traffic = Traffic()
    log = Scenario(tombstones=True, seed=seed).build(
        background=lambda work: traffic.background.append(work)
    )
    traffic.run_background()
    traffic.random.seed(seed)
    sweep = SweepInTraffic(log, traffic)

    sweep.run()
    traffic.run_background()

    assert len(traffic.appended) > 10
    assert sweep.states_count > 400
    assert [entry for entry in entries_of(log.log) if entry[0] < sweep.end_offset] == sweep.after


def test_an_aborted_pass_can_be_crashed_too() -> None:
    """Discarding the staging is a string of operations as well."""
    log = Scenario(tombstones=True, seed=2).build()
    sweep = Sweep(log)
    looks = 0

    def stop_late(_seconds: float) -> bool:
        nonlocal looks
        looks += 1
        return looks > 50

    log.fs.on_operation = lambda action, path: sweep.crash_here()
    with pytest.raises(CleaningAborted):
        log.execute(log.plan(requested=False), stop=stop_late)
    log.fs.on_operation = None

    assert sweep.states_count > 300
    assert entries_of(log.log) in sweep.allowed


class SweepWithTruncation(Sweep):
    """A sweep over a pass that a truncation ends, and over the truncation."""

    def __init__(self, log: CompactedLog, looks: int) -> None:
        super().__init__(log, torn_states=TORN_STATES_IN_TRAFFIC)
        self.looks_left = looks
        self.cut_offset = log.headers()[-6].base_offset

    def run(self) -> None:
        self.log.fs.on_operation = lambda action, path: self.crash_here()
        with pytest.raises((CleaningAborted, SwapRefused)):
            self.log.execute(self.log.plan(requested=False), stop=self.truncate_in_time)
        self.log.fs.on_operation = None

    def truncate_in_time(self, _seconds: float) -> bool:
        """Called where the pass holds no lock, as another thread could come then. Never stops it."""
        self.looks_left -= 1
        if self.looks_left == 0:
            self.log.log.truncate_to(self.cut_offset)
        return False

    def check(self, fs: MemoryFileSystem) -> None:
        log = self.open(fs)

        end, entries = log.log_end_offset, entries_of(log)
        assert end in (self.cut_offset, self.end_offset)
        allowed = [[each for each in state if each[0] < end] for state in self.allowed]
        assert entries in allowed
        assert not [name for name in fs.list(DIRECTORY) if name.endswith(".cleaned")]


@pytest.mark.parametrize("looks", [2, 16, 30, 45, 60])
def test_a_truncation_in_the_middle_of_a_pass_can_be_crashed_too(looks: int) -> None:
    sweep = SweepWithTruncation(Scenario(tombstones=True, seed=2).build(), looks)

    sweep.run()

    assert sweep.looks_left <= 0
    assert sweep.log.log.log_end_offset == sweep.cut_offset
