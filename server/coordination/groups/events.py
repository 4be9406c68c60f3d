"""The requests of members as values, independent of request versions; the events of a group's steps.

`outcome.py` has the answers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Ticket = object
"""The caller's handle for a request: passed in with an event, returned with the answer; compared by
identity."""

NO_MEMBER = ""
"""The member id in requests of clients that have no id yet."""

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent."""


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, with the metadata that the leader needs for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """The classic session timeout and protocols of a classic member in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The decoded subscription of a classic member that joins a consumer group."""

    topic_names: Collection[str]
    rack_id: str | None
    owned: Mapping[str, frozenset[int]]
    """The partitions that the member has, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup."""

    member_id: str
    """Empty: a new member, or a static one that does not know its id (after a restart)."""
    instance_id: str | None = None
    new_member_id: str
    """The id for a new member; no member has had it before."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    knows_its_id: bool = True
    """False: a new member only gets its id and has to join again with it (KIP-394)."""
    can_skip_assignment: bool = True
    """The client understands `skip_assignment` (KIP-814)."""
    reason: str = ""
    subscription: Subscribed | None = None
    """That of its first protocol, if the caller has decoded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]
    """By member id; only the leader's are used."""


LeaveKey = tuple[str, str | None]
"""A member id and an instance id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """One member of a LeaveGroup."""

    member_id: str
    """Empty: remove the member with this instance id, at an operator's request."""
    instance_id: str | None = None
    reason: str = ""

    @property
    def key(self) -> LeaveKey:
        """Identifies the member in the request."""
        return self.member_id, self.instance_id


@dataclass(frozen=True, slots=True)
class Matches:
    """Which topics some expressions match."""

    revision: int
    """The revision of the topics that were matched, which may have changed since."""
    by_pattern: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A ConsumerGroupHeartbeat. None: unchanged since the last one."""

    member_id: str
    """Chosen by the client when it joins; empty: the broker chooses (v0)."""
    member_epoch: int
    """0: join; -1: leave; -2: leave temporarily (static members)."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    """-1: unchanged."""
    topic_names: Collection[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that the member has."""
    client_id: str = ""
    client_host: str = ""
    classic: ClassicMember | None = None
    """Set if this was a JoinGroup: the member speaks the classic protocol."""
    may_see: Callable[[str], bool] | None = field(default=None, compare=False)
    """Whether the client may describe a topic, by name; None: every one."""
    matches: Matches | None = field(default=None, compare=False)
    """The topics that expressions match, where that takes too long for a step."""

    @property
    def says_topics(self) -> bool:
        """Whether it says what its member is subscribed to."""
        return self.topic_names is not None or self.topic_regex is not None

    @property
    def is_full(self) -> bool:
        """Whether it carries all fields, as after an error: then the answer must also be complete."""
        return self.rebalance_timeout_ms != -1 and self.says_topics and self.owned is not None
