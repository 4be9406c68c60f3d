"""When the keys themselves prove that records are superseded (`compaction.compare.keys`). Pure.

A pass distinguishes keys by a hash of 128 bits. The proof compares the keys: each marked record needs a
record of the same key, byte for byte, that outranks it. `cleaner/kernel/key_proof.pyx` is this rule for
whole segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Unproven(NamedTuple):
    """Marked records whose keys have no record that outranks them."""

    keys: int
    first_offset: int
    """Of their last marked records, the first one's; -1 if there is none."""


class KeyAt(NamedTuple):
    """A record, as far as the proof needs it."""

    key: bytes
    rank: int
    """Its offset; where records have versions, a winner's is greater than all offsets."""


def unproven(marked: Iterable[KeyAt], winners: Iterable[KeyAt]) -> Unproven:
    """Returns what the winners do not prove of the marked records."""
    last_marked: dict[bytes, int] = {}
    for record in marked:
        last_marked[record.key] = max(record.rank, last_marked.get(record.key, -1))
    newest: dict[bytes, int] = {}
    for record in winners:
        newest[record.key] = max(record.rank, newest.get(record.key, -1))
    open_ = [offset for key, offset in last_marked.items() if newest.get(key, -1) <= offset]
    return Unproven(len(open_), min(open_, default=-1))
