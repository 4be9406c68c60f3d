"""Adds keys to a sketch of distinct keys (HyperLogLog); `cleaner/keys/sketch.py` specifies it.

registers = new_sketch()
for block in sidecar.blocks():
    entries += add_keys(registers, block.data, base_offset=..., start_offset=..., end_offset=...)
distinct(registers)
"""

from typing_extensions import Buffer

def add_keys(
    registers: bytearray, block: Buffer, *, base_offset: int, start_offset: int, end_offset: int
) -> int:
    """Add the keys of a block's entries with offsets in [start_offset, end_offset) to a sketch.

    Adding a key again changes nothing. Runs without the interpreter's lock; the caller owns the
    registers. Returns the number of these entries.

    Args:
        registers: one byte each; their number is a power of two, from 16 to 65,536.
        block: a block of a key sidecar, whose checksum was compared.
        base_offset: of the sidecar's segment.

    Raises:
        KeysDiffer: the block's counts differ from its size; nothing was added.
        ValueError: a sketch cannot have so many registers.
    """
