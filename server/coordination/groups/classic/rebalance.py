"""The rebalances of a classic group: they collect the members, begin the next generation, and time out.

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

`_on_join_deadline` ends the collection of JoinGroups after the rebalance timeout, or for an empty group
after the initial delay. It removes dynamic members that have not joined again; static members stay until
their sessions end. `_on_sync_deadline` removes the members that have not asked for their assignment
within the rebalance timeout. In the consumer protocol each member has a rebalance timeout of its own
(`consumer/group.py`: `expire`).

`group.py` turns requests and time into events; `state_table.py` has the step of each state.

Source: Apache Kafka, GroupMetadataManager.java, ClassicGroup.java; KIP-62, KIP-134.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.rules.text import count_text
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.generation import joined, record_of, synced
from server.coordination.groups.classic.guards import (
    join_check_guard,
    join_deadline_guard,
    join_over_guard,
)
from server.coordination.groups.classic.member import Member
from server.coordination.groups.classic.roster import Roster
from server.coordination.groups.classic.state_table import (
    GROUP_STATES,
    Action,
    Event,
    GroupState,
    GroupStep,
    Guard,
)
from server.coordination.groups.outcome import Joined, Outcome, OutcomeBuilder, Synced, first_names

ABSENT_MEMBERS_WAIT_MS = 1_000
"""How long a rebalance that no member has joined waits at least, before it is checked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's configuration for groups of the classic protocol."""

    initial_rebalance_delay_ms: int
    size_max: int


