"""Produces at a given rate, whether the answers are early or late (no coordinated omission)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import quantiles

from bench.base.connection import Connection


@dataclass(slots=True)
class PacedProduces:
    """What a thread sends and how long the answers take, from the moment when each was due."""

    connection: Connection
    frame: bytes
    a_second: int
    taken: list[tuple[float, float]] = field(default_factory=list)
    """When each produce was due, and the seconds until its answer."""
    _waiting: deque[float] = field(default_factory=deque)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Produce until the end of the block, and wait for the last answers."""
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            produces = thread.submit(self._run, is_over)
            try:
                yield
            finally:
                is_over.set()
            produces.result()

    def percentile_ms(self, percentile: int, *, since: float, until: float) -> float:
        """Returns a percentile of those that were due between two moments, in milliseconds."""
        seconds = [took for due, took in self.taken if since <= due < until]
        return 1e3 * quantiles(seconds, n=100)[percentile - 1]

    def _run(self, is_over: threading.Event) -> None:
        started, number = time.perf_counter(), 0
        while not is_over.is_set():
            due = started + number / self.a_second
            while (left := due - time.perf_counter()) > 0 or self.connection.has_answer_within(0):
                if left <= 0 or self.connection.has_answer_within(left):
                    self._receive()
            self.connection.send(self.frame)
            self._waiting.append(due)
            number += 1
        while self._waiting:
            self._receive()

    def _receive(self) -> None:
        self.connection.receive()
        due = self._waiting.popleft()
        self.taken.append((due, time.perf_counter() - due))
