"""Record batches as load: built once, sent many times."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

from protocol.records.batch_header import seal
from protocol.records.record_batch import Codec, Record, build_batch

SHORT_DELTAS = 64
"""The first records of a batch have an offset delta of one byte, those up to 8192 of two bytes."""


def keyed_batch(*, records: int, value_bytes: int, keys: int, seed: int) -> bytes:
    """Build an uncompressed batch with random keys out of `keys` and incompressible values."""
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


def tombstone_batch(*, records: int, value_bytes: int, keys: int, seed: int, codec: Codec) -> bytes:
    """Build a batch with random keys out of `keys`; a tenth are tombstones, half of a value is noise."""
    source = random.Random(seed)
    noise = value_bytes // 2
    made = [
        Record(
            offset=index,
            timestamp=1_700_000_000_000 + index,
            key=b"key-%012d" % source.randrange(keys),
            value=None if source.random() < 0.1 else source.randbytes(noise) + bytes(noise),
            headers=(),
        )
        for index in range(records)
    ]
    return bytes(build_batch(made, codec=codec))


class NumberedBatch:
    """A batch in which only the keys change, eight bytes each: it makes millions of keys a second.

    Its records have two strides, so that one byte of all keys is one slice.
    """

    def __init__(self, *, records: int, value_bytes: int) -> None:
        assert SHORT_DELTAS < records <= 8192
        source = random.Random(records)
        markers = [source.randbytes(8) for _ in range(records)]
        made = [
            Record(offset=index, timestamp=0, key=key, value=source.randbytes(value_bytes))
            for index, key in enumerate(markers)
        ]
        self._records = records
        self._batch = bytearray(build_batch(made))
        places = [self._batch.index(marker) for marker in markers]
        self._runs = (places[:SHORT_DELTAS], places[SHORT_DELTAS:])

    def with_keys(self, numbers: Sequence[int]) -> bytes:
        """Returns the batch with these numbers as the keys of its records."""
        assert len(numbers) == self._records
        keys = array("Q", numbers).tobytes()
        for places in self._runs:
            stride, size = places[1] - places[0], len(places) * 8
            for byte in range(8):
                target = slice(places[0] + byte, places[-1] + byte + 1, stride)
                self._batch[target] = keys[byte:size:8]
            keys = keys[size:]
        seal(self._batch)
        return bytes(self._batch)
