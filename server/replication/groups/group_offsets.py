"""Which committed offsets of a source's group are written here: pure, for one partition at a time.

    source's commit    here                                written
    at most the end    the same                            nothing
    at most the end    anything else                       the source's, with its epoch and metadata
    beyond the end     nothing, or at most the end         nothing: it waits for the records
    beyond the end     beyond the end (a cut)              the end

"The end" is the mirror's synced end: a crash takes back what is above it. The source's commit also
replaces a later one, because an operator may have moved the group back there. Nothing here asks
whether the topic is still a mirror, or whether the group has members here: `group_sync.py` does, right
before it writes.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from protocol.wire.numbers import Epoch, Offset

UNKNOWN_EPOCH = Epoch(-1)


class GroupRefused(Exception):
    """The source, or this broker, refuses one group; the message says why."""


class Commit(NamedTuple):
    """A committed offset."""

    offset: Offset
    leader_epoch: Epoch
    """The epoch of the record before the offset; -1 if the client did not say it."""
    metadata: str


class Waits(enum.Enum):
    """What else may follow from a source's commit."""

    NOTHING = enum.auto()
    """It is here already."""
    FOR_RECORDS = enum.auto()
    """The mirror does not have the records up to it yet."""


def commit_to_write(source: Commit, here: Commit | None, end: Offset) -> Commit | Waits:
    """Returns what to commit here for a source's commit.

    Args:
        here: what the group has committed here; None if nothing.
        end: the mirror's synced end.
    """
    if source.offset <= end:
        return Waits.NOTHING if source == here else source
    if here is not None and here.offset > end:
        return clamped(source, end)
    return Waits.FOR_RECORDS


def clamped(source: Commit, end: Offset) -> Commit:
    """Returns the commit that a group continues from if no more records come: everything before the
    mirror's end is consumed. The epoch belongs to a record that is not here."""
    return source._replace(offset=end, leader_epoch=UNKNOWN_EPOCH)
