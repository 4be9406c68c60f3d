"""Which record of a key is its last value: the one rule, for all that asks. Pure.

A record's rank is its version and its offset. The higher version wins, and the higher offset if both are
equal; where the topic's strategy gives records no version, all have the same. The kernel has the same
rule in compiled form (`cleaner/kernel/versions.pxi`, `offset_slots.h`).

docs/design/strategies.md says what a version is worth, and what passes do differently with one.

Source: KIP-280.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.records.record import Headers
from storage.formats.compaction_strategy import CompactionStrategy, Ranking

NO_VERSION = -(2**63)
"""The version of a record without one: below all others."""
VERSION = struct.Struct(">q")


class Rank(NamedTuple):
    """By which records of one key are compared."""

    version: int
    offset: int


def wins(one: Rank, over: Rank) -> bool:
    """Returns whether the record of rank `one` is a later value of its key than the other."""
    return one > over


def version_of(strategy: CompactionStrategy, *, timestamp: int, headers: Headers) -> int:
    """Returns a record's version; 0 if the strategy gives none.

    Args:
        timestamp: the record's, in ms; with LogAppendTime that of its batch.
        headers: the record's headers in their order.
    """
    match strategy.ranking:
        case Ranking.OFFSET:
            return 0
        case Ranking.TIMESTAMP:
            return timestamp
        case Ranking.HEADER:
            values = [value for name, value in headers if name == strategy.header]
            return _as_version(values[-1]) if values else NO_VERSION


def _as_version(value: bytes | None) -> int:
    if value is None or len(value) != VERSION.size:
        return NO_VERSION
    (version,) = VERSION.unpack(value)
    return int(version)
