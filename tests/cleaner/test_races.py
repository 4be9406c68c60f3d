"""Something happens to a log while a pass cleans it: truncation, deletion, another policy, the end.

KAFKA-631 named the race when it proposed compaction, and the cure: "each truncate operation will
increment this counter [...] the swap operation [...] will only occur if the generations match".
Here the race is run at every step that the pass takes (every chunk, every operation on the disk, the
ones of staging, commit and renames, too), and the other way round, the pass at every step of what
happens. Whatever the order, the log must hold what it would hold if the groups that were swapped in
before had been swapped in, then the thing had happened: no record lost, none back from the dead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from cleaner.meter import CleaningAborted
from storage.errors import LogOffline, SegmentRemoved, StorageError, SwapRefused
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_opening import open_log
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    CompactedLog,
    identity,
    opening,
    records_of,
)
from tests.harness.faults import Faults
from tests.harness.interleaving import Interleaving, ScheduledLock
from tests.harness.log_builder import KeyValue
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.transactional_producer import TransactionalProducer

Entry = tuple[int, bytes | None, bytes | None]

HARMLESS = (CleaningAborted, SwapRefused, SegmentRemoved, LogOffline)
"""How a pass may end that something came between; the pool rests no partition for them."""
RACE_CONFIG = replace(CONFIG, segment_bytes=330)
COMPACT_DELETE = replace(RACE_CONFIG, cleanup_policy=("compact", "delete"), retention_ms=500)
IS_SOAK = "KOMPAKT_SOAK" in os.environ
STRIDE = 1 if IS_SOAK else 4
"""Of the steps of a pass over a log that was cleaned before or holds transactions, every so many."""
SAMPLES = 2000 if IS_SOAK else 20
"""Of the schedules with two changes of turns, of which there are thousands."""

# -------------------------------------------------------------------- the log


def uncleaned_log() -> CompactedLog:
    """Seven sealed segments in several groups, with superseded values, tombstones and producers."""
    log = CompactedLog(RACE_CONFIG)
    segments: list[list[list[KeyValue]]] = [
        [[(b"a", b"1"), (b"b", b"1")], [(b"c", b"1")]],
        [[(b"a", b"2")], [(b"d", b"1"), (b"d", b"2")]],
        [[(b"b", None)], [(b"e", b"1")]],
        [[(b"c", b"2"), (b"f", b"1" * 90)]],
        [[(b"a", b"3"), (b"g", b"1")], [(b"f", None)]],
        [[(b"h", b"1"), (b"g", b"2")]],
        [[(b"d", None), (b"a", b"4"), (b"i", b"1")]],
    ]
    for number, batches in enumerate(segments):
        for pairs in batches:
            # The producers of the odd ones never write again: their last batches must stay.
            is_idempotent = number % 2 == 1
            log.append(
                *pairs,
                producer_id=log.log.log_end_offset if is_idempotent else -1,
                producer_epoch=0 if is_idempotent else -1,
                base_sequence=0 if is_idempotent else -1,
            )
        log.now_ms += 100
        log.roll()
    return log


def log_with_horizons_due() -> CompactedLog:
    """The same after a pass, dirty again, and with tombstones whose time has come."""
    log = uncleaned_log()
    log.clean_until_idle()
    log.now_ms += CONFIG.delete_retention_ms
    log.append_segment((b"c", b"3"), (b"h", None), (b"j", b"1"))
    return log


def log_of_transactions() -> CompactedLog:
    """Committed and aborted transactions over several segments, between batches of none."""
    log = CompactedLog(RACE_CONFIG)
    one, two, three = (TransactionalProducer(log, number) for number in (1, 2, 3))
    one.send((b"a", b"1"), (b"b", b"1"))
    one.commit()
    log.roll()
    log.append((b"a", b"2"))
    two.send((b"d", b"1"), (b"d", b"2"))
    log.roll()
    two.abort()
    one.send((b"b", None))
    log.roll()
    log.append((b"c", b"2"), (b"f", b"1" * 90))
    log.roll()
    three.send((b"a", b"3"), (b"g", b"1"))
    one.commit()
    log.roll()
    log.append((b"h", b"1"), (b"g", b"2"))
    log.roll()
    three.abort()
    log.append_segment((b"a", b"4"), (b"i", b"1"))
    return log


LOGS = {
    "uncleaned": uncleaned_log,
    "horizons_due": log_with_horizons_due,
    "transactions": log_of_transactions,
}

# -------------------------------------------------------------------- what happens


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a log, and what it leaves of a log's records."""

    happen: Callable[[Scene], object]
    left_of: Callable[[Sequence[Entry]], list[Entry]] = list
    config: LogConfig = RACE_CONFIG
    forbids_swaps: bool = True
    """Whether no swap of a pass planned before may follow it."""
    moves_groups: bool = False
    """Whether the pass goes on, with other groups of segments than it would have had."""


