"""Finds records whose keys say the same in other bytes, such as by two versions of their schema.

A log keeps the last record for each key's bytes. A table has one row for what a key says, and that is
its last record: all others are outranked. A record is 24 bytes here, and no key is held.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.export.last_records import Offsets

Places = np.ndarray[tuple[int], np.dtype[np.void]]
PLACE = np.dtype([("high", np.uint64), ("low", np.uint64), ("offset", np.int64)])
"""The halves of the hash of what a key says, and the offset of its record."""


class KeyPlaces:
    """Where the keys of one partition are. For one thread."""

    __slots__ = ("_places", "count")

    def __init__(self) -> None:
        self._places: list[Places] = []
        self.count = 0

    def add(self, identities: pa.BinaryArray, offsets: pa.Int64Array) -> None:
        """Add records.

        Args:
            identities: bytes that are equal exactly if two keys say the same.
        """
        digests = b"".join(xxhash.xxh3_128_digest(each.as_buffer()) for each in identities)
        hashes = np.frombuffer(digests, np.dtype(">u8")).reshape(-1, 2)
        places = np.empty(len(offsets), PLACE)
        places["high"], places["low"] = hashes[:, 0], hashes[:, 1]
        places["offset"] = offsets.to_numpy()
        self._places.append(places)
        self.count += len(places)

    def all(self) -> list[Places]:
        """Returns the places, in blocks."""
        return self._places


def outranked(parts: Iterable[KeyPlaces]) -> Offsets:
    """Returns the offsets of all records whose key has a later one, in order."""
    blocks = [block for each in parts for block in each.all()]
    if not blocks:
        return np.empty(0, np.int64)
    places = np.concatenate(blocks)
    places = places[np.lexsort((places["offset"], places["low"], places["high"]))]
    before, after = places[:-1], places[1:]
    is_same = (before["high"] == after["high"]) & (before["low"] == after["low"])
    return np.sort(before["offset"][is_same])
