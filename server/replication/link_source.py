"""What a link knows of its source, and what the source's answer means for a partition.

`source_topics.py` asks the source for its topics. `findings.py` judges an answer, by the topic as it was
when the source was last asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch
from server.client.access import Access
from server.metadata.reign import EPOCH_STEP
from server.replication.findings import SourceAnswer, SourceTopic, Verdict, judge
from server.replication.mirror import Mirror
from server.replication.mirror_topics import MirrorTopics
from server.replication.source_topics import FoundTopic, FoundTopics, SourcePartition
from server.replication.state_table import Guard
from server.replication.target import Target
from storage.threads import loop_thread

CHANGED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which the link looks at the source's topics once more."""


@loop_thread
class LinkSource:
    """The source of one link, as the link found it last. Copiers judge by it."""

    __slots__ = (
        "_access",
        "_follower",
        "_is_standby",
        "_now_ms",
        "_sparse_level",
        "_topics",
        "found",
        "is_stale",
    )

    def __init__(
        self,
        topics: MirrorTopics,
        access: Access,
        *,
        is_standby: bool,
        follower: str | None,
        sparse_level: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            access: how the source is reached.
            is_standby: whether this broker is the source's standby, which never cuts what it has copied.
            follower: the name under which this broker follows a new primary after it has led itself, so
                that logs here may have records that the source never had. The next following has another
                name. None: it has not led.
            sparse_level: returns this cluster's level of the feature `sparse.log`.
            now_ms: returns the wall time.
        """
        # Constant after construction
        self._topics = topics
        self._access = access
        self._is_standby = is_standby
        self._follower = follower
        self._sparse_level = sparse_level
        self._now_ms = now_ms
        # State
        self.found = FoundTopics(cluster_id="")
        """Its topics that the link follows. The link replaces them."""
        self.is_stale = False
        """Whether an answer shows that the source's topics or leaders have changed."""

    # ---------------------------------------------------------------- its topics

    def lists(self, topic: str) -> bool:
        """Returns whether the source had a topic of this name when it was last asked for its topics."""
        return topic in self.found.topics or topic in self.found.errors

    def facts(self) -> dict[str, SourceTopic]:
        """Returns what decides about each topic's mirror, by its name."""
        return {name: each.facts for name, each in self.found.topics.items()}

    def partition_of(self, mirror: Mirror) -> SourcePartition | None:
        """Returns where the source of a mirror can be read; None if no broker leads it, or if the source
        has created another topic of this name."""
        partition, found = mirror.log.topic_partition, self._topic_of(mirror)
        if found is None or partition.partition not in found.leaders:
            return None
        if found.facts.topic_id != self._topics.source_id(partition.topic):
            return None
        return SourcePartition(
            partition=partition,
            topic_id=found.facts.topic_id,
            address=found.leaders[partition.partition],
            access=self._access,
            compacts=found.facts.compacts,
            delete_retention_ms=found.facts.delete_retention_ms,
        )

    def topic_id(self, mirror: Mirror) -> uuid.UUID | None:
        """Returns the id of the source's topic; None if it is gone."""
        found = self._topic_of(mirror)
        return None if found is None else found.facts.topic_id

    def leader_epoch(self, mirror: Mirror) -> Epoch:
        """Returns the epoch in which the source's broker leads; -1 if it is not known."""
        found = self._topic_of(mirror)
        number = mirror.log.topic_partition.partition
        return Epoch(-1 if found is None else found.leader_epochs.get(number, -1))

    def compacts(self, mirror: Mirror) -> bool:
        """Returns whether the source's topic is compacted."""
        found = self._topic_of(mirror)
        return found is not None and found.facts.compacts

    def _topic_of(self, mirror: Mirror) -> FoundTopic | None:
        return self.found.topics.get(mirror.log.topic_partition.topic)

    # ---------------------------------------------------------------- its answers

    def may_have_gaps(self) -> bool:
        """Returns whether this cluster can hold a log with gaps; otherwise copiers look for them."""
        return self._sparse_level() > 0

    def noted(self, error_code: int) -> None:
        """Look at the source's topics once more soon, if this error shows that they have changed."""
        self.is_stale = self.is_stale or error_code in CHANGED

    def judge(self, mirror: Mirror, answer: SourceAnswer) -> Verdict:
        """Returns what an answer means for a partition."""
        partition, found = mirror.log.topic_partition, self._topic_of(mirror)
        if found is None or partition.partition >= found.facts.partitions_count:
            reason = f"the source no longer has {partition}: promote the mirror to keep it"
            return Verdict(guard=Guard.GONE, reason=reason)
        self.noted(answer.error_code)
        target = mirror.target
        assert target is not None, "only a target has answers"
        mirror.noted(answer, target)
        return judge(
            answer,
            target.place,
            topic=found.facts,
            mirrored_id=self._topics.source_id(partition.topic),
            sparse_level=self._sparse_level(),
            missed_tombstones=self._missed_tombstones(target, found.facts),
            may_cut=not self._is_standby,
            may_have_own=target is mirror.own and not target.is_empty and self.may_have_own(mirror),
        )

    def name_of(self, mirror: Mirror) -> uuid.UUID | None:
        """Returns by which name a log remembers that this source had all of its records
        (`PartitionLog.copied_from`); None if it need not, or if no broker is known to lead the source.

        A broker that was promoted since may lack some of these. It has another node id, or leads in an
        epoch that is higher by `EPOCH_STEP`.
        """
        found, number = self._topic_of(mirror), mirror.log.topic_partition.partition
        if self._follower is None or found is None or number not in found.leader_ids:
            return None
        promotions = found.leader_epochs[number] // EPOCH_STEP
        name = f"{self._follower} {found.leader_ids[number]} {promotions}"
        return uuid.uuid5(uuid.NAMESPACE_OID, name)

    def may_have_own(self, mirror: Mirror) -> bool:
        """Returns whether the mirror's log may have records that the source never had."""
        if self._follower is None:
            return False
        name = self.name_of(mirror)
        return name is None or mirror.log.copied_from != name

    def _missed_tombstones(self, target: Target, source: SourceTopic) -> str:
        if not source.compacts or target.is_empty:
            return ""
        if source.holds_tombstones and target.tombstones.safe_ms is not None:
            # The source has held them since the first slot. If no slot remembers, it may not have.
            return ""
        return target.tombstones.missed(self._now_ms(), source.delete_retention_ms)