def truncated_to(offset: int, boundary: int) -> Event:
    """Truncate to an offset; the batch across it begins at `boundary`."""
    return Event(
        lambda scene: scene.log.truncate_to(offset),
        lambda entries: [entry for entry in entries if entry[0] < boundary],
    )


def _truncate_and_write_others(scene: Scene) -> None:
    """What was cut off is written anew, with other contents at the same offsets, and rolled."""
    scene.log.truncate_to(6)
    scene.race_is_over()
    scene.append((b"a", b"other"), (b"k", b"other"))
    scene.compacted.roll()
    scene.append((b"d", b"other"))
    scene.compacted.roll()


def _start_anew(scene: Scene) -> None:
    scene.log.truncate_fully_and_start_at(9)
    scene.race_is_over()
    scene.append((b"a", b"anew"))
    scene.compacted.roll()


def _change_policy(scene: Scene) -> None:
    scene.log.update_config(replace(RACE_CONFIG, cleanup_policy=("delete",)))
    scene.log.settle()


def _delete_topic(scene: Scene) -> None:
    """As `LogDirectory.delete_topic` does."""
    scene.log.retire()
    topic_directory = DIRECTORY.rpartition("/")[0]
    scene.fs.rename(topic_directory, f"{topic_directory}.deleted")
    scene.fs.sync_directory("data")
    scene.fs.remove_tree(f"{topic_directory}.deleted")


def _stop(scene: Scene) -> None:
    scene.is_stopping = True


EVENTS = {
    "truncation_deep": truncated_to(3, 3),
    "truncation_inside_a_batch": truncated_to(14, 13),
    "truncation_of_the_last_batch": truncated_to(15, 15),
    "truncation_and_other_records": Event(
        _truncate_and_write_others, lambda entries: [entry for entry in entries if entry[0] < 6]
    ),
    "truncation_of_everything": Event(_start_anew, lambda _entries: []),
    "delete_records": Event(
        lambda scene: scene.log.delete_records(7),
        lambda entries: [entry for entry in entries if entry[0] >= 7],
        forbids_swaps=False,
        moves_groups=True,
    ),
    "delete_records_up_to_the_end": Event(
        lambda scene: scene.log.delete_records(scene.log.high_watermark),
        lambda _entries: [],
        forbids_swaps=False,
    ),
    "retention_of_all_segments": Event(
        lambda scene: scene.log.retain(scene.compacted.now_ms),
        lambda _entries: [],
        config=COMPACT_DELETE,
        forbids_swaps=False,
    ),
    "policy_change": Event(_change_policy),
    "deletion": Event(_delete_topic, lambda _entries: [], forbids_swaps=False),
    "shutdown": Event(_stop, forbids_swaps=False),
}

# -------------------------------------------------------------------- both at once


