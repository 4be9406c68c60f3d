"""A group of the classic protocol as a state machine: event and time in, outcome out.

              join                      all joined, or timeout                 leader's sync
    Empty ----------> PreparingRebalance ----------------> CompletingRebalance ----------> Stable
      ^                 |    ^    ^                               |                           |
      +-----------------+    |    +-------------------------------+                           |
       no members left       +----------------------------------------------------------------+
                                   a member joins, leaves, times out or changes

A generation is what the members of one rebalance agree on: a leader, a protocol, an assignment.
PreparingRebalance collects JoinGroups; then each is answered with the next generation, and the leader
also gets all members. CompletingRebalance collects SyncGroups until the leader's brings the assignment.
The tickets of waiting requests are kept with the members.

A member can delay the others for no longer than the timeouts allow. The group removes a member that got
its id and does not join with it (session timeout), does not rejoin (rebalance timeout), does not ask
for its assignment (rebalance timeout) or stops sending heartbeats (session timeout). Each ticket is
answered exactly once.

Pure: no clock, no I/O, no randomness. Invalid requests never raise. There is no state Dead: a deleted
group is forgotten, and requests for it get an error.

Source: Apache Kafka, GroupMetadataManager.java, ClassicGroup.java; KIP-62, KIP-134, KIP-345, KIP-394,
KIP-814.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from cleaner.rules.text import count_text
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.events import Join, Leave, Sync
from server.coordination.groups.generation import joined, record_of, synced
from server.coordination.groups.member import NO_MEMBER, Member, Ticket
from server.coordination.groups.outcome import Joined, Left, Outcome, Synced
from server.coordination.groups.roster import Roster
from server.coordination.groups.step import Step, first_names, with_reason

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member that still waits after this time is removed, since its client may be gone; Kafka's
value."""

ABSENT_MEMBERS_WAIT_MS = 1_000
"""Minimum time until a rebalance that no member has joined is checked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's configuration for groups of the classic protocol."""

    initial_rebalance_delay_ms: int
    size_max: int


