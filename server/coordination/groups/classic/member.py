"""One member of a classic group and its waiting requests.

Source: Apache Kafka, ClassicGroupMember.java.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter

from protocol.internal_topics.group_records import MemberMetadata
from server.coordination.groups.events import MemberProtocol, Ticket


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member. Only its group changes it."""

    member_id: str
    instance_id: str | None
    """The name of a static member, which keeps its assignment across restarts (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """In order of preference; at least one, without duplicates."""
    session_deadline_ms: int
    """The member is removed unless it sends a request before this time."""
    assignment: bytes = b""
    join_ticket: Ticket | None = None
    """A JoinGroup that waits for the other members."""
    sync_ticket: Ticket | None = None
    """A SyncGroup that waits for the leader's."""
    owes_sync: bool = False
    """It knows the generation and has not asked for its assignment yet."""
    is_new: bool = False
    """It does not know its id yet, so it cannot send heartbeats while it waits."""

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(map(itemgetter(0), self.protocols))

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def can_expire(self) -> bool:
        """Whether its session can expire; a client that waits for our answer sends no heartbeats."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def renew_session(self, now_ms: int) -> None:
        """Renew the session."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def take_sync(self) -> Ticket | None:
        """Take the ticket of its waiting SyncGroup; None if there is none. The caller answers it."""
        ticket, self.sync_ticket = self.sync_ticket, None
        return ticket

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns its metadata for a protocol; empty if it does not support that."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def stored(self, protocol_name: str | None) -> MemberMetadata:
        """Returns the member as it is written to the log, with its assignment."""
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
        """Returns the candidate that it prefers."""
        names = (protocol.name for protocol in self.protocols)
        return next((name for name in names if name in candidates), None)
