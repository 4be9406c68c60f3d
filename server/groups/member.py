"""One member of a group, and what it may be waiting for.

Source: Apache Kafka, ClassicGroupMember.java.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from protocol.group_records import MemberMetadata

Ticket = object
"""What the caller hands in with an event and gets back with the answer; compared by identity."""

NO_MEMBER = ""
"""The member id of who has none yet."""


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, with what the leader must know of it for that."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """What a member of the classic protocol has said, that is in a group of the consumer protocol."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member. Its group changes it, nobody else."""

    member_id: str
    instance_id: str | None
    """The name of a static member: it keeps its assignment over a restart (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """In the order of preference; at least one, each name once."""
    session_deadline_ms: int
    """Without a sign of life until then the member is dead."""
    assignment: bytes = b""
    join_ticket: Ticket | None = None
    """A JoinGroup that waits for the others."""
    sync_ticket: Ticket | None = None
    """A SyncGroup that waits for the leader's."""
    owes_sync: bool = False
    """It was told of the generation and has not asked for its assignment yet."""
    is_new: bool = False
    """It does not know its id yet, so it cannot give a sign of life while it waits."""

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(map(itemgetter(0), self.protocols))

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def can_expire(self) -> bool:
        """Whether its session deadline counts: who waits for us has not fallen silent."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def lives(self, now_ms: int) -> None:
        """Note a sign of life."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def take_sync(self) -> Ticket | None:
        """Its SyncGroup's ticket, which is answered now; None if none waits."""
        ticket, self.sync_ticket = self.sync_ticket, None
        return ticket

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; empty for one that it does not support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def stored(self, protocol_name: str | None) -> MemberMetadata:
        """What is written of it, with the assignment that it has."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=self.assignment,
        )

    def vote(self, candidates: Collection[str]) -> str | None:
        """The candidate that it prefers."""
        names = (protocol.name for protocol in self.protocols)
        return next((name for name in names if name in candidates), None)
