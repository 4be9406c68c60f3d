"""The states of a classic group as a table: the step of each state at each event under each guard.

`group.py` and `rebalance.py` look their steps up here; `guards.py` names the guard that holds. A
request can make a second event happen: a member that joins then waits, and the last one ends the join.
The table as a page, with its diagram: docs/design/states.md.

There is no state Dead: a deleted group is forgotten, and requests for it get an error.

Source: Apache Kafka, GroupMetadataManager.java, ClassicGroup.java; KIP-62, KIP-134, KIP-345, KIP-394,
KIP-447, KIP-814.
"""

from __future__ import annotations

import enum

from protocol.wire.error_codes import ErrorCode
from server.coordination.transitions import Impossible, Row, Step, TransitionTable


class GroupState(enum.StrEnum):
    """The states of a group; the values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Event(enum.StrEnum):
    """A request, or what follows from one or from time. The values are names in the documentation."""

    JOIN = "JoinGroup"
    RETURN = "a static member returns"
    """It joins without its member id, after a restart."""
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    COMMIT_IN_TRANSACTION = "TxnOffsetCommit"
    DELETE_OFFSETS = "OffsetDelete"
    DELETE = "DeleteGroups"
    MEMBER_WAITS = "a member waits for the next generation"
    MEMBERS_GONE = "members left or timed out"
    CONVERTED = "converted from the consumer protocol"
    JOIN_CHECK = "check of the join"
    """After each change of the members that a join waits for."""
    JOIN_DEADLINE = "join deadline"
    JOIN_OVER = "the join is over"
    SYNC_DEADLINE = "sync deadline"


class Guard(enum.StrEnum):
    """A condition of an event."""

    # Who asks
    UNKNOWN = "an unknown member"
    FENCED = "a static member that was replaced"
    OTHER_GENERATION = "another generation"
    OTHER_PROTOCOL = "another protocol"
    LEADER = "the leader"
    FOLLOWER = "another member"
    MEMBER = "a member"
    RESERVED = "an unused member id"
    # JoinGroup
    FULL = "the group is full"
    MISFIT = "no protocol in common"
    NEEDS_ID = "a new member without id"
    NEW = "a new member"
    RETURNING = "a static member without id"
    CHANGED = "a member with other protocols"
    SAME_PROTOCOL = "the protocol stays"
    # Commits
    OUTSIDE = "a client outside of the group"
    NO_GENERATION = "no generation"
    CONSUMERS = "consumers"
    OTHER_TYPE = "another protocol type"
    # The join
    ALL_JOINED = "all members have joined"
    JOINING = "some members have not joined"
    EXTENDABLE = "new members joined, time is left"
    OVER = "time is over"
    SOME_JOINED = "some members have joined"
    ONLY_ABSENT = "only absent static members"
    NO_MEMBERS = "no members"
    NO_MEMBERS_YET = "no members, no generation before"
    # The sync
    LATE = "members have not asked"
    NONE_LATE = "all members have asked"
    ALWAYS = "always"


class Action(enum.StrEnum):
    """What a step does. `group.py` and `rebalance.py` have the methods."""

    REFUSE = "refuse"
    ALLOW = "allow"
    NOTHING = "change nothing"
    RESERVE_ID = "give a member id"
    ADD = "add the member; it waits"
    REJOIN = "update the member; it waits"
    REPLACE = "replace the member id"
    DROP = "drop the member"
    REPEAT = "repeat the answer"
    CONTINUE = "continue the generation"
    WAIT = "the member waits"
    ASSIGN = "assign; answer all"
    ANSWER = "answer the assignment"
    RENEW = "renew the session"
    DROP_ID = "drop the member id"
    REMOVE = "remove the member"
    START_FIRST = "start a first rebalance"
    START = "start a rebalance"
    CANCEL = "fail the waiting syncs; start a rebalance"
    CHECK_JOIN = "check the join"
    END_JOIN = "end the join"
    EXTEND = "wait for more members"
    WAIT_AGAIN = "wait again"
    BEGIN = "begin a generation; answer all"
    BECOME_EMPTY = "become empty"
    FORGET = "return to empty"
    EXPEL = "remove these members"


_COMMITS = (
    Guard.OUTSIDE,
    Guard.NO_GENERATION,
    Guard.UNKNOWN,
    Guard.FENCED,
    Guard.OTHER_GENERATION,
    Guard.MEMBER,
)

GUARDS: dict[Event, tuple[Guard, ...]] = {
    Event.JOIN: (
        Guard.FULL,
        Guard.MISFIT,
        Guard.RETURNING,
        Guard.NEEDS_ID,
        Guard.NEW,
        Guard.UNKNOWN,
        Guard.FENCED,
        Guard.CHANGED,
        Guard.LEADER,
        Guard.FOLLOWER,
    ),
    Event.RETURN: (Guard.SAME_PROTOCOL, Guard.OTHER_PROTOCOL),
    Event.SYNC: (
        Guard.UNKNOWN,
        Guard.FENCED,
        Guard.OTHER_GENERATION,
        Guard.OTHER_PROTOCOL,
        Guard.LEADER,
        Guard.FOLLOWER,
    ),
    Event.HEARTBEAT: (Guard.UNKNOWN, Guard.FENCED, Guard.OTHER_GENERATION, Guard.MEMBER),
    Event.LEAVE: (Guard.RESERVED, Guard.UNKNOWN, Guard.FENCED, Guard.MEMBER),
    Event.COMMIT: _COMMITS,
    Event.COMMIT_IN_TRANSACTION: _COMMITS,
    Event.DELETE_OFFSETS: (Guard.CONSUMERS, Guard.OTHER_TYPE),
    Event.DELETE: (Guard.ALWAYS,),
    Event.MEMBER_WAITS: (Guard.ALWAYS,),
    Event.MEMBERS_GONE: (Guard.ALWAYS,),
    Event.CONVERTED: (Guard.ALWAYS,),
    Event.JOIN_CHECK: (Guard.ALL_JOINED, Guard.JOINING),
    Event.JOIN_DEADLINE: (Guard.EXTENDABLE, Guard.OVER),
    Event.JOIN_OVER: (
        Guard.NO_MEMBERS_YET,
        Guard.NO_MEMBERS,
        Guard.ONLY_ABSENT,
        Guard.SOME_JOINED,
    ),
    Event.SYNC_DEADLINE: (Guard.LATE, Guard.NONE_LATE),
}
"""The guards of each event, in the order in which `guards.py` asks: the first one that holds counts."""

_EMPTY, _STABLE = (GroupState.EMPTY,), (GroupState.STABLE,)
_JOINING, _SYNCING = (GroupState.PREPARING_REBALANCE,), (GroupState.COMPLETING_REBALANCE,)
_ASSIGNING = _SYNCING + _STABLE
"""The states with a generation."""
_FILLED = _JOINING + _ASSIGNING
"""The states with members."""

_States = tuple[GroupState, ...]
_Row = Row[GroupState, Event, Guard, Action]
_Impossible = Impossible[GroupState, Event, Guard]

GroupStep = Step[GroupState, Action]


def _on(event: Event, states: _States, action: Action, *guards: Guard) -> _Row:
    """Returns a row that keeps the state; without guards it holds for all."""
    return Row(states, event, guards or GUARDS[event], action)


def _refuse(event: Event, states: _States, error: ErrorCode, *guards: Guard) -> _Row:
    """Returns a row that refuses the request; without guards it holds for all."""
    return Row(states, event, guards or GUARDS[event], Action.REFUSE, None, error)


def _enter(event: Event, states: _States, action: Action, guard: Guard, to: GroupState) -> _Row:
    """Returns a row that enters a state."""
    return Row(states, event, (guard,), action, to)


def _refuse_strangers(event: Event) -> tuple[_Row, ...]:
    """Returns the rows that refuse all but members. An empty group has none, so all are unknown."""
    return (
        _refuse(event, _EMPTY + _FILLED, ErrorCode.UNKNOWN_MEMBER_ID, Guard.UNKNOWN),
        _refuse(event, _FILLED, ErrorCode.FENCED_INSTANCE_ID, Guard.FENCED),
    )


def _refuse_generation(event: Event) -> _Row:
    return _refuse(event, _FILLED, ErrorCode.ILLEGAL_GENERATION, Guard.OTHER_GENERATION)


_UNDERWAY = ErrorCode.REBALANCE_IN_PROGRESS

_JOIN: tuple[_Row, ...] = (
    Row(
        _FILLED,
        Event.JOIN,
        (Guard.FULL,),
        Action.DROP,
        None,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ),
    _refuse(Event.JOIN, _EMPTY + _FILLED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Guard.MISFIT),
    _on(Event.JOIN, _FILLED, Action.REPLACE, Guard.RETURNING),
    Row(
        _EMPTY + _FILLED,
        Event.JOIN,
        (Guard.NEEDS_ID,),
        Action.RESERVE_ID,
        None,
        ErrorCode.MEMBER_ID_REQUIRED,
    ),
    _on(Event.JOIN, _EMPTY + _FILLED, Action.ADD, Guard.NEW),
    *_refuse_strangers(Event.JOIN),
    _on(Event.JOIN, _FILLED, Action.REJOIN, Guard.CHANGED),
    _on(Event.JOIN, _JOINING, Action.REJOIN, Guard.LEADER),
    _on(Event.JOIN, _JOINING, Action.REJOIN, Guard.FOLLOWER),
    # The answer to its last JoinGroup got lost.
    _on(Event.JOIN, _SYNCING, Action.REPEAT, Guard.LEADER),
    _on(Event.JOIN, _ASSIGNING, Action.REPEAT, Guard.FOLLOWER),
    # A leader rejoins to get a new assignment, for instance because its topics changed.
    _on(Event.JOIN, _STABLE, Action.REJOIN, Guard.LEADER),
    _on(Event.RETURN, _STABLE, Action.CONTINUE, Guard.SAME_PROTOCOL),
    _on(Event.RETURN, _STABLE, Action.WAIT, Guard.OTHER_PROTOCOL),
    # An assignment that the leader is just computing would name the old id.
    _on(Event.RETURN, _JOINING + _SYNCING, Action.WAIT),
)

_REBALANCE: tuple[_Row, ...] = (
    _enter(
        Event.MEMBER_WAITS,
        _EMPTY,
        Action.START_FIRST,
        Guard.ALWAYS,
        GroupState.PREPARING_REBALANCE,
    ),
    _on(Event.MEMBERS_GONE, _EMPTY, Action.NOTHING),
    *(
        row
        for event in (Event.MEMBER_WAITS, Event.MEMBERS_GONE)
        for row in (
            _on(event, _JOINING, Action.CHECK_JOIN),
            _enter(event, _SYNCING, Action.CANCEL, Guard.ALWAYS, GroupState.PREPARING_REBALANCE),
            _enter(event, _STABLE, Action.START, Guard.ALWAYS, GroupState.PREPARING_REBALANCE),
        )
    ),
    _enter(Event.CONVERTED, _STABLE, Action.START, Guard.ALWAYS, GroupState.PREPARING_REBALANCE),
    _on(Event.JOIN_CHECK, _JOINING, Action.END_JOIN, Guard.ALL_JOINED),
    _on(Event.JOIN_CHECK, _JOINING, Action.NOTHING, Guard.JOINING),
    _on(Event.JOIN_CHECK, _EMPTY + _ASSIGNING, Action.NOTHING),
    _on(Event.JOIN_DEADLINE, _JOINING, Action.EXTEND, Guard.EXTENDABLE),
    _on(Event.JOIN_DEADLINE, _JOINING, Action.END_JOIN, Guard.OVER),
    _enter(Event.JOIN_OVER, _JOINING, Action.FORGET, Guard.NO_MEMBERS_YET, GroupState.EMPTY),
    _enter(Event.JOIN_OVER, _JOINING, Action.BECOME_EMPTY, Guard.NO_MEMBERS, GroupState.EMPTY),
    _on(Event.JOIN_OVER, _JOINING, Action.WAIT_AGAIN, Guard.ONLY_ABSENT),
    _enter(
        Event.JOIN_OVER,
        _JOINING,
        Action.BEGIN,
        Guard.SOME_JOINED,
        GroupState.COMPLETING_REBALANCE,
    ),
)

_SYNC: tuple[_Row, ...] = (
    *_refuse_strangers(Event.SYNC),
    _refuse_generation(Event.SYNC),
    _refuse(Event.SYNC, _FILLED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Guard.OTHER_PROTOCOL),
    _refuse(Event.SYNC, _JOINING, _UNDERWAY, Guard.LEADER, Guard.FOLLOWER),
    _enter(Event.SYNC, _SYNCING, Action.ASSIGN, Guard.LEADER, GroupState.STABLE),
    _on(Event.SYNC, _SYNCING, Action.WAIT, Guard.FOLLOWER),
    _on(Event.SYNC, _STABLE, Action.ANSWER, Guard.LEADER, Guard.FOLLOWER),
    _on(Event.SYNC_DEADLINE, _ASSIGNING, Action.EXPEL, Guard.LATE),
    _on(Event.SYNC_DEADLINE, _STABLE, Action.NOTHING, Guard.NONE_LATE),
)

_MEMBER: tuple[_Row, ...] = (
    *_refuse_strangers(Event.HEARTBEAT),
    _refuse_generation(Event.HEARTBEAT),
    Row(_JOINING, Event.HEARTBEAT, (Guard.MEMBER,), Action.RENEW, None, _UNDERWAY),
    _on(Event.HEARTBEAT, _ASSIGNING, Action.RENEW, Guard.MEMBER),
    *_refuse_strangers(Event.LEAVE),
    _on(Event.LEAVE, _EMPTY + _FILLED, Action.DROP_ID, Guard.RESERVED),
    _on(Event.LEAVE, _FILLED, Action.REMOVE, Guard.MEMBER),
)

_OFFSETS: tuple[_Row, ...] = (
    *_refuse_strangers(Event.COMMIT),
    _refuse_generation(Event.COMMIT),
    _on(Event.COMMIT, _EMPTY, Action.ALLOW, Guard.OUTSIDE),
    _on(Event.COMMIT, _EMPTY, Action.ALLOW, Guard.NO_GENERATION),
    _refuse(Event.COMMIT, _FILLED, ErrorCode.UNKNOWN_MEMBER_ID, Guard.OUTSIDE),
    _on(Event.COMMIT, _JOINING + _STABLE, Action.ALLOW, Guard.MEMBER),
    _refuse(Event.COMMIT, _SYNCING, _UNDERWAY, Guard.MEMBER),
    # The transaction fences its producer, so a rebalance is no reason to refuse (KIP-447).
    *_refuse_strangers(Event.COMMIT_IN_TRANSACTION),
    _refuse_generation(Event.COMMIT_IN_TRANSACTION),
    _on(Event.COMMIT_IN_TRANSACTION, _EMPTY + _FILLED, Action.ALLOW, Guard.OUTSIDE),
    _on(Event.COMMIT_IN_TRANSACTION, _EMPTY, Action.ALLOW, Guard.NO_GENERATION),
    _on(Event.COMMIT_IN_TRANSACTION, _FILLED, Action.ALLOW, Guard.MEMBER),
    _on(Event.DELETE_OFFSETS, _EMPTY, Action.ALLOW),
    _on(Event.DELETE_OFFSETS, _FILLED, Action.ALLOW, Guard.CONSUMERS),
    _refuse(Event.DELETE_OFFSETS, _FILLED, ErrorCode.NON_EMPTY_GROUP, Guard.OTHER_TYPE),
    _on(Event.DELETE, _EMPTY, Action.ALLOW),
    _refuse(Event.DELETE, _FILLED, ErrorCode.NON_EMPTY_GROUP),
)

_MEMBERS_ONLY = {
    Event.JOIN: (
        Guard.FULL,
        Guard.RETURNING,
        Guard.FENCED,
        Guard.CHANGED,
        Guard.LEADER,
        Guard.FOLLOWER,
    ),
    Event.RETURN: GUARDS[Event.RETURN],
    Event.SYNC: GUARDS[Event.SYNC][1:],
    Event.HEARTBEAT: GUARDS[Event.HEARTBEAT][1:],
    Event.LEAVE: (Guard.FENCED, Guard.MEMBER),
    Event.COMMIT: (Guard.FENCED, Guard.OTHER_GENERATION, Guard.MEMBER),
    Event.COMMIT_IN_TRANSACTION: (Guard.FENCED, Guard.OTHER_GENERATION, Guard.MEMBER),
}
"""Guards that need a member, so they hold in no empty group."""

_NEVER: tuple[_Impossible, ...] = (
    *(Impossible(_EMPTY, event, guards) for event, guards in _MEMBERS_ONLY.items()),
    # Only an empty group lets members commit without a generation.
    Impossible(_FILLED, Event.COMMIT, (Guard.NO_GENERATION,)),
    Impossible(_FILLED, Event.COMMIT_IN_TRANSACTION, (Guard.NO_GENERATION,)),
    Impossible(_EMPTY + _JOINING + _SYNCING, Event.CONVERTED, GUARDS[Event.CONVERTED]),
    *(
        Impossible(_EMPTY + _ASSIGNING, event, GUARDS[event])
        for event in (Event.JOIN_DEADLINE, Event.JOIN_OVER)
    ),
    Impossible(_EMPTY + _JOINING, Event.SYNC_DEADLINE, GUARDS[Event.SYNC_DEADLINE]),
    # Until the leader asks, it is late itself.
    Impossible(_SYNCING, Event.SYNC_DEADLINE, (Guard.NONE_LATE,)),
)

GROUP_STATES = TransitionTable(
    GroupState, GUARDS, _JOIN + _REBALANCE + _SYNC + _MEMBER + _OFFSETS, _NEVER
)
