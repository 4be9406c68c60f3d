"""Logs as they are at one moment, which a snapshot keeps.

    prepare  before the moment, one log after the other
    begin    the moment: one assignment, however many logs there are
    take     before the first append after the moment, or when the snapshot gets to the log: the active
             segment is rolled, and the producers are copied
    link     in a worker thread: `storage/log/linking.py`
    end      the log is as usual

A pass that is planned between `take` and `end` sees the log's last stable offset of the moment, and
nothing above it. It may remove a record because of a later one that was committed at the moment, but not
because of one that came, or was committed, after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.formats.manifest import UNKNOWN_OFFSET
from storage.state.producer_state import ProducerStates


class MomentLost(Exception):
    """The log is no longer what it was at the moment. A later moment may be taken."""

    def __init__(self, log: str, why: str) -> None:
        super().__init__(f"{log} {why} while its snapshot was being taken")


@dataclass(slots=True)
class Moment:
    """A moment of several logs. It begins in one turn of the loop, for all of them."""

    has_begun: bool = False


@dataclass(slots=True, kw_only=True)
class LogMoment:
    """The moment of one log. The loop's thread prepares, takes and ends it."""

    moment: Moment
    rewrites: int
    """Of the log, when the moment was prepared (`PartitionLog.rewrites`)."""
    end_offset: Offset = UNKNOWN_OFFSET
    """The log's end at the moment; -1 until it was taken."""
    last_stable_offset: Offset = UNKNOWN_OFFSET
    """When the moment was taken; until the end, passes see nothing above it."""
    producers: ProducerStates | None = None
    """The producers at the moment."""
    failure: StorageError | None = None
    """Why it could not be taken."""

    @property
    def is_taken(self) -> bool:
        return self.end_offset != UNKNOWN_OFFSET
