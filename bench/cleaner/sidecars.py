"""How long it takes to make a log's key sidecars: its bytes are read, its keys hashed and written.

The probe for everything that reads a whole log.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.cleaner.cleaned_log import fresh_copy, index_at


def seconds_of_indexing(source: Path) -> float:
    """Make the key sidecars of a copy of a log. Returns how long that took."""
    with fresh_copy(source) as copy:
        started = time.perf_counter()
        index_at(copy)
        return time.perf_counter() - started
