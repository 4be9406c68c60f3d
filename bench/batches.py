"""Record batches for load: built once, sent many times."""

from __future__ import annotations

import random

from protocol.record_batch import Record, build_batch

KEY_BYTES = 16


def keyed_batch(*, records: int, value_bytes: int, keys: int, seed: int) -> bytes:
    """An uncompressed batch of records with random keys out of `keys` and incompressible values."""
    source = random.Random(seed)
    made = [
        Record(
            offset=index,
            timestamp=1_700_000_000_000 + index,
            key=f"key-{source.randrange(keys):012d}".encode(),
            value=source.randbytes(value_bytes),
            headers=(),
        )
        for index in range(records)
    ]
    return bytes(build_batch(made))
