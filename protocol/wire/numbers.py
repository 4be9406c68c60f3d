"""Kinds of numbers that must not be mixed up: a type checker refuses one kind for another.

    segment file   | batch | batch | batch | ...
    Position       0       81      162           bytes from the start of the file
    Offset         1200    1204    1209          records of the partition, from its first one on

At run time they are plain ints, and arithmetic gives plain ints. Say the kind where a value enters, in
parameters and fields. A call of the type, as in `Offset(last_offset + 1)`, takes 0.07 microseconds:
do not make it in a loop over records.
"""

from __future__ import annotations

from typing import NewType

Offset = NewType("Offset", int)
"""The number of a record in its partition. It never changes; cleaning leaves holes."""

OFFSET_MAX = Offset((1 << 63) - 1)
"""Past all offsets."""

RelativeOffset = NewType("RelativeOffset", int)
"""An offset minus the base offset of its segment, as the indexes hold it."""

Position = NewType("Position", int)
"""The number of bytes before a byte in a segment file."""

Epoch = NewType("Epoch", int)
"""The term of a leader, a producer or a coordinator: who has a later one fences all earlier ones."""

ProducerId = NewType("ProducerId", int)
"""The number that the broker gave to an idempotent producer; -1: the producer is not idempotent."""
