"""The states of a consumer group's member as a table: how it gets to its target assignment.

`reconciliation.py` looks its steps up here, names the guard that holds and carries the actions out. The
table as a page, with its diagram: docs/design/states.md.

Source: Apache Kafka, CurrentAssignmentBuilder.java; KIP-848.
"""

from __future__ import annotations

import enum

from server.coordination.groups.consumer.member import MemberState
from server.coordination.transitions import Impossible, Row, TransitionTable


class Event(enum.StrEnum):
    """A heartbeat, or what follows from one. The values are names in the documentation."""

    HEARTBEAT = "ConsumerGroupHeartbeat"
    DROP = "drop of topics without subscription"
    MOVE = "comparison with the target"


class Guard(enum.StrEnum):
    """A condition of an event."""

    REVOKING = "it has not revoked yet"
    REVOKING_OTHER_TOPICS = "it has not revoked yet, and subscribes to other topics"
    ARRIVED = "it is at the target's epoch"
    ARRIVED_OTHER_TOPICS = "it is at the target's epoch, and subscribes to other topics"
    OTHERWISE = "otherwise"
    NONE_TO_DROP = "it has no such topic"
    TO_REVOKE = "it must revoke"
    REVOKED = "it has revoked them"
    NOT_RELEASED = "the target is not free yet"
    RELEASED = "the target is free"


class Action(enum.StrEnum):
    """What a step does. `reconciliation.py` has the functions."""

    NOTHING = "change nothing"
    DROP = "drop topics without subscription"
    MOVE = "compare with the target"
    REVOKE = "revoke; stay at the epoch"
    KEEP = "keep the rest"
    TAKE = "take the free partitions; go to the target's epoch"


GUARDS: dict[Event, tuple[Guard, ...]] = {
    Event.HEARTBEAT: (
        Guard.REVOKING,
        Guard.REVOKING_OTHER_TOPICS,
        Guard.ARRIVED,
        Guard.ARRIVED_OTHER_TOPICS,
        Guard.OTHERWISE,
    ),
    Event.DROP: (Guard.NONE_TO_DROP, Guard.TO_REVOKE, Guard.REVOKED),
    Event.MOVE: (Guard.TO_REVOKE, Guard.NOT_RELEASED, Guard.RELEASED),
}

_STABLE, _UNREVOKED = (MemberState.STABLE,), (MemberState.UNREVOKED_PARTITIONS,)
_UNRELEASED, _UNKNOWN = (MemberState.UNRELEASED_PARTITIONS,), (MemberState.UNKNOWN,)
_ALL = _STABLE + _UNREVOKED + _UNRELEASED + _UNKNOWN

_REVOKING = (Guard.REVOKING, Guard.REVOKING_OTHER_TOPICS)
_ARRIVED = (Guard.ARRIVED, Guard.ARRIVED_OTHER_TOPICS)

_Row = Row[MemberState, Event, Guard, Action]
_Impossible = Impossible[MemberState, Event, Guard]


def _move(guard: Guard, action: Action, to: MemberState) -> _Row:
    return Row(_ALL, Event.MOVE, (guard,), action, to)


_ROWS: tuple[_Row, ...] = (
    Row(_UNREVOKED, Event.HEARTBEAT, (Guard.REVOKING,), Action.NOTHING),
    Row(_UNREVOKED, Event.HEARTBEAT, (Guard.REVOKING_OTHER_TOPICS,), Action.DROP),
    Row(_STABLE, Event.HEARTBEAT, (Guard.ARRIVED,), Action.NOTHING),
    # The rest waits for the new target.
    Row(_STABLE, Event.HEARTBEAT, (Guard.ARRIVED_OTHER_TOPICS,), Action.DROP),
    Row(_ALL, Event.HEARTBEAT, (Guard.OTHERWISE,), Action.MOVE),
    Row(_STABLE + _UNREVOKED, Event.DROP, (Guard.NONE_TO_DROP,), Action.NOTHING),
    Row(
        _STABLE + _UNREVOKED,
        Event.DROP,
        (Guard.TO_REVOKE,),
        Action.REVOKE,
        MemberState.UNREVOKED_PARTITIONS,
    ),
    Row(_STABLE, Event.DROP, (Guard.REVOKED,), Action.KEEP),
    _move(Guard.TO_REVOKE, Action.REVOKE, MemberState.UNREVOKED_PARTITIONS),
    _move(Guard.NOT_RELEASED, Action.TAKE, MemberState.UNRELEASED_PARTITIONS),
    _move(Guard.RELEASED, Action.TAKE, MemberState.STABLE),
)

_NEVER: tuple[_Impossible, ...] = (
    Impossible(_STABLE, Event.HEARTBEAT, _REVOKING),
    Impossible(_UNREVOKED, Event.HEARTBEAT, _ARRIVED),
    Impossible(_UNRELEASED + _UNKNOWN, Event.HEARTBEAT, _REVOKING + _ARRIVED),
    Impossible(_UNRELEASED + _UNKNOWN, Event.DROP, GUARDS[Event.DROP]),
    # What it has not revoked stays in the list.
    Impossible(_UNREVOKED, Event.DROP, (Guard.REVOKED,)),
)

MEMBER_STATES = TransitionTable(_ALL, GUARDS, _ROWS, _NEVER)
