"""What members ask of a group: requests as values, whatever their version was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from server.groups.assignors import Assignment
from server.groups.member import ClassicMember, MemberProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup."""

    member_id: str
    """Empty: a new member, or a static one that has forgotten its id."""
    instance_id: str | None = None
    new_member_id: str
    """The id that a new member gets; nobody has had it before."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    knows_its_id: bool = True
    """A new member is told its id and has to come again with it (KIP-394)."""
    can_skip_assignment: bool = True
    """The client understands `skip_assignment` (KIP-814)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]
    """By member id; the leader's count."""


LeaveKey = tuple[str, str | None]
"""A member id and an instance id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """One member of a LeaveGroup."""

    member_id: str
    """Empty: whoever has the instance id, sent away by an operator."""
    instance_id: str | None = None
    reason: str = ""

    @property
    def key(self) -> LeaveKey:
        """Who it is."""
        return self.member_id, self.instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A ConsumerGroupHeartbeat. None: it is as it was."""

    member_id: str
    """The client's choice, as it joins; empty: it leaves that to the broker (v0)."""
    member_epoch: int
    """0: it joins; -1: it leaves; -2: it leaves for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    """-1: as it was."""
    topic_names: Collection[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    """What the member has."""
    client_id: str = ""
    client_host: str = ""
    classic: ClassicMember | None = None
    """It was a JoinGroup: the member speaks the classic protocol."""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after an error: the member wants to hear everything."""
        says_topics = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None
