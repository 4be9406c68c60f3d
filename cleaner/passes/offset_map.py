"""The offset map of a pass: key hash -> last offset, 24 bytes per entry.

`OffsetMap` itself is compiled and lives in `cleaner/kernel/kernel.pyx`; `cleaner/passes/mark.py` fills
it. This module computes its memory.
"""

from __future__ import annotations

import math

from cleaner.kernel.kernel import SLOT_BYTES, OffsetMap

__all__ = ["SLOT_BYTES", "OffsetMap", "memory_bytes_for"]

_SPILL_SLOTS = 1024
"""Slots after the last home slot, `KP_SPILL_MAX` in offset_slots.h."""


def memory_bytes_for(keys: int, *, load_factor: float = 0.9) -> int:
    """Returns the memory of a map for `keys` keys: 27 bytes per key and 24 KiB at the default load."""
    homes = math.ceil(keys / load_factor) + 1
    # Half of a small map is spill.
    return (homes + min(homes, _SPILL_SLOTS)) * SLOT_BYTES
