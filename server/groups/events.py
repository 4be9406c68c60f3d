"""What members ask of a group: requests as values, whatever their version was."""

from __future__ import annotations

from dataclasses import dataclass

from server.groups.member import MemberProtocol


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """One member of a LeaveGroup."""

    member_id: str
    """Empty: whoever has the instance id, sent away by an operator."""
    instance_id: str | None = None
    reason: str = ""
