"""One pass and one event over one log, interleaved by a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from storage.files.errors import StorageError
from storage.formats.log_config import LogConfig
from storage.log.cleaning import LogCleaning
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from tests.cleaner.race_logs import RACE_CONFIG
from tests.harness.compacted_log import CompactedLog, identity, opening
from tests.harness.faults import Faults
from tests.harness.interleaving import Interleaving, ScheduledLock
from tests.harness.log_builder import KeyValue
from tests.harness.memory_fs import Loss, MemoryFileSystem

Entry = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a log, and its effect on the log's records."""

    happen: Callable[[Scene], object]
    left_of: Callable[[Sequence[Entry]], list[Entry]] = list
    config: LogConfig = RACE_CONFIG
    forbids_swaps: bool = True
    """Whether it forbids later swaps of a pass that was planned before it."""
    moves_groups: bool = False
    """Whether the pass continues, but with different groups of segments."""


class SteppedFaults(Faults):
    """Injects no faults, but calls back before every operation on the disk."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    def check(self, action: str, path: str, size: int = 0) -> None:
        self._step()
        super().check(action, path, size)


class Scene:
    """One log, one pass over it, one event, and their schedule."""

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
        self.compacted.sidecars = prepared.sidecars
        self.appended: list[Entry] = []
        self.is_stopping = False
        self.swaps = 0
        """Number of groups swapped in."""
        self.swaps_before: int | None = None
        """Number of groups that were swapped in when the event took effect."""
        self.steps_of_race = 0
        self.left_by_crash: MemoryFileSystem | None = None
        """The disk after a power failure directly after the event."""

    def open(self, fs: MemoryFileSystem, config: LogConfig) -> PartitionLog:
        to_open = opening(now_ms=self.compacted.now_ms, leader_epoch=7)
        return open_log(fs, identity(), config, replace(to_open, on_failure=self.failures.append))

    def append(self, *pairs: KeyValue) -> None:
        base_offset = self.compacted.append(*pairs).base_offset
        self.appended += [(base_offset + number, *pair) for number, pair in enumerate(pairs)]

    def play(self, monkeypatch: pytest.MonkeyPatch, *, event_first: bool = False) -> None:
        """Run the pass and the event by the schedule."""
        swap = LogCleaning.swap

        def counted_swap(cleaning: LogCleaning, *args: object, **bounds: object) -> None:
            swap(cleaning, *args, **bounds)  # type: ignore[arg-type]
            self.swaps += 1

        monkeypatch.setattr(LogCleaning, "swap", counted_swap)
        monkeypatch.setattr(self.log._commits, "commit_lock", self.lock)
        self.fs.faults = SteppedFaults(self.interleaving.step)
        self.lock.on_acquired = self._note_order
        works = (self._happen, self._clean) if event_first else (self._clean, self._happen)
        self.event_number = works.index(self._happen)
        self.interleaving.run(*works)
        self.fs.faults = Faults()

    def race_is_over(self) -> None:
        """Called by an event when its remaining steps no longer affect the race."""
        self.steps_of_race = self.interleaving.steps[self.event_number]

    def _clean(self) -> None:
        # The pool does not look at offline logs.
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
