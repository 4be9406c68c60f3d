"""What to do with a mirror whose log diverges from its source's: nothing, a cut, or a resync. Pure.

    source   epoch 3 ....|  epoch 5 .........        its largest epoch up to 4 is 3, and ends at 100
    mirror   epoch 3 ....|..  epoch 4 ......|        its epoch 3 ends at 120: equal up to 100 at most
                         100

A cut takes everything from there on. If cleaning has removed records below the cut because of records
above it, the cut would lose their keys: then only the source has them, and the log must be copied once
more.

Source: Apache Kafka, AbstractFetcherThread.java (truncation by epochs); KIP-101, KIP-595.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.wire.numbers import Epoch, Offset
from storage.state.leader_epochs import EpochEnd, EpochStart, LeaderEpochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a mirror's log ends, and from where on it may be cut."""

    end: Offset
    epochs: Sequence[EpochStart]
    """The epochs of its records with their first offsets."""
    cut_offset_min: Offset
    """A cut below it would lose keys, because the mirror's own cleaner has removed older records
    (`PartitionLog.cut_offset_min`). It is not below the log's start."""

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of its last record; -1 if it has none."""
        return self.epochs[-1][0] if self.epochs else Epoch(-1)


class Remedy(enum.Enum):
    """What makes a mirror's log equal to its source's again."""

    NOTHING = enum.auto()
    """The logs do not diverge."""
    CUT = enum.auto()
    """Truncate the log to the offset, then compare again."""
    RESYNC = enum.auto()
    """Copy the log once more: a cut at the offset would lose keys."""


def remedy_for(diverging: EpochEnd | None, place: Place) -> tuple[Remedy, Offset]:
    """Returns what to do, and the offset up to which both logs may be equal.

    Args:
        diverging: the source's largest epoch up to the mirror's last one, and where it ends there, as
            OffsetsForLeaderEpoch or Fetch (`DivergingEpoch`) says; -1 as the epoch if it knows none.
            None if the source's answer has no such epoch.
    """
    if diverging is None:
        return Remedy.NOTHING, place.end
    offset = common_end(place, *diverging)
    if offset >= place.end:
        return Remedy.NOTHING, place.end
    if offset < place.cut_offset_min:
        return Remedy.RESYNC, offset
    return Remedy.CUT, offset


def common_end(place: Place, epoch: Epoch, end: Offset) -> Offset:
    """Returns up to where both logs may be equal, if the source's largest epoch up to ours is `epoch`,
    which ends at `end`.

    The next fetch asks again, so the offset may be above the last one in common, never below.
    """
    if epoch < 0:
        return Offset(0)
    _, ours = LeaderEpochs(list(place.epochs)).end_offset(epoch, place.end)
    return Offset(min(end, ours)) if ours >= 0 else end
