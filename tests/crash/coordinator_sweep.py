"""Every state that a crash may leave of a coordinator's log, and whether its answers still hold.

A test plays a history over a disk that loses unsynced data, and knows at any moment which answers were
sent, and which will have been sent when the current step is over. After each operation of the disk the
machine "loses power" in two ways. What a start then reads back must be one of the two.

KOMPAKT_CRASH_STATES sets how many states are tried: one for 50 of the log's own, which take less time.
KOMPAKT_CRASH_SEED is where the seeds begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import pytest

from storage.log.log import PartitionLog
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "4000")) // 50
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))
STEPS, STATES_EACH = 30, 100
FAULT_SEEDS = range(1, 30)

Told = TypeVar("Told")
"""What clients have heard of the coordinator."""


class WrongState(AssertionError):
    """A crash state after which an answer no longer held."""


@dataclass(frozen=True, slots=True)
class CrashState(Generic[Told]):
    """A disk after a crash, and what may be on it: as before, or as after the step under way."""

    disk: MemoryFileSystem
    before: Told
    after: Told
    what: str


class CrashStates(Generic[Told]):
    """What crashes of `disk` leave from now on; `told` gives both sides of the step under way."""

    def __init__(
        self, disk: MemoryFileSystem, seed: int, told: Callable[[], tuple[Told, Told]]
    ) -> None:
        self.found: list[CrashState[Told]] = []
        self._step = ""
        self._disk, self._told = disk, told
        self._random = Random(seed + 1_000_003)
        disk.on_operation = self._crash

    def steps(self, random: Random, kinds: Sequence[str]) -> Iterator[str]:
        """What to do, a step at a time: one of `kinds` or, now and then, "clean"."""
        for number in range(STEPS):
            self._step = "clean" if number % 12 == 11 else random.choice(kinds)
            yield self._step

    def _crash(self, action: str, path: str) -> None:
        for loss in (Loss.TORN, self._random.choice(tuple(Loss))):
            left = self._disk.after_crash(loss, self._random)
            what = f"{self._step}: {loss.name} after {action} {path}"
            self.found.append(CrashState(left, *self._told(), what))


@dataclass(frozen=True, slots=True)
class Sweep(Generic[Told]):
    """Histories by their seeds, and how a start reads back the answered state."""

    history: Callable[[int], Awaitable[CrashStates[Told]]]
    found_on: Callable[[MemoryFileSystem], Awaitable[Told]]

    async def run(self, seed: int, states_max: int = sys.maxsize) -> int:
        """Start from the crash states of one history. Returns how many there were.

        Raises:
            WrongState: what a start read back from one was neither answer.
        """
        states = (await self.history(seed)).found
        assert any("clean" in state.what for state in states), "no crash fell into a pass"
        if len(states) > states_max:
            states = Random(seed).sample(states, states_max)
        for number, state in enumerate(states):
            text = f"seed {seed}, state {number}: {state.what}"
            try:
                found = await self.found_on(state.disk)
            except AssertionError as error:
                raise WrongState(f"{text}: {error}") from error
            if found not in (state.before, state.after):
                raise WrongState(text)
        return len(states)

    async def run_all(self, title: str, capsys: pytest.CaptureFixture[str]) -> None:
        """As many states as were asked for."""
        states, seed = 0, SEED
        while states < STATES:
            states += await self.run(seed, min(STATES - states, STATES_EACH))
            seed += 1
        with capsys.disabled():
            sys.stdout.write(f"\n{states} crash states of {title}, seeds {SEED} to {seed - 1}\n")

    async def catches_answers_before_the_sync(self, patch: pytest.MonkeyPatch) -> None:
        """Acknowledge everything before it is synced: the histories show it."""

        def careless(self: SyncAtOnce, log: PartitionLog) -> None:
            log.advance_high_watermark(log.log_end_offset)

        patch.setattr(SyncAtOnce, "appended", careless)
        assert await self.first_wrong_state()

    async def first_wrong_state(self) -> str:
        """Returns a state that shows a seeded fault; empty if no history has one.

        All states of many histories: ids and times make them differ from run to run, and a sample may
        leave out the few that show a fault.
        """
        for seed in FAULT_SEEDS:
            try:
                await self.run(seed)
            except WrongState as wrong:
                return str(wrong)
        return ""