class SteppedFaults(Faults):
    """No faults: tells of every operation on the disk before it is done."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    def check(self, action: str, path: str, size: int = 0) -> None:
        self._step()
        super().check(action, path, size)


class Scene:
    """One log, one pass over it, one event, and the schedule by which they meet."""

    def __init__(self, prepared: CompactedLog, event: Event, turns: Sequence[int]) -> None:
        self.event = event
        self.interleaving = Interleaving(turns)
        self.lock = ScheduledLock(self.interleaving)
        self.failures: list[StorageError] = []
        self.compacted: CompactedLog = CompactedLog()
        self.compacted.now_ms = prepared.now_ms
        self.fs = self.compacted.fs = prepared.fs.after_crash(Loss.NOTHING, Random(0))
        self.log: PartitionLog = self.open(self.fs, event.config)
        self.compacted.log = self.log
        self.appended: list[Entry] = []
        self.is_stopping = False
        self.swaps = 0
        """How many groups have been swapped in."""
        self.swaps_before: int | None = None
        """As many had been when the event had its way."""
        self.steps_of_race = 0
        self.left_by_crash: MemoryFileSystem | None = None
        """The disk that a machine finds which loses power right behind the event."""

    def open(self, fs: MemoryFileSystem, config: LogConfig) -> PartitionLog:
        to_open = opening(now_ms=self.compacted.now_ms, leader_epoch=7)
        return open_log(fs, identity(), config, replace(to_open, on_failure=self.failures.append))

    def append(self, *pairs: KeyValue) -> None:
        base_offset = self.compacted.append(*pairs).base_offset
        self.appended += [(base_offset + number, *pair) for number, pair in enumerate(pairs)]

    def play(self, monkeypatch: pytest.MonkeyPatch, *, event_first: bool = False) -> None:
        """Run the pass and the event by the schedule."""
        swap = PartitionLog.swap

        def counted_swap(log: PartitionLog, *args: object, **bounds: object) -> None:
            swap(log, *args, **bounds)  # type: ignore[arg-type]
            self.swaps += 1

        monkeypatch.setattr(PartitionLog, "swap", counted_swap)
        monkeypatch.setattr(self.log._list, "commit_lock", self.lock)
        self.fs.faults = SteppedFaults(self.interleaving.step)
        self.lock.on_acquired = self._note_order
        works = (self._happen, self._clean) if event_first else (self._clean, self._happen)
        self.event_number = works.index(self._happen)
        self.interleaving.run(*works)
        self.fs.faults = Faults()

    def race_is_over(self) -> None:
        """What the event does from here on is what a log does that nothing happens to."""
        self.steps_of_race = self.interleaving.steps[self.event_number]

    def _clean(self) -> None:
        # The pool does not look at a log that is out of service.
        if self.log.offline_reason is None:
            self.compacted.execute(self.compacted.plan(), stop=self._should_stop)

    def _should_stop(self, _seconds: float) -> bool:
        self.interleaving.step()
        return self.is_stopping

    def _happen(self) -> None:
        self.event.happen(self)
        if self.swaps_before is None:
            self.swaps_before = self.swaps
        self.left_by_crash = self.fs.after_crash(
            Random(self.interleaving.steps[1 - self.event_number]).choice(list(Loss)), Random(1)
        )

    def _note_order(self) -> None:
        if self.interleaving.current == self.event_number and self.swaps_before is None:
            self.swaps_before = self.swaps

    @property
    def pass_error(self) -> BaseException | None:
        return self.interleaving.errors[1 - self.event_number]


class Race:
    """A prepared log, an event, and what a pass alone makes of the log, group by group."""

    def __init__(self, prepared: CompactedLog, event: Event) -> None:
        self.prepared = prepared
        self.event = event
        self.continued: set[str] = set()
        """What was found after a crash, of which each is cleaned once."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.states = self._states(monkeypatch)
            alone = Scene(self.prepared, event, (0,))
            alone._clean = lambda: None  # type: ignore[method-assign]
            alone.play(monkeypatch)
        self.event_steps = alone.steps_of_race or alone.interleaving.steps[1]

    def _states(self, monkeypatch: pytest.MonkeyPatch) -> list[list[Entry]]:
        """The records before the pass, and after each of its swaps."""
        alone = Scene(self.prepared, Event(lambda _scene: None), ())
        states = [entries_of(alone.log)]
        swap = PartitionLog.swap

        def watched_swap(log: PartitionLog, *args: object, **bounds: object) -> None:
            swap(log, *args, **bounds)  # type: ignore[arg-type]
            states.append(entries_of(log))

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "swap", watched_swap)
            alone.play(patch)
        self.pass_steps = alone.interleaving.steps[0]
        return states

    def run(self, *turns: int, event_first: bool = False) -> None:
        """Play one schedule, and check all that must hold then."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            scene = Scene(self.prepared, self.event, turns)
            scene.play(monkeypatch, event_first=event_first)
            try:
                self.check(scene)
            except Exception as error:
                raise AssertionError(
                    f"turns {turns}, event first: {event_first}: {error!r}, "
                    f"the pass: {scene.pass_error!r}"
                ) from error

    def check(self, scene: Scene) -> None:
        event_error = scene.interleaving.errors[scene.event_number]
        if event_error is not None:
            raise event_error
        assert scene.pass_error is None or isinstance(scene.pass_error, HARMLESS)
        assert not scene.failures
        if self.event.forbids_swaps:
            assert scene.swaps == scene.swaps_before
        if self.event.happen is _delete_topic:
            assert scene.fs.list("data") == []
            return
        self._check_log(scene, scene.log, [scene.swaps])
        names = scene.compacted.files()
        assert not [name for name in names if name.endswith(".cleaned")]
        assert len([name for name in names if name.endswith(".log")]) == len(scene.log.segments)
        self._check_crash(scene)
        self._check_that_it_goes_on(scene)

    def _check_log(self, scene: Scene, log: PartitionLog, swaps: Sequence[int]) -> None:
        entries = entries_of(log)
        if self.event.moves_groups:
            assert entries in [self._left(scene, state) for state in self._states_by_bound()]
        else:
            assert entries in [self._left(scene, self.states[number]) for number in swaps]
        for offset in range(log.log_start_offset, log.log_end_offset + 1, 4):
            seen = entries_of(log, offset)
            assert seen == [entry for entry in entries if entry[0] >= offset]

    def _left(self, scene: Scene, state: Sequence[Entry]) -> list[Entry]:
        return [*self.event.left_of(state), *scene.appended]

    def _states_by_bound(self) -> Iterator[list[Entry]]:
        """What is cleaned up to some offset, and behind it as it was."""
        before, after = self.states[0], self.states[-1]
        for bound in range(before[-1][0] + 2):
            yield [
                *(entry for entry in after if entry[0] < bound),
                *(entry for entry in before if entry[0] >= bound),
            ]

    def _check_crash(self, scene: Scene) -> None:
        """The pass was in its middle, with staged files, and never goes on."""
        assert scene.left_by_crash is not None
        assert scene.swaps_before is not None
        log = scene.open(scene.left_by_crash, self.event.config)
        # A commit may have been under way beside an event that waits for none.
        self._check_log(scene, log, range(scene.swaps_before, scene.swaps + 1))

    def _check_that_it_goes_on(self, scene: Scene) -> None:
        """The log is found again after a crash, takes records, and is cleaned as if nothing was."""
        compacted, expected = scene.compacted, entries_of(scene.log)
        compacted.fs = scene.fs.after_crash(Loss.EVERYTHING, Random(0))
        compacted.log = scene.open(compacted.fs, RACE_CONFIG)
        assert entries_of(compacted.log) == expected
        found = compacted.log
        sizes = [(segment.base_offset, segment.size) for segment in found.segments]
        state = repr((expected, found.clean_offset, found.log_start_offset, sizes))
        if state in self.continued:
            return
        self.continued.add(state)
        compacted.append_segment((b"a", b"later"), (b"l", b"later"))
        expected = entries_of(compacted.log)
        compacted.clean_until_idle()
        if any(header.is_transactional for header in self.prepared.headers()):
            # What a truncation has left undecided stays as it is.
            return
        assert compacted.log.clean_offset == compacted.log.log_end_offset
        assert last_values(entries_of(compacted.log)) == last_values(expected)
        live = [key for _offset, key, _value in entries_of(compacted.log)]
        assert len(live) == len(set(live))


def entries_of(log: PartitionLog, offset: int | None = None) -> list[Entry]:
    return [(record.offset, record.key, record.value) for record in records_of(log, offset)]


def last_values(entries: Sequence[Entry]) -> dict[bytes | None, bytes]:
    values = {key: value for _offset, key, value in entries}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("log", LOGS)
def test_whatever_happens_at_any_step_of_a_pass_loses_and_resurrects_no_record(
    log: str, event: str
) -> None:
    race = Race(LOGS[log](), EVENTS[event])
    assert len(race.states) > 3
    assert race.pass_steps > 60

    for step in range(1, race.pass_steps + 1, 1 if log == "uncleaned" else STRIDE):
        race.run(step)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("log", LOGS)
def test_a_pass_at_any_step_of_what_happens_loses_and_resurrects_no_record(
    log: str, event: str
) -> None:
    """The pass is planned in the middle of it, too."""
    race = Race(LOGS[log](), EVENTS[event])

    for step in range(1, race.event_steps + 1):
        race.run(step, event_first=True)


@pytest.mark.parametrize("event", EVENTS)
def test_a_pass_that_goes_on_in_the_middle_of_what_happens_loses_and_resurrects_no_record(
    event: str,
) -> None:
    race = Race(uncleaned_log(), EVENTS[event])
    random = Random(event)

    for _ in range(min(SAMPLES, race.event_steps * 40)):
        race.run(random.randint(1, race.pass_steps), random.randint(1, max(race.event_steps, 1)))
