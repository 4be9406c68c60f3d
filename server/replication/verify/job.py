"""One comparison that an operator has started: of a topic, with one part for each partition."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from cleaner.rules.log_comparison import Comparison, Difference, SideSum
from server.replication.source_topics import SourcePartition
from server.replication.verify.comparing import MIRROR, SOURCE, Progress
from server.replication.verify.verdict import Judged, Verdict
from server.runtime.part_state import PartState
from server.runtime.sliced_json import Json, Rows
from storage.log.log import PartitionLog


@dataclass(slots=True, kw_only=True)
class Part:
    """One partition of a job."""

    log: PartitionLog
    source: SourcePartition
    state: PartState = PartState.WAITING
    progress: Progress = field(default_factory=Progress)
    judged: Judged | None = None
    error: str = ""
    keys: dict[int, bytes | None] = field(default_factory=dict)
    """The keys of the listed differences, by their smallest offset."""

    @property
    def by_key(self) -> bool:
        """Whether last values are compared; else all records."""
        return self.source.compacts or self.log.config.is_compacted

    @property
    def verdict(self) -> Verdict:
        """The verdict; a comparison without one leaves it unknown."""
        return Verdict.UNKNOWN if self.judged is None else self.judged.verdict

    def as_json(self) -> Json:
        """Returns the part for programs."""
        progress, partition = self.progress, self.log.topic_partition
        found = progress.found
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "state": self.state,
            "phase": progress.phase,
            "verdict": self.verdict if self.state.is_end else None,
            "reason": self.error if self.judged is None else self.judged.reason,
            "compares": "last values" if self.by_key else "all records",
            "start_offset": progress.start_offset,
            "end_offset": progress.end_offset,
            "parts": progress.parts,
            "rewritten": found.rewritten,
            "source": _side_json(found.sides[SOURCE], progress.read_bytes[SOURCE]),
            "mirror": _side_json(found.sides[MIRROR], progress.read_bytes[MIRROR]),
            "differences": _differences_json(found, self.keys),
        }


@dataclass(slots=True, kw_only=True)
class VerifyJob:
    """The comparison of one topic."""

    id: int
    link: str
    topic: str
    address: str
    """The brokers of the source that are read."""
    cost_bytes: int | None
    """What is read from the source, by the size of its logs; None: it does not say."""
    parts: list[Part]
    task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return all(part.state.is_end for part in self.parts)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its parts."""
        found = {each.verdict for each in self.parts}
        worst = (Verdict.DIFFERENT, Verdict.UNKNOWN)
        return next((each for each in worst if each in found), Verdict.EQUAL)

    def as_json(self) -> Json:
        """Returns the job for programs. Its parts are built when they are read."""
        return {
            "id": self.id,
            "link": self.link,
            "topic": self.topic,
            "source": self.address,
            "cost_bytes": self.cost_bytes,
            "is_over": self.is_over,
            "verdict": self.verdict if self.is_over else None,
            "partitions": Rows(Part.as_json, self.parts),
        }


def _side_json(side: SideSum, read_bytes: int) -> Json:
    return {"count": side.count, "digest": f"{side.digest:032x}", "read_bytes": read_bytes}


def _differences_json(found: Comparison, keys: dict[int, bytes | None]) -> Json | None:
    if not sum(found.counts):
        return None
    return {
        "count": sum(found.counts),
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "listed": [_difference_json(each, keys) for each in found.listed],
    }


def _difference_json(difference: Difference, keys: dict[int, bytes | None]) -> Json:
    key = keys.get(difference.first_offset)
    return {
        "kind": difference.kind.name.lower(),
        "key": None if key is None else key.decode(errors="replace"),
        "key_hex": None if key is None else key.hex(),
        "source_offset": difference.offsets[SOURCE],
        "mirror_offset": difference.offsets[MIRROR],
    }