class GroupState(enum.Enum):
    """The states of a group; the values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Group:
    """One group. Each method that takes an event performs one step and returns its outcome."""

    protocol: ClassVar = "classic"
    """The name by which clients know this type of group."""

    __slots__ = (
        "_has_new_joins",
        "_initial_wait_ms",
        "_is_initial",
        "_join_deadline_ms",
        "_settings",
        "_step",
        "_sync_deadline_ms",
        "generation",
        "group_id",
        "protocol_name",
        "roster",
        "state",
        "state_since_ms",
    )

    def __init__(self, group_id: str, settings: GroupSettings, *, now_ms: int) -> None:
        # Constant after construction
        self.group_id = group_id
        self._settings = settings
        # State; others may read it
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_name: str | None = None
        """The protocol that the members of this generation agreed on."""
        self.roster = Roster()
        # State of the current rebalance
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._is_initial = False
        """Whether it is the first rebalance of an empty group, which waits for more members to join."""
        self._has_new_joins = False
        self._initial_wait_ms = 0
        """How long it may still wait after the current deadline."""
        # Outcome of the current step
        self._step = Step()

    @property
    def members_count(self) -> int:
        return len(self.roster)

    # Joining.

    def join(self, join: Join, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a JoinGroup, or keep its ticket until the others have joined."""
        member = self.roster.get(join.member_id)
        if not self._has_room_for(join.member_id, member):
            self._drop_excess_member(join.member_id, member, now_ms)
            self._step.refuse_join(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not self.roster.supports(join.protocol_type, [p.name for p in join.protocols]):
            self._step.refuse_join(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        elif join.member_id == NO_MEMBER:
            self._join_unknown(join, ticket, now_ms)
        elif join.member_id in self.roster.pending and join.instance_id is None:
            self._add(join, join.member_id, ticket, now_ms)
        else:
            self._join_known(join, ticket, now_ms)
        return self._outcome()

    def _has_room_for(self, member_id: str, member: Member | None) -> bool:
        """Returns whether `group.max.size` allows the member."""
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            # If the limit was lowered, the members that rejoin last have to go.
            waits = member is not None and member.join_ticket is not None
            return waits or self.roster.awaiting_join < self._settings.size_max
        return member is not None or len(self.roster) < self._settings.size_max

    def _drop_excess_member(self, member_id: str, member: Member | None, now_ms: int) -> None:
        was_pending = self.roster.pending.pop(member_id, None) is not None
        if member is not None:
            self._remove(member)
        if was_pending or member is not None:
            self._complete_if_all_joined(now_ms)

    def _join_unknown(self, join: Join, ticket: Ticket, now_ms: int) -> None:
        """Handle a join without member id: a new member, or a static one after a restart."""
        if join.instance_id is not None:
            member = self.roster.static_member(join.instance_id)
            if member is None:
                self._add(join, join.new_member_id, ticket, now_ms)
            else:
                self._replace_static(member, join, ticket, now_ms)
        elif join.knows_its_id:
            self._add(join, join.new_member_id, ticket, now_ms)
        else:
            deadline_ms = now_ms + join.session_timeout_ms
            self.roster.pending[join.new_member_id] = deadline_ms
            self._step.add_deadline(deadline_ms)
            self._step.refuse_join(ticket, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)

    def _join_known(self, join: Join, ticket: Ticket, now_ms: int) -> None:
        """Handle a join with a member id."""
        member = self.roster.find(join.member_id, join.instance_id)
        if isinstance(member, ErrorCode):
            self._step.refuse_join(ticket, member, join.member_id)
            return
        is_same = member.protocols == join.protocols
        leads_a_stable_group = (
            self.state is GroupState.STABLE and self.roster.leader_id == member.member_id
        )
        if self.state is GroupState.PREPARING_REBALANCE or not is_same or leads_a_stable_group:
            # A leader rejoins to get a new assignment, for instance because its topics changed.
            self._update(member, join, ticket)
            self._rebalance_or_complete(
                now_ms, with_reason(f"{member.member_id} rejoins", join.reason)
            )
        else:
            # The answer to its last JoinGroup got lost.
            self._step.answer(ticket, joined(self, member))

    def _add(self, join: Join, member_id: str, ticket: Ticket, now_ms: int) -> None:
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocol_type=join.protocol_type,
            protocols=join.protocols,
            session_deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
            is_new=True,
        )
        self._has_new_joins = True
        self.roster.add(member)
        self.roster.park_join(member, ticket)
        self._step.add_deadline(member.session_deadline_ms)
        self._rebalance_or_complete(now_ms, with_reason(f"{member_id} joins", join.reason))

    def _update(self, member: Member, join: Join, ticket: Ticket) -> None:
        """Update a member from its JoinGroup, and let it wait for the others."""
        self.roster.update(member, join)
        self._fail_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.roster.park_join(member, ticket)

    def _replace_static(self, member: Member, join: Join, ticket: Ticket, now_ms: int) -> None:
        """Replace the id of a returning static member; a client that still uses the old id is fenced
        (KIP-345)."""
        old_leader_id = self.roster.leader_id
        self._fail_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self.roster.rename(member, join.new_member_id)
        self.roster.update(member, join)
        self._renew_session(member, now_ms)
        if self.state is GroupState.STABLE and self.roster.select_protocol() == self.protocol_name:
            self._step.request_write()
            self._step.answer(ticket, self._rejoined_static(member, join, old_leader_id))
            return
        self.roster.park_join(member, ticket)
        # An assignment that the leader is just computing would name the old id.
        self._rebalance_or_complete(
            now_ms, with_reason(f"{member.member_id} rejoins with a new member id", join.reason)
        )

    def _rejoined_static(self, member: Member, join: Join, old_leader_id: str | None) -> Joined:
        """Continue the generation for a returning static member. A leader must not compute a new
        assignment: it is asked to skip that, or, if it does not support that, gets its old id as the
        leader's."""
        if join.can_skip_assignment:
            leads = self.roster.leader_id == member.member_id
            return joined(self, member, skip_assignment=leads)
        return joined(self, member, leader_id=old_leader_id or NO_MEMBER)

    # Rebalancing.

    def _rebalance_or_complete(self, now_ms: int, reason: str) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(now_ms)
        else:
            self._prepare_rebalance(now_ms, reason)

    def rebalance(self, reason: str, *, now_ms: int) -> Outcome:
        """Start a rebalance that all members have to join, and write the group's current state."""
        self._prepare_rebalance(now_ms, reason)
        self._step.request_write()
        self._add_all_deadlines()
        return self._outcome()

    def _prepare_rebalance(self, now_ms: int, reason: str) -> None:
        """Start a rebalance that all members have to join."""
        self._step.note(f"rebalances after generation {self.generation}: {reason}")
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.roster:
                self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_deadline_ms = None
        self._is_initial = self.state is GroupState.EMPTY
        self._has_new_joins = False
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        timeout_ms = self.roster.rebalance_timeout_ms
        if self._is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._initial_wait_ms = max(timeout_ms - delay_ms, 0)
            self._wait_for_joins(now_ms + delay_ms)
        else:
            self._wait_for_joins(now_ms + timeout_ms)
            self._complete_if_all_joined(now_ms)

    def _wait_for_joins(self, deadline_ms: int) -> None:
        self._join_deadline_ms = deadline_ms
        self._step.add_deadline(deadline_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        preparing = self.state is GroupState.PREPARING_REBALANCE
        if preparing and not self._is_initial and self.roster.all_joined:
            self._complete_join(now_ms)

    def _on_join_deadline(self, now_ms: int) -> None:
        """Handle the join deadline: extend the initial wait, or complete the join."""
        if self._is_initial and self._has_new_joins and self._initial_wait_ms > 0:
            wait_ms = min(self._settings.initial_rebalance_delay_ms, self._initial_wait_ms)
            self._has_new_joins = False
            self._initial_wait_ms -= wait_ms
            self._wait_for_joins(now_ms + wait_ms)
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin the next generation with the members that have joined, and with static members, which
        may be absent until their session ends."""
        for member in self.roster:
            if member.join_ticket is None and not member.is_static:
                self.roster.remove(member)
        if len(self.roster) and not self.roster.elect_joined_leader():
            # Only absent static members are left: wait until they rejoin or their sessions end.
            wait_ms = max(self.roster.rebalance_timeout_ms, ABSENT_MEMBERS_WAIT_MS)
            self._wait_for_joins(now_ms + wait_ms)
            return
        self._join_deadline_ms = None
        if len(self.roster):
            self._begin_generation(now_ms)
        else:
            self._become_empty(now_ms)
        self._is_initial = False

    def _begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        count, protocol = len(self.roster), self.protocol_name
        self._step.note(
            f"begins generation {self.generation}: {count_text(count, 'member')}, {protocol}"
        )
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        self._sync_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
        self._step.add_deadline(self._sync_deadline_ms)
        for member in self.roster:
            member.is_new = False
            member.owes_sync = True
            self._renew_session(member, now_ms)
            ticket = self.roster.take_join(member)
            if ticket is not None:
                self._step.answer(ticket, joined(self, member))

    def _become_empty(self, now_ms: int) -> None:
        self._enter(GroupState.EMPTY, now_ms)
        if not self._is_initial:
            # Otherwise the members left before the first generation, so nothing has changed.
            self.generation += 1
            self.protocol_name = None
            self._step.request_write()
            self._step.note("is empty")

    # Syncing.

    def sync(self, sync: Sync, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a SyncGroup, or keep its ticket until the leader sends the assignments."""
        member = self.roster.find(sync.member_id, sync.instance_id)
        if isinstance(member, ErrorCode):
            self._step.answer(ticket, Synced(error_code=member))
        elif (error := self._sync_error(sync)) is not ErrorCode.NONE:
            self._step.answer(ticket, Synced(error_code=error))
        elif self.state is GroupState.STABLE:
            member.owes_sync = False
            self._step.answer(ticket, synced(self, member))
        else:
            self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
            member.owes_sync = False
            member.sync_ticket = ticket
            if self.roster.leader_id == member.member_id:
                self._assign(sync.assignments, now_ms)
        return self._outcome()

    def _sync_error(self, sync: Sync) -> ErrorCode:
        if sync.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if sync.protocol_type not in (None, self.roster.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if sync.protocol_name not in (None, self.protocol_name) and self.protocol_name is not None:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        """Apply the leader's assignments; members that it left out get an empty one."""
        self._enter(GroupState.STABLE, now_ms)
        self._step.request_write()
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            ticket = member.take_sync()
            if ticket is not None:
                self._renew_session(member, now_ms)
                self._step.answer(ticket, synced(self, member))

    # Heartbeats and leaving.

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
    ) -> ErrorCode:
        """Renew a member's session. This changes nothing else, so there is no outcome."""
        member = self.roster.find(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.renew_session(now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def renew_session(self, member_id: str, *, now_ms: int) -> None:
        """Renew a member's session after a request other than a heartbeat, such as a commit."""
        member = self.roster.get(member_id)
        if member is not None:
            member.renew_session(now_ms)

    def leave(self, leaving: Iterable[Leave], ticket: Ticket, *, now_ms: int) -> Outcome:
        """Remove members; each gets its own error code."""
        leaving = tuple(leaving)
        codes = tuple(self._leave(each) for each in leaving)
        gone = [each for each, code in zip(leaving, codes, strict=True) if not code]
        if gone:
            names = first_names(each.member_id or each.instance_id or "" for each in gone)
            self._after_removal(now_ms, with_reason(f"{names} left", gone[0].reason))
        self._step.answer(ticket, Left(error_codes=codes))
        return self._outcome()

    def may_leave(self, leave: Leave) -> bool:
        """Returns whether such a member exists."""
        is_pending = leave.member_id in self.roster.pending
        return is_pending or self._member_named(leave) is not ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, leave: Leave) -> ErrorCode:
        if self.roster.pending.pop(leave.member_id, None) is not None:
            return ErrorCode.NONE
        member = self._member_named(leave)
        if isinstance(member, ErrorCode):
            return member
        self._remove(member)
        return ErrorCode.NONE

    def _member_named(self, leave: Leave) -> Member | ErrorCode:
        if leave.member_id == NO_MEMBER and leave.instance_id is not None:
            return self.roster.static_member(leave.instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return self.roster.find(leave.member_id, leave.instance_id)

    def _remove(self, member: Member) -> None:
        """Remove a member and fail its waiting requests. It may come back as a new one."""
        self._fail_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    def _after_removal(self, now_ms: int, reason: str) -> None:
        """Rebalance after members were removed, or complete a join that only waited for them."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms, reason)
        else:
            self._complete_if_all_joined(now_ms)

    # Time.

    def expire(self, now_ms: int) -> Outcome:
        """Handle what is due. Call it at the last outcome's deadline."""
        self._step.forget_deadline()
        self._expire_sessions(now_ms)
        if _is_due(self._join_deadline_ms, now_ms):
            self._on_join_deadline(now_ms)
        if _is_due(self._sync_deadline_ms, now_ms):
            self._expire_syncs(now_ms)
        self._add_all_deadlines()
        return self._outcome()

    def _expire_sessions(self, now_ms: int) -> None:
        pending = self.roster.pending
        late = [member_id for member_id, due_ms in pending.items() if due_ms <= now_ms]
        silent = [m for m in self.roster if m.can_expire and m.session_deadline_ms <= now_ms]
        for member_id in late:
            del pending[member_id]
        for member in silent:
            self._remove(member)
        if silent:
            names = first_names(member.member_id for member in silent)
            self._after_removal(now_ms, f"{names} timed out")
        elif late:
            self._complete_if_all_joined(now_ms)

    def _expire_syncs(self, now_ms: int) -> None:
        """Remove the members that have not asked for their assignment in time."""
        self._sync_deadline_ms = None
        late = [member for member in self.roster if member.owes_sync]
        for member in late:
            self._remove(member)
        if late:
            names = first_names(member.member_id for member in late)
            self._prepare_rebalance(now_ms, f"{names} did not ask for an assignment")

    def _add_all_deadlines(self) -> None:
        for due_ms in (self._join_deadline_ms, self._sync_deadline_ms):
            if due_ms is not None:
                self._step.add_deadline(due_ms)
        for due_ms in self.roster.pending.values():
            self._step.add_deadline(due_ms)
        for member in self.roster:
            if member.can_expire:
                self._step.add_deadline(member.session_deadline_ms)

    # Outcomes.

    def abandon(self, error_code: ErrorCode) -> Outcome:
        """Fail all waiting requests. The caller then discards the group."""
        for member in self.roster:
            self._fail_waiting(member, error_code)
        return self._outcome()

    def _outcome(self) -> Outcome:
        return self._step.end((record_of(self),) if self._step.writes else ())

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_ms

    def _renew_session(self, member: Member, now_ms: int) -> None:
        member.renew_session(now_ms)
        self._step.add_deadline(member.session_deadline_ms)

    def _refuse_sync(self, member: Member, error_code: ErrorCode, now_ms: int) -> None:
        if self._step.refuse_sync(member, error_code):
            self._renew_session(member, now_ms)

    def _fail_waiting(self, member: Member, error_code: ErrorCode) -> None:
        """Fail a member's waiting JoinGroup and SyncGroup."""
        ticket = self.roster.take_join(member)
        if ticket is not None:
            self._step.refuse_join(ticket, error_code, member.member_id)
        self._step.refuse_sync(member, error_code)


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
