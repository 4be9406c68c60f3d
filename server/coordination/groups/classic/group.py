"""A group of the classic protocol as a state machine: event and time in, outcome out.

The methods here turn requests and time into events. `state_table.py` says what each event does in each
state, and `rebalance.py` carries out a rebalance, from its start to its end or time-out.

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

from collections.abc import Iterable
from typing import ClassVar

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.generation import joined, synced
from server.coordination.groups.classic.guards import (
    join_guard,
    leave_guard,
    member_guard,
    return_guard,
    sync_guard,
)
from server.coordination.groups.classic.member import Member
from server.coordination.groups.classic.rebalance import GroupSettings, RebalancingGroup
from server.coordination.groups.classic.state_table import Action, Event, GroupState, GroupStep
from server.coordination.groups.events import NO_MEMBER, Join, Leave, Sync, Ticket
from server.coordination.groups.outcome import (
    Joined,
    Left,
    Outcome,
    Synced,
    first_names,
    with_reason,
)

__all__ = ["NEW_MEMBER_JOIN_TIMEOUT_MS", "Group", "GroupSettings", "GroupState"]

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member that still waits after this time is removed, since its client may be gone; Kafka's
value."""


class Group(RebalancingGroup):
    """One group. Each method that takes an event performs one step and returns its outcome."""

    protocol: ClassVar = "classic"
    """The name by which clients know this type of group."""

    __slots__ = ()

    @property
    def changes(self) -> int:
        """Grows with each step that may change the group."""
        return self._builder.steps

    @property
    def members_count(self) -> int:
        return len(self.roster)

    # Joining.

    def join(self, join: Join, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a JoinGroup, or keep its ticket until the others have joined."""
        step = self._on(Event.JOIN, join_guard(self, join))
        match step.action:
            case Action.ADD:
                self._add(join, ticket, now_ms)
            case Action.REJOIN:
                self._rejoin(join, ticket, now_ms)
            case Action.REPEAT:
                self._builder.answer(ticket, joined(self, self._member(join.member_id)))
            case Action.REPLACE:
                self._replace_static(join, ticket, now_ms)
            case _:
                self._refuse_join(step, join, ticket, now_ms)
        return self._outcome()

    def _refuse_join(self, step: GroupStep, join: Join, ticket: Ticket, now_ms: int) -> None:
        named_id = join.member_id
        if step.action is Action.DROP:
            self._drop_excess_member(join.member_id, now_ms)
            named_id = NO_MEMBER
        elif step.action is Action.RESERVE_ID:
            named_id = join.new_member_id
            deadline_ms = now_ms + join.session_timeout_ms
            self.roster.pending[named_id] = deadline_ms
            self._builder.add_deadline(deadline_ms)
        else:
            assert step.action is Action.REFUSE
        self._builder.answer(ticket, Joined(error_code=step.error_code, member_id=named_id))

    def _drop_excess_member(self, member_id: str, now_ms: int) -> None:
        was_pending = self.roster.pending.pop(member_id, None) is not None
        member = self.roster.get(member_id)
        if member is not None:
            self._remove(member)
        if was_pending or member is not None:
            self._check_join(now_ms)

    def _member(self, member_id: str) -> Member:
        member = self.roster.get(member_id)
        assert member is not None
        return member

    def _add(self, join: Join, ticket: Ticket, now_ms: int) -> None:
        member = Member(
            member_id=join.member_id or join.new_member_id,
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
        self.has_new_joins = True
        self.roster.add(member)
        self._builder.add_deadline(member.session_deadline_ms)
        self._wait(member, "joins", join, ticket, now_ms)

    def _wait(self, member: Member, what: str, join: Join, ticket: Ticket, now_ms: int) -> None:
        """Let a member wait for the next generation."""
        self.roster.park_join(member, ticket)
        reason = with_reason(f"{member.member_id} {what}", join.reason)
        self._advance(Event.MEMBER_WAITS, now_ms, reason)

    def _rejoin(self, join: Join, ticket: Ticket, now_ms: int) -> None:
        member = self._member(join.member_id)
        self.roster.update(member, join)
        self._fail_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._wait(member, "rejoins", join, ticket, now_ms)

    def _replace_static(self, join: Join, ticket: Ticket, now_ms: int) -> None:
        """Replace the id of a returning static member; a client that still uses the old id is fenced
        (KIP-345)."""
        assert join.instance_id is not None
        member = self.roster.static_member(join.instance_id)
        assert member is not None
        old_leader_id = self.roster.leader_id
        self._fail_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self.roster.rename(member, join.new_member_id)
        self.roster.update(member, join)
        self._renew_session(member, now_ms)
        step = self._on(Event.RETURN, return_guard(self))
        if step.action is Action.CONTINUE:
            self._builder.request_write()
            self._builder.answer(ticket, self._rejoined_static(member, join, old_leader_id))
        else:
            assert step.action is Action.WAIT
            self._wait(member, "rejoins with a new member id", join, ticket, now_ms)

    def _rejoined_static(self, member: Member, join: Join, old_leader_id: str | None) -> Joined:
        """Continue the generation for a returning static member. A leader must not compute a new
        assignment: it is asked to skip that, or, if it does not support that, gets its old id as the
        leader's."""
        if join.can_skip_assignment:
            leads = self.roster.leader_id == member.member_id
            return joined(self, member, skip_assignment=leads)
        return joined(self, member, leader_id=old_leader_id or NO_MEMBER)

    # Syncing.

    def sync(self, sync: Sync, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a SyncGroup, or keep its ticket until the leader sends the assignments."""
        member = self.roster.find(sync.member_id, sync.instance_id)
        step = self._on(Event.SYNC, sync_guard(self, sync, member))
        if step.action is Action.REFUSE:
            self._builder.answer(ticket, Synced(error_code=step.error_code))
            return self._outcome()
        assert isinstance(member, Member)
        if step.action is Action.ANSWER:
            member.owes_sync = False
            self._builder.answer(ticket, synced(self, member))
        else:
            self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
            member.owes_sync = False
            member.sync_ticket = ticket
            if step.action is Action.ASSIGN:
                self._assign(step, sync.assignments, now_ms)
            else:
                assert step.action is Action.WAIT
        return self._outcome()

    # Heartbeats and leaving.

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
    ) -> ErrorCode:
        """Renew a member's session. This changes nothing else, so there is no outcome."""
        member = self.roster.find(member_id, instance_id)
        step = self._on(Event.HEARTBEAT, member_guard(self, generation, member))
        if step.action is Action.RENEW:
            assert isinstance(member, Member)
            member.renew_session(now_ms)
        else:
            assert step.action is Action.REFUSE
        return step.error_code

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
            reason = with_reason(f"{names} left", gone[0].reason)
            self._advance(Event.MEMBERS_GONE, now_ms, reason)
        self._builder.answer(ticket, Left(error_codes=codes))
        return self._outcome()

    def may_leave(self, leave: Leave) -> bool:
        """Returns whether such a member exists."""
        is_pending = leave.member_id in self.roster.pending
        return is_pending or self._member_named(leave) is not ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, leave: Leave) -> ErrorCode:
        member = self._member_named(leave)
        step = self._on(Event.LEAVE, leave_guard(self, leave, member))
        if step.action is Action.DROP_ID:
            del self.roster.pending[leave.member_id]
        elif step.action is Action.REMOVE:
            assert isinstance(member, Member)
            self._remove(member)
        else:
            assert step.action is Action.REFUSE
        return step.error_code

    def _member_named(self, leave: Leave) -> Member | ErrorCode:
        if leave.member_id == NO_MEMBER and leave.instance_id is not None:
            return self.roster.static_member(leave.instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return self.roster.find(leave.member_id, leave.instance_id)

    # Time.

    def expire(self, now_ms: int) -> Outcome:
        """Handle what is due: sessions here, time-outs of a rebalance in `rebalance.py`. The coordinator
        (`_on_deadline`) calls it when the deadline of the latest outcome has passed."""
        self._builder.forget_deadline()
        self._expire_sessions(now_ms)
        if _is_due(self._join_deadline_ms, now_ms):
            self._on_join_deadline(now_ms)
        if _is_due(self._sync_deadline_ms, now_ms):
            self._on_sync_deadline(now_ms)
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
            self._advance(Event.MEMBERS_GONE, now_ms, f"{names} timed out")
        elif late:
            self._check_join(now_ms)

    def abandon(self, error_code: ErrorCode) -> Outcome:
        """Fail all waiting requests. The caller then discards the group."""
        for member in self.roster:
            self._fail_waiting(member, error_code)
        return self._outcome()


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