class RebalancingGroup:
    """The state, the members and the generation of one group, and the steps of its rebalances."""

    __slots__ = (
        "_builder",
        "_join_deadline_ms",
        "_sync_deadline_ms",
        "generation",
        "group_id",
        "has_new_joins",
        "initial_wait_ms",
        "is_initial",
        "protocol_name",
        "roster",
        "settings",
        "state",
        "state_since_ms",
    )

    def __init__(self, group_id: str, settings: GroupSettings, *, now_ms: int) -> None:
        # Constant after construction
        self.group_id = group_id
        self.settings = settings
        # State; others may read it
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_name: str | None = None
        """The protocol that the members of this generation agreed on."""
        self.roster = Roster()
        # State of the current rebalance
        self.is_initial = False
        """Whether it is the first rebalance of an empty group, which waits for more members to join."""
        self.has_new_joins = False
        """Whether a new member has joined since the join deadline was set."""
        self.initial_wait_ms = 0
        """How long an initial rebalance may still wait after its join deadline."""
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        # Outcome of the current step
        self._builder = OutcomeBuilder()

    def _on(self, event: Event, guard: Guard) -> GroupStep:
        """Returns the step of the current state."""
        return GROUP_STATES.step(self.state, event, guard)

    # Rebalancing.

    def rebalance(self, reason: str, *, now_ms: int) -> Outcome:
        """Have all members of a converted group rejoin, and write the group's current state."""
        self._advance(Event.CONVERTED, now_ms, reason)
        self._builder.request_write()
        self._add_all_deadlines()
        return self._outcome()

    def _advance(self, event: Event, now_ms: int, reason: str) -> None:
        """Start a rebalance that all members have to join, or check the one that waits for them."""
        step = self._on(event, Guard.ALWAYS)
        match step.action:
            case Action.START_FIRST | Action.START:
                self._start_rebalance(step, now_ms, reason)
            case Action.CANCEL:
                for member in self.roster:
                    self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
                self._start_rebalance(step, now_ms, reason)
            case Action.CHECK_JOIN:
                self._check_join(now_ms)
            case _:
                assert step.action is Action.NOTHING

    def _start_rebalance(self, step: GroupStep, now_ms: int, reason: str) -> None:
        self._builder.note(f"rebalances after generation {self.generation}: {reason}")
        self._sync_deadline_ms = None
        self.is_initial = step.action is Action.START_FIRST
        self.has_new_joins = False
        self._enter(step.next_state, now_ms)
        timeout_ms = self.roster.rebalance_timeout_ms
        if self.is_initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self.initial_wait_ms = max(timeout_ms - delay_ms, 0)
            self._wait_for_joins(now_ms + delay_ms)
        else:
            self._wait_for_joins(now_ms + timeout_ms)
            self._check_join(now_ms)

    def _wait_for_joins(self, deadline_ms: int) -> None:
        self._join_deadline_ms = deadline_ms
        self._builder.add_deadline(deadline_ms)

    def _check_join(self, now_ms: int) -> None:
        """End the join if no member is missing."""
        step = self._on(Event.JOIN_CHECK, join_check_guard(self))
        if step.action is Action.END_JOIN:
            self._end_join(now_ms)
        else:
            assert step.action is Action.NOTHING

    def _on_join_deadline(self, now_ms: int) -> None:
        """Handle the join deadline, which is the rebalance timeout or the initial delay.

        Extends the initial delay if new members have joined in it and the rebalance timeout
        has not expired (`join_deadline_guard`); otherwise ends the join.
        """
        step = self._on(Event.JOIN_DEADLINE, join_deadline_guard(self))
        if step.action is Action.EXTEND:
            wait_ms = min(self.settings.initial_rebalance_delay_ms, self.initial_wait_ms)
            self.has_new_joins = False
            self.initial_wait_ms -= wait_ms
            self._wait_for_joins(now_ms + wait_ms)
        else:
            assert step.action is Action.END_JOIN
            self._end_join(now_ms)

    def _end_join(self, now_ms: int) -> None:
        """Remove the members that have not rejoined in time, and begin the next generation with the
        others. Static members may be absent until their session ends."""
        for member in self.roster:
            if member.join_ticket is None and not member.is_static:
                self.roster.remove(member)
        has_leader = self.roster.elect_joined_leader()
        step = self._on(Event.JOIN_OVER, join_over_guard(self, has_leader=has_leader))
        if step.action is Action.WAIT_AGAIN:
            # Wait until the absent members rejoin, or their sessions end.
            wait_ms = max(self.roster.rebalance_timeout_ms, ABSENT_MEMBERS_WAIT_MS)
            self._wait_for_joins(now_ms + wait_ms)
            return
        self._join_deadline_ms = None
        self.is_initial = False
        match step.action:
            case Action.BEGIN:
                self._begin_generation(step, now_ms)
            case Action.BECOME_EMPTY:
                self._become_empty(step, now_ms)
            case _:
                # The members left before the first generation, so nothing has changed.
                assert step.action is Action.FORGET
                self._enter(step.next_state, now_ms)

    def _begin_generation(self, step: GroupStep, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        count, protocol = len(self.roster), self.protocol_name
        self._builder.note(
            f"begins generation {self.generation}: {count_text(count, 'member')}, {protocol}"
        )
        self._enter(step.next_state, now_ms)
        self._sync_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
        self._builder.add_deadline(self._sync_deadline_ms)
        for member in self.roster:
            member.is_new = False
            member.owes_sync = True
            self._renew_session(member, now_ms)
            ticket = self.roster.take_join(member)
            if ticket is not None:
                self._builder.answer(ticket, joined(self, member))

    def _become_empty(self, step: GroupStep, now_ms: int) -> None:
        self._enter(step.next_state, now_ms)
        self.generation += 1
        self.protocol_name = None
        self._builder.request_write()
        self._builder.note("is empty")

    # Assigning.

    def _assign(self, step: GroupStep, assignments: dict[str, bytes], now_ms: int) -> None:
        """Apply the leader's assignments; members that it left out get an empty one."""
        self._enter(step.next_state, now_ms)
        self._builder.request_write()
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            ticket = member.take_sync()
            if ticket is not None:
                self._renew_session(member, now_ms)
                self._builder.answer(ticket, synced(self, member))

    def _on_sync_deadline(self, now_ms: int) -> None:
        """Remove the members that have not asked for their assignment in time."""
        self._sync_deadline_ms = None
        late = [member for member in self.roster if member.owes_sync]
        guard = Guard.LATE if late else Guard.NONE_LATE
        step = self._on(Event.SYNC_DEADLINE, guard)
        if step.action is Action.NOTHING:
            return
        assert step.action is Action.EXPEL
        for member in late:
            self._remove(member)
        names = first_names(member.member_id for member in late)
        reason = f"{names} did not ask for an assignment"
        self._advance(Event.MEMBERS_GONE, now_ms, reason)

    # Members.

    def _remove(self, member: Member) -> None:
        """Remove a member and fail its waiting requests. It may come back as a new one."""
        self._fail_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    def _renew_session(self, member: Member, now_ms: int) -> None:
        member.renew_session(now_ms)
        self._builder.add_deadline(member.session_deadline_ms)

    def _refuse_sync(self, member: Member, error_code: ErrorCode, now_ms: int) -> None:
        if self._fail_sync(member, error_code):
            self._renew_session(member, now_ms)

    def _fail_waiting(self, member: Member, error_code: ErrorCode) -> None:
        """Fail a member's waiting JoinGroup and SyncGroup."""
        ticket = self.roster.take_join(member)
        if ticket is not None:
            refused = Joined(error_code=error_code, member_id=member.member_id)
            self._builder.answer(ticket, refused)
        self._fail_sync(member, error_code)

    def _fail_sync(self, member: Member, error_code: ErrorCode) -> bool:
        """Fail a member's pending SyncGroup, if any. Returns whether there was one."""
        ticket = member.take_sync()
        if ticket is not None:
            self._builder.answer(ticket, Synced(error_code=error_code))
        return ticket is not None

    # Outcomes.

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_ms

    def _add_all_deadlines(self) -> None:
        for due_ms in (self._join_deadline_ms, self._sync_deadline_ms):
            if due_ms is not None:
                self._builder.add_deadline(due_ms)
        for due_ms in self.roster.pending.values():
            self._builder.add_deadline(due_ms)
        for member in self.roster:
            if member.can_expire:
                self._builder.add_deadline(member.session_deadline_ms)

    def _outcome(self) -> Outcome:
        return self._builder.build((record_of(self),) if self._builder.writes else ())
