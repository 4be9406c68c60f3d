"""Counts unexpected failures of background work, by the kind of work.

The counts belong to the process: such a failure is a bug in the code, not an error of a client, and
operators should report it.
"""

from __future__ import annotations

import threading
from collections import Counter


class Mistakes:
    """Counts of unexpected failures. Any thread."""

    __slots__ = ("_by_work", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One entry exists from the start, so that a scrape shows the metric before anything fails.
        self._by_work: Counter[str] = Counter({"background job": 0})

    def count(self, work: str) -> None:
        """Count one failure of this kind of work."""
        with self._lock:
            self._by_work[work] += 1

    def by_work(self) -> dict[str, int]:
        """Returns the numbers of failures by kind of work."""
        with self._lock:
            return dict(self._by_work)


MISTAKES = Mistakes()
"""The counts of this process."""
