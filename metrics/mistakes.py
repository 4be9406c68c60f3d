"""How often background work has failed in a way that nobody expected, by the kind of work.

The counts belong to the process: whatever fails there is a mistake in the code, not of a client, and
whoever looks after the process should report it.
"""

from __future__ import annotations

import threading
from collections import Counter


class Mistakes:
    """Counts of unexpected failures. Any thread."""

    __slots__ = ("_by_work", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One is there from the start, so that a scrape shows the metric before anything fails.
        self._by_work: Counter[str] = Counter({"background job": 0})

    def count(self, work: str) -> None:
        """One more of this kind of work has failed."""
        with self._lock:
            self._by_work[work] += 1

    def by_work(self) -> dict[str, int]:
        """How many there were, by the kind of work."""
        with self._lock:
            return dict(self._by_work)


MISTAKES = Mistakes()
"""Those of this process."""
