"""Runs two pieces of work in two threads, exactly one at a time, by a schedule.

Both call `step` before everything that the other could interrupt. The schedule says how many steps each
turn takes: with `(5, 3)` the first work does five steps, the second three, then the first the rest. So
each interleaving with a given number of turns is one tuple of numbers, and that tuple reproduces a
failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

PATIENCE_SECONDS = 300.0
FOR_EVER = 1 << 60


class Stuck(AssertionError):
    """Both works wait for each other, or one waits for something that is not scheduled."""


class Interleaving:
    """Runs two works in turns. Can be used once."""

    def __init__(self, turns: Iterable[int]) -> None:
        self._turns = iter(turns)
        self._condition = threading.Condition()
        self._local = threading.local()
        self._active = 0
        self._left = next(self._turns, FOR_EVER)
        self._has_ended = [False, False]
        self.steps = [0, 0]
        """Number of steps that each work has done."""
        self.errors: list[BaseException | None] = [None, None]
        """The exception of each work."""

    def run(self, first: Callable[[], object], second: Callable[[], object]) -> None:
        """Run both works to their ends; the first one begins."""
        threads = [
            threading.Thread(target=self._work, args=(number, work))
            for number, work in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @property
    def current(self) -> int | None:
        """The number of the calling thread's work; None for any other thread."""
        return getattr(self._local, "number", None)

    def step(self) -> None:
        """Allow a switch to the other work here. Does nothing outside of the two works."""
        me = self.current
        if me is None:
            return
        self.steps[me] += 1
        self._left -= 1
        if self._left <= 0:
            self.give_way()

    def give_way(self) -> None:
        """Let the other work continue, and wait for the next turn."""
        me = self.current
        assert me is not None
        with self._condition:
            self._left = next(self._turns, FOR_EVER)
            if not self._has_ended[1 - me]:
                self._hand_to(1 - me)
                self._wait_for_turn(me)

    def has_other_ended(self) -> bool:
        """Returns whether the other work has ended."""
        me = self.current
        return me is None or self._has_ended[1 - me]

    def _work(self, number: int, work: Callable[[], object]) -> None:
        self._local.number = number
        with self._condition:
            self._wait_for_turn(number)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            self.errors[number] = error
        with self._condition:
            self._has_ended[number] = True
            self._left = FOR_EVER
            self._hand_to(1 - number)

    def _hand_to(self, number: int) -> None:
        self._active = number
        self._condition.notify_all()

    def _wait_for_turn(self, number: int) -> None:
        if not self._condition.wait_for(lambda: self._active == number, PATIENCE_SECONDS):
            raise Stuck


class ScheduledLock:
    """A replacement for `threading.Lock`: a work that would have to wait for it gives way."""

    def __init__(self, interleaving: Interleaving) -> None:
        self._interleaving = interleaving
        self._is_held = False
        self.on_acquired: Callable[[], None] = lambda: None
        """Called after each acquisition, by the new holder."""

    def __enter__(self) -> Self:
        while self._is_held:
            if self._interleaving.has_other_ended():
                raise Stuck
            self._interleaving.give_way()
        self._is_held = True
        self.on_acquired()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_held = False
