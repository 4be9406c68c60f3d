"""The offset map of a pass: key hash -> last offset, 24 bytes an entry.

`OffsetMap` itself is compiled and lives in `cleaner/kernel.pyx`; `cleaner/mark.py` fills it. Here is
how much memory it takes.
"""

from __future__ import annotations

import math

from cleaner.kernel import SLOT_BYTES, OffsetMap

__all__ = ["SLOT_BYTES", "OffsetMap", "memory_bytes_for"]

_SPILL_SLOTS = 1024
"""Slots behind the last home, `KP_SPILL_MAX` of offset_slots.h."""


def memory_bytes_for(keys: int, *, load_factor: float = 0.9) -> int:
    """Memory of a map that takes `keys` keys: 27 bytes a key and 24 KiB at the usual load."""
    homes = math.ceil(keys / load_factor) + 1
    # Half of a small map is spill.
    return (homes + min(homes, _SPILL_SLOTS)) * SLOT_BYTES
