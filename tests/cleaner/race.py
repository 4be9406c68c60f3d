"""Runs the schedules of a pass and an event over one log, and checks what must hold after each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from cleaner.pacing.meter import CleaningAborted
from storage.files.errors import LogOffline, SegmentRemoved, SwapRefused
from storage.log.cleaning import LogCleaning
from storage.log.log import PartitionLog
from tests.cleaner.race_events import delete_topic
from tests.cleaner.race_logs import RACE_CONFIG
from tests.cleaner.race_scene import Entry, Event, Scene
from tests.harness.compacted_log import CompactedLog, records_of
from tests.harness.memory_fs import Loss

HARMLESS = (CleaningAborted, SwapRefused, SegmentRemoved, LogOffline)
"""The errors with which an event may end a pass; the pool puts no partition in quarantine for them."""


class Race:
    """A prepared log, an event, and the result of a pass without the event, group by group."""

    def __init__(self, prepared: CompactedLog, event: Event) -> None:
        self.prepared = prepared
        self.event = event
        self.continued: set[str] = set()
        """The states found after a crash; each is cleaned only once."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.states = self._states(monkeypatch)
            alone = Scene(self.prepared, event, (0,))
            alone._clean = lambda: None  # type: ignore[method-assign]
            alone.play(monkeypatch)
        self.event_steps = alone.steps_of_race or alone.interleaving.steps[1]

    def _states(self, monkeypatch: pytest.MonkeyPatch) -> list[list[Entry]]:
        """Returns the records before the pass, and after each of its swaps."""
        alone = Scene(self.prepared, Event(lambda _scene: None), ())
        states = [entries_of(alone.log)]
        swap = LogCleaning.swap

        def watched_swap(cleaning: LogCleaning, *args: object, **bounds: object) -> None:
            swap(cleaning, *args, **bounds)  # type: ignore[arg-type]
            states.append(entries_of(alone.log))

        with monkeypatch.context() as patch:
            patch.setattr(LogCleaning, "swap", watched_swap)
            alone.play(patch)
        self.pass_steps = alone.interleaving.steps[0]
        return states

    def run(self, *turns: int, event_first: bool = False) -> None:
        """Run one schedule, and check everything that must hold afterwards."""
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
        if self.event.happen is delete_topic:
            assert scene.fs.list("data") == []
            return
        self._check_log(scene, scene.log, [scene.swaps])
        names = scene.compacted.files()
        assert not [name for name in names if name.endswith(".cleaned")]
        assert len([name for name in names if name.endswith(".log")]) == len(scene.log.segments)
        self._check_crash(scene)
        self._check_still_works(scene)

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
        """Returns the states that are cleaned up to some offset and unchanged above it."""
        before, after = self.states[0], self.states[-1]
        for bound in range(before[-1][0] + 2):
            yield [
                *(entry for entry in after if entry[0] < bound),
                *(entry for entry in before if entry[0] >= bound),
            ]

    def _check_crash(self, scene: Scene) -> None:
        """Check a crash in the middle of the pass, with staged files."""
        assert scene.left_by_crash is not None
        assert scene.swaps_before is not None
        log = scene.open(scene.left_by_crash, self.event.config)
        # A commit may have been running, because the event does not wait for commits.
        self._check_log(scene, log, range(scene.swaps_before, scene.swaps + 1))

    def _check_still_works(self, scene: Scene) -> None:
        """Check that the log can be opened after the crash, takes records, and can be cleaned."""
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
            # Transactions that a truncation has left undecided stay as they are.
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
