"""An erasure with what the last look has found, and the facts that follow from both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from server.erasure.erasure import ErasedPartition, Erasure
from server.erasure.needs import Forecast, Holder, Need, Next, Risk, Tombstone, risk_of
from server.erasure.proofs import LogProof
from server.erasure.state_table import ErasureState
from server.topics.topic import Topic
from storage.log.log import PartitionLog
from storage.segment.segment import Segment


@dataclass(slots=True)
class Tracked:
    """An erasure, and what the last look has found."""

    erasure: Erasure
    needs: tuple[Need, ...] = ()
    """By partition."""
    kept: tuple[Holder, ...] = ()
    """The files that are left, or why the last look failed."""
    forecast: Forecast = field(default_factory=lambda: Forecast(earliest_ms=0, is_open=True))
    proofs: dict[int, LogProof] = field(default_factory=dict)
    """By partition, for the state that it is in."""
    tombstones: dict[int, tuple[tuple[Segment, ...], Tombstone]] = field(default_factory=dict)
    """By partition, with the segments of the log when it was looked for."""
    stored_bytes: int = 0
    """The size of a final erasure as it is stored."""
    rests_for: int = 0
    """Rounds of looks that it leaves out."""

    @property
    def holders(self) -> list[Holder]:
        """What it waits for now."""
        return [each.holder for each in self.needs if each.holder is not None] + list(self.kept)

    def risk(self, now_ms: int) -> Risk:
        """Returns whether its deadline is at risk."""
        erasure = self.erasure
        return risk_of(
            self.forecast,
            requested_ms=erasure.requested_ms,
            deadline_ms=erasure.deadline_ms,
            now_ms=now_ms,
            is_final=erasure.state.is_final,
        )


def bound_of(erasure: Erasure, number: int) -> int:
    """Returns the offset below which a partition is read for an erasure in its state."""
    part = erasure.partitions[number]
    takes_tombstone = erasure.state is ErasureState.ERASED and part.has_tombstone
    return part.offset + 1 if takes_tombstone else part.offset


def key_hash_in(erasure: Erasure, topic: Topic, number: int) -> bytes:
    log = topic.partitions[number]
    assert isinstance(log, PartitionLog)
    found = erasure.key_hash(log.identity.hash_key)
    assert found is not None, "a log is read only under the secret of the request"
    return found


def is_put_back(part: ErasedPartition, log: PartitionLog) -> bool:
    """Returns whether a log ends before what it had at the request: files of an older state were put
    back, because all of that was durable."""
    return log.log_end_offset < part.offset + part.has_tombstone


def are_records_back(tracked: Tracked, topic: Topic) -> bool:
    """Returns whether records that were certified as gone are, or may be, in the log again."""
    parts = tracked.erasure.partitions
    for part, log in zip(parts, topic.partitions, strict=False):
        if isinstance(log, PartitionLog) and is_put_back(part, log):
            return True
    return any(
        proof.traces.first_offset(key_hash_in(tracked.erasure, topic, number))
        < parts[number].offset
        for number, proof in tracked.proofs.items()
    )


def oldest_final(tracked: Iterable[Tracked], *, count_max: int, bytes_max: int) -> list[Erasure]:
    """Returns the final erasures that exceed a bound; the one that ended last never does.

    Args:
        tracked: the oldest first.
    """
    final = [each for each in tracked if each.erasure.state.is_final]
    final.sort(key=lambda each: each.erasure.ended_ms or 0)
    final.reverse()
    sizes = accumulate(each.stored_bytes for each in final)
    return [
        each.erasure
        for number, (each, size) in enumerate(zip(final, sizes, strict=True))
        if number > 0 and (number >= count_max or size > bytes_max)
    ]


def only_waits(tracked: Tracked) -> bool:
    """Returns whether an erasure waits for nothing but the time of its tombstones."""
    return tracked.erasure.state is ErasureState.ERASED and all(
        need.next is Next.NOTHING or (need.holder is not None and need.holder.until_ms is not None)
        for need in tracked.needs
    )
