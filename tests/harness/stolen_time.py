"""Processor time that other guests of the machine's host have taken: a virtual machine's `steal`.

The kernel counts it as processor time of the thread that ran, so a call of 1 ms may seem to take 100 ms.
It is known for all processors together, in steps of 10 ms, so what is subtracted is an upper bound.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
REFRESH_SECONDS = 0.01
STEAL_AT = 8
"""The column of the first line: cpu, user, nice, system, idle, iowait, irq, softirq, steal."""


class StolenTime:
    """How much was stolen since a call began. One thread; reading costs 20 us, so it is done rarely."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._before_s = self._read()
        self._read_at_s = time.monotonic()

    def call_begins(self) -> None:
        """Note that a call begins whose time may be measured."""
        now_s = time.monotonic()
        if now_s - self._read_at_s >= REFRESH_SECONDS:
            self._before_s, self._read_at_s = self._read(), now_s

    def seconds(self) -> float:
        """Returns what was stolen since the last call began, or up to 10 ms before."""
        return self._read() - self._before_s

    def _read(self) -> float:
        try:
            line = self._stat.read_bytes().partition(b"\n")[0]
        except OSError:
            return 0.0  # Not Linux: nothing is known to be stolen.
        fields = line.split()
        return int(fields[STEAL_AT]) / self._ticks_per_second if len(fields) > STEAL_AT else 0.0
