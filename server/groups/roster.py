"""Who is in a group: members, static members by name, who was given an id and has not come back.

It knows nothing of states or generations. The leader is always a member, if there is one.
Source: Apache Kafka, ClassicGroup.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from protocol.error_codes import ErrorCode
from server.groups.events import Join
from server.groups.member import Member, Ticket


class Roster:
    """The members of one group, in the order in which they came."""

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
        """The names of the protocols that all members support; None: to be computed."""
        self.awaiting_join = 0
        """So many have joined and wait for the others."""
        # Changed by the group.
        self.pending: dict[str, int] = {}
        """Member ids that were given out, with the time when they are taken back."""
        self.leader_id: str | None = None
        self.protocol_type: str | None = None
        """The members', or the last ones'; None if there never were any."""

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
        """The member that a request comes from; an error if it is nobody, or was replaced."""
        if instance_id is not None:
            owner = self._by_instance.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self._members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    # Changes.

    def add(self, member: Member) -> None:
        """Take in a member; the first one brings the protocol type, and leads."""
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
        """Forget a member that waits for nothing; if it led, whoever came first leads."""
        assert member.join_ticket is None
        assert member.sync_ticket is None
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._common = None
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member, which has come back, its new id, in its old place."""
        assert member.instance_id is not None
        old_member_id, member.member_id = member.member_id, new_member_id
        self._members = {each.member_id: each for each in self._members.values()}
        self._by_instance[member.instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id

    def update(self, member: Member, join: Join) -> None:
        """Take over what a member says of itself now."""
        names_before = member.protocol_names
        member.protocols = join.protocols
        if member.protocol_names != names_before:
            self._common = None
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id = join.client_id
        member.client_host = join.client_host

    def park_join(self, member: Member, ticket: Ticket) -> None:
        """Let its JoinGroup wait for the others."""
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.awaiting_join += 1

    def take_join(self, member: Member) -> Ticket | None:
        """Its JoinGroup's ticket, which is answered now; None if none waits."""
        ticket, member.join_ticket = member.join_ticket, None
        self.awaiting_join -= ticket is not None
        return ticket

    def _common_names(self) -> frozenset[str]:
        if self._common is None:
            # The smallest first: what it does not have none has in common.
            names = sorted((member.protocol_names for member in self), key=len)
            self._common = names[0].intersection(*names[1:])
        return self._common

    # The whole of them.

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self.pending and self.awaiting_join == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: for the most patient."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member of these protocols fits in: there is one that all support."""
        if not self._members:
            return protocol_type != "" and any(True for _ in names)
        return protocol_type == self.protocol_type and not self._common_names().isdisjoint(names)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of those that all support."""
        candidates = self._common_names()
        votes = Counter(member.vote(candidates) for member in self)
        ((winner, _),) = votes.most_common(1)
        assert winner is not None, "a member without a common protocol was let in"
        return winner

    def elect_joined_leader(self) -> bool:
        """Let one lead who has joined; False if nobody has."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        joined = (member.member_id for member in self if member.join_ticket is not None)
        new_leader = next(joined, None)
        if new_leader is not None:
            self.leader_id = new_leader
        return new_leader is not None
