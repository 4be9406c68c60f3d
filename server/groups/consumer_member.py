"""One member of a consumer group: what it wants, what it has and what it must give up.

A member is a value; a change makes a new one. Its epoch is that of the target assignment which it
has reached; 0 before the first, -2 while a static member is away.

Source: Apache Kafka, ConsumerGroupMember.java, MemberState.java.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from server.groups.assignors import Assignment
from server.groups.events import Beat
from server.groups.member import ClassicMember

JOINING, LEAVING, AWAY = 0, -1, -2
"""Epochs that a member says: it joins, leaves for good, or, static, leaves to come back."""

Holding = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by the id of their topic, each with the member's epoch since which it has it."""


class MemberState(enum.IntEnum):
    """How far a member is on its way to its target. On disk: values never change."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has not given up yet what it must."""
    UNRELEASED_PARTITIONS = 2
    """Others have not given up yet what it shall have."""
    UNKNOWN = 127
    """A later release wrote another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member."""

    member_id: str
    # What it says of itself
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The names that it is subscribed to."""
    regex: str = ""
    """What names it is subscribed to must match, besides; empty: none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """It speaks the classic protocol; None: the consumer protocol."""
    # What it was given
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Holding = field(default_factory=dict)
    revoking: Holding = field(default_factory=dict)
    """What it has to give up, and may have as long as it has not said so."""

    def told(self, beat: Beat) -> Self:
        """The member with what a request says of it; what it does not say holds."""
        names, regex = beat.topic_names, beat.topic_regex
        says_timeout = beat.rebalance_timeout_ms != -1
        return replace(
            self,
            instance_id=self.instance_id if beat.instance_id is None else beat.instance_id,
            rack_id=self.rack_id if beat.rack_id is None else beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topics=self.topics if names is None else frozenset(names),
            regex=self.regex if regex is None else regex,
            rebalance_timeout_ms=beat.rebalance_timeout_ms
            if says_timeout
            else self.rebalance_timeout_ms,
            server_assignor=beat.server_assignor or self.server_assignor,
            classic=beat.classic,
        )

    def at(self, epoch: int) -> Self:
        """The member at an epoch; it may not have heard of that yet, so the last one holds, too."""
        return replace(self, previous_epoch=self.epoch, epoch=epoch)

    def has_reached(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def assignment(self) -> Assignment:
        return {topic: frozenset(numbers) for topic, numbers in self.assigned.items()}


def covers(holding: Holding, owned: Assignment) -> bool:
    """Whether all that a member says it has is in there."""
    return all(numbers <= holding.get(topic, {}).keys() for topic, numbers in owned.items())


def overlaps(holding: Holding, owned: Assignment) -> bool:
    """Whether something of it is in there."""
    return any(numbers & holding.get(topic, {}).keys() for topic, numbers in owned.items())
