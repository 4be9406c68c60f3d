"""One member of a consumer group: its subscription, its partitions and those it must revoke.

A member is an immutable value; each change makes a new one. Its epoch is that of the target assignment
which it has reached; 0 before the first one, -2 while a static member is away.

Source: Apache Kafka, ConsumerGroupMember.java, MemberState.java.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from protocol.wire.encoded_strings import EncodedStrings
from server.coordination.groups.events import Assignment, Beat, ClassicMember

JOINING, LEAVING, AWAY = 0, -1, -2
"""Special epochs in a heartbeat: the member joins, leaves for good, or (static members) leaves and may
come back."""

Holding = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which the member got it."""


class MemberState(enum.IntEnum):
    """A member's progress towards its target. Stored on disk: values never change."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has not revoked all the partitions that it must."""
    UNRELEASED_PARTITIONS = 2
    """Other members have not yet revoked partitions of its target."""
    UNKNOWN = 127
    """A later release wrote a state that this one does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member of a consumer group."""

    member_id: str
    # From its heartbeats
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topic names that it is subscribed to."""
    regex: str = ""
    """It is also subscribed to all topics that match; empty: none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """Set if the member speaks the classic protocol; None: the consumer protocol."""
    # From the coordinator
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Holding = field(default_factory=dict)
    revoking: Holding = field(default_factory=dict)
    """Partitions that it must revoke; they remain its own until it has confirmed that."""

    def updated_by(self, beat: Beat) -> Self:
        """Returns the member updated with a request's fields; fields that the request omits stay."""
        names, regex = beat.topic_names, beat.topic_regex
        says_timeout = beat.rebalance_timeout_ms != -1
        return replace(
            self,
            instance_id=self.instance_id if beat.instance_id is None else beat.instance_id,
            rack_id=self.rack_id if beat.rack_id is None else beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topics=self.topics if names is None else _renewed(self.topics, names),
            regex=self.regex if regex is None else regex,
            rebalance_timeout_ms=beat.rebalance_timeout_ms
            if says_timeout
            else self.rebalance_timeout_ms,
            server_assignor=beat.server_assignor or self.server_assignor,
            classic=beat.classic,
        )

    def at(self, epoch: int) -> Self:
        """Returns the member at an epoch. Its old epoch stays valid, since the answer may get lost."""
        return replace(self, previous_epoch=self.epoch, epoch=epoch)

    def has_reached(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def has_same_partitions(self, other: ConsumerMember) -> bool:
        """Returns whether both have the same assignment, which may be large."""
        return self.assigned is other.assigned or self.assignment == other.assignment

    @property
    def assignment(self) -> Assignment:
        return {topic: frozenset(numbers) for topic, numbers in self.assigned.items()}


def as_frozenset(names: Collection[str]) -> frozenset[str]:
    """Returns the names as a set; a set stays the object that it is, with its encoding if it has one."""
    return names if isinstance(names, frozenset) else frozenset(names)


def _renewed(old: frozenset[str], names: Collection[str]) -> frozenset[str]:
    """Returns the names as a set; the old set if it has the same names, so that comparing the member
    with its old self takes no time."""
    new = as_frozenset(names)
    if isinstance(old, EncodedStrings) and isinstance(new, EncodedStrings):
        # The same request again has the same order. Comparing the sets would take much longer.
        is_same = old.compact == new.compact or old == new
    else:
        is_same = old == new
    return old if is_same else new


def covers(holding: Holding, owned: Assignment) -> bool:
    """Returns whether the holding includes all partitions that a member claims to own."""
    return all(numbers <= holding.get(topic, {}).keys() for topic, numbers in owned.items())


def overlaps(holding: Holding, owned: Assignment) -> bool:
    """Returns whether the holding includes at least one of these partitions."""
    return any(numbers & holding.get(topic, {}).keys() for topic, numbers in owned.items())
