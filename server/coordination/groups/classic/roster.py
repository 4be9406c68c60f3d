"""The members of a classic group, its static members by name, and the ids given to future members.

It knows nothing of states or generations. The leader, if there is one, is always a member.

Source: Apache Kafka, ClassicGroup.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.member import Member
from server.coordination.groups.events import Join, Ticket


class Roster:
    """The members of one group, in the order in which they joined."""

    __slots__ = (
        "_by_instance",
        "_common",
        "_members",
        "awaiting_join",
        "leader_id",
        "pending",
        "protocol_type",
    )

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._common: frozenset[str] | None = None
        """The protocols that all members support; None: not computed yet."""
        self.awaiting_join = 0
        """Number of members that have joined and wait for the others."""
        # Changed by the group.
        self.pending: dict[str, int] = {}
        """Member ids that were given out and not used yet, with their expiry."""
        self.leader_id: str | None = None
        self.protocol_type: str | None = None
        """The members' protocol type, or that of the last members; None if there were never any."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def find(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """Returns the member that sent a request; an error if it is unknown or was replaced."""
        if instance_id is not None:
            owner = self._by_instance.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self._members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    # Changes.

    def add(self, member: Member) -> None:
        """Add a member; the first one sets the protocol type and becomes the leader."""
        assert member.member_id not in self._members
        assert member.join_ticket is None
        if not self._members:
            self.protocol_type = member.protocol_type
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance
            self._by_instance[member.instance_id] = member.member_id
        if self._common is not None:
            self._common &= member.protocol_names
        self.pending.pop(member.member_id, None)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member without waiting requests; if it led, the longest-standing member leads."""
        assert member.join_ticket is None
        assert member.sync_ticket is None
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._common = None
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a returning static member its new id; it keeps its position."""
        assert member.instance_id is not None
        old_member_id, member.member_id = member.member_id, new_member_id
        self._members = {each.member_id: each for each in self._members.values()}
        self._by_instance[member.instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id

    def update(self, member: Member, join: Join) -> None:
        """Update a member from its JoinGroup."""
        names_before = member.protocol_names
        member.protocols = join.protocols
        if member.protocol_names != names_before:
            self._common = None
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id = join.client_id
        member.client_host = join.client_host

    def park_join(self, member: Member, ticket: Ticket) -> None:
        """Keep a member's JoinGroup waiting for the others."""
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.awaiting_join += 1

    def take_join(self, member: Member) -> Ticket | None:
        """Take the ticket of its waiting JoinGroup; None if there is none. The caller answers it."""
        ticket, member.join_ticket = member.join_ticket, None
        self.awaiting_join -= ticket is not None
        return ticket

    def _common_names(self) -> frozenset[str]:
        if self._common is None:
            # Start with the smallest set: the intersection cannot be larger.
            names = sorted((member.protocol_names for member in self), key=len)
            self._common = names[0].intersection(*names[1:])
        return self._common

    # All members.

    @property
    def all_joined(self) -> bool:
        """Whether all members, including pending ones, have joined."""
        return not self.pending and self.awaiting_join == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the longest timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a member with these protocols fits in: some protocol is supported by all."""
        if not self._members:
            return protocol_type != "" and any(True for _ in names)
        return protocol_type == self.protocol_type and not self._common_names().isdisjoint(names)

    def select_protocol(self) -> str:
        """Returns the commonly supported protocol that most members prefer."""
        candidates = self._common_names()
        votes = Counter(member.vote(candidates) for member in self)
        ((winner, _),) = votes.most_common(1)
        assert winner is not None, "a member without a common protocol was let in"
        return winner

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader. Returns False if no member has joined."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        joined = (member.member_id for member in self if member.join_ticket is not None)
        new_leader = next(joined, None)
        if new_leader is not None:
            self.leader_id = new_leader
        return new_leader is not None
