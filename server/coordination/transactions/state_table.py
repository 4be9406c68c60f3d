"""The states of a transactional id as a table: the step of each state at each event under each guard.

`transaction.py` looks its steps up here; `guards.py` names the guard that holds. The table as a page,
with its diagram: docs/design/states.md.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-360, KIP-890.
The error codes are those that Apache Kafka 4.3.1 answered (tests/server/coordination/transactions).
"""

from __future__ import annotations

import enum

from protocol.wire.error_codes import ErrorCode
from server.coordination.transactions.metadata import TransactionState
from server.coordination.transitions import Impossible, Row, Step, TransitionTable


class Event(enum.StrEnum):
    """A request of a producer or of the broker. The values are the names in the documentation."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    APPEND = "append of a batch"
    COMMIT = "EndTxn v0-4, commit"
    ABORT = "EndTxn v0-4, abort"
    COMMIT_AND_RAISE = "EndTxn v5, commit"
    """The end of a transaction in the new protocol, which raises the epoch (KIP-890)."""
    ABORT_AND_RAISE = "EndTxn v5, abort"
    MARKERS_WRITTEN = "all markers written"
    TIME_OUT = "timeout check"
    EXPIRE = "expiry check"


class Guard(enum.StrEnum):
    """A condition of an event."""

    WRITING = "a change is being written"
    ENDING = "an end is being written"
    OTHER_ID = "another producer id"
    OTHER_EPOCH = "another epoch"
    OWNER = "the producer that has the id"
    ENTITLED = "names the producer that has the id, or no producer"
    REPLACED = "names a producer that was replaced"
    MISSED_EPOCH = "names the epoch before: it missed the answer with the new one"
    MISSED_END = "the epoch before: it missed the end, which raised the epoch"
    EXHAUSTED = "epochs exhausted"
    NO_SPARE_ID = "epochs exhausted, no spare producer id"
    NOTHING_NEW = "the partitions are in the transaction"
    ADDED = "the partition is in the transaction"
    NOT_ADDED = "the partition is not in the transaction"
    DUE = "due"
    NOT_DUE = "not due"
    ALWAYS = "always"


class Action(enum.StrEnum):
    """What a step does. `transaction.py` has the methods."""

    REFUSE = "refuse"
    NOTHING = "change nothing"
    GIVE_NEXT_EPOCH = "give the next epoch"
    GIVE_SPARE_ID = "give the spare producer id"
    GIVE_AGAIN = "give the same epoch again"
    ANSWER_AGAIN = "answer again"
    ABORT_AND_FENCE = "abort with a raised epoch"
    BEGIN = "begin a transaction"
    ADD = "add the partitions"
    PREPARE = "decide the transaction"
    PREPARE_EMPTY = "decide an empty transaction"
    COMPLETE = "complete the transaction"
    DELETE = "write a tombstone"


_ENDING_OLD = (Guard.OTHER_ID, Guard.OTHER_EPOCH, Guard.WRITING, Guard.OWNER)
_ENDING_NEW = (
    Guard.WRITING,
    Guard.MISSED_END,
    Guard.OTHER_ID,
    Guard.OTHER_EPOCH,
    Guard.NO_SPARE_ID,
    Guard.OWNER,
)

GUARDS: dict[Event, tuple[Guard, ...]] = {
    Event.INIT: (
        Guard.WRITING,
        Guard.REPLACED,
        Guard.MISSED_EPOCH,
        Guard.NO_SPARE_ID,
        Guard.EXHAUSTED,
        Guard.ENTITLED,
    ),
    Event.ADD_PARTITIONS: (
        Guard.WRITING,
        Guard.OTHER_ID,
        Guard.OTHER_EPOCH,
        Guard.NOTHING_NEW,
        Guard.OWNER,
    ),
    Event.APPEND: (
        Guard.OTHER_ID,
        Guard.OTHER_EPOCH,
        Guard.ENDING,
        Guard.ADDED,
        Guard.NOT_ADDED,
    ),
    Event.COMMIT: _ENDING_OLD,
    Event.ABORT: _ENDING_OLD,
    Event.COMMIT_AND_RAISE: _ENDING_NEW,
    Event.ABORT_AND_RAISE: _ENDING_NEW,
    Event.MARKERS_WRITTEN: (Guard.ALWAYS,),
    Event.TIME_OUT: (Guard.WRITING, Guard.NOT_DUE, Guard.DUE),
    Event.EXPIRE: (Guard.WRITING, Guard.NOT_DUE, Guard.DUE),
}
"""The guards of each event, in the order in which `guards.py` asks: the first one that holds counts."""

_EMPTY, _OPEN = (TransactionState.EMPTY,), (TransactionState.ONGOING,)
_COMMITTING, _ABORTING = (TransactionState.PREPARE_COMMIT,), (TransactionState.PREPARE_ABORT,)
_COMMITTED, _ABORTED = (TransactionState.COMPLETE_COMMIT,), (TransactionState.COMPLETE_ABORT,)
_IDLE, _PREPARED = _EMPTY + _COMMITTED + _ABORTED, _COMMITTING + _ABORTING
_DEAD = (TransactionState.DEAD,)
"""The tombstone is durable. The coordinator forgets the id at once, so only a round of checks that has
already begun still finds it."""

_States = tuple[TransactionState, ...]
_Row = Row[TransactionState, Event, Guard, Action]
_Impossible = Impossible[TransactionState, Event, Guard]

TransactionStep = Step[TransactionState, Action]

_BUSY, _FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
_NOT_OPEN = ErrorCode.INVALID_TXN_STATE


def _refuse(event: Event, states: _States, error: ErrorCode, *guards: Guard) -> _Row:
    """Returns a row that refuses the request; without guards it holds for all."""
    return Row(states, event, guards or GUARDS[event], Action.REFUSE, None, error)


def _nothing(event: Event, states: _States, *guards: Guard) -> _Row:
    """Returns a row that changes nothing; without guards it holds for all."""
    return Row(states, event, guards or GUARDS[event], Action.NOTHING)


def _fence(event: Event, states: _States) -> tuple[_Row, ...]:
    """Returns the rows that refuse all producers except the one that has the id."""
    return (
        _refuse(event, states, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Guard.OTHER_ID),
        _refuse(event, states, ErrorCode.PRODUCER_FENCED, Guard.OTHER_EPOCH),
    )


_INIT: tuple[_Row, ...] = (
    _refuse(Event.INIT, _IDLE + _OPEN, _BUSY, Guard.WRITING),
    _refuse(Event.INIT, _IDLE, _FENCED, Guard.REPLACED),
    Row(_IDLE, Event.INIT, (Guard.MISSED_EPOCH,), Action.GIVE_AGAIN, TransactionState.EMPTY),
    _refuse(Event.INIT, _IDLE, _BUSY, Guard.NO_SPARE_ID),
    Row(_IDLE, Event.INIT, (Guard.EXHAUSTED,), Action.GIVE_SPARE_ID, TransactionState.EMPTY),
    Row(_IDLE, Event.INIT, (Guard.ENTITLED,), Action.GIVE_NEXT_EPOCH, TransactionState.EMPTY),
    # An open transaction in the new epoch proves that a producer has learnt that epoch.
    _refuse(Event.INIT, _OPEN, _FENCED, Guard.REPLACED, Guard.MISSED_EPOCH),
    Row(
        _OPEN,
        Event.INIT,
        (Guard.NO_SPARE_ID, Guard.EXHAUSTED, Guard.ENTITLED),
        Action.ABORT_AND_FENCE,
        TransactionState.PREPARE_ABORT,
        _BUSY,
    ),
    _refuse(Event.INIT, _PREPARED, _BUSY),
)

_ADD_PARTITIONS: tuple[_Row, ...] = (
    _refuse(Event.ADD_PARTITIONS, _IDLE + _OPEN, _BUSY, Guard.WRITING),
    *_fence(Event.ADD_PARTITIONS, _IDLE + _OPEN),
    Row(
        _IDLE,
        Event.ADD_PARTITIONS,
        (Guard.NOTHING_NEW, Guard.OWNER),
        Action.BEGIN,
        TransactionState.ONGOING,
    ),
    _nothing(Event.ADD_PARTITIONS, _OPEN, Guard.NOTHING_NEW),
    Row(_OPEN, Event.ADD_PARTITIONS, (Guard.OWNER,), Action.ADD),
    _refuse(Event.ADD_PARTITIONS, _PREPARED, _BUSY),
)

_APPEND: tuple[_Row, ...] = (
    *_fence(Event.APPEND, _IDLE + _OPEN + _PREPARED),
    _refuse(Event.APPEND, _IDLE + _OPEN, _BUSY, Guard.ENDING),
    _refuse(Event.APPEND, _IDLE, _NOT_OPEN, Guard.ADDED, Guard.NOT_ADDED),
    _nothing(Event.APPEND, _OPEN, Guard.ADDED),
    _refuse(Event.APPEND, _OPEN, _NOT_OPEN, Guard.NOT_ADDED),
    _refuse(Event.APPEND, _PREPARED, _BUSY, Guard.ENDING, Guard.ADDED, Guard.NOT_ADDED),
)


def _end(event: Event, *, is_commit: bool) -> tuple[_Row, ...]:
    """Returns the rows of EndTxn v0-4, which checks the producer first."""
    decided, undone = (_COMMITTED, _ABORTED) if is_commit else (_ABORTED, _COMMITTED)
    return (
        *_fence(event, _IDLE + _OPEN + _PREPARED),
        _refuse(event, _IDLE + _OPEN, _BUSY, Guard.WRITING),
        _refuse(event, _EMPTY + undone, _NOT_OPEN, Guard.OWNER),
        Row(decided, event, (Guard.OWNER,), Action.ANSWER_AGAIN),
        Row(_OPEN, event, (Guard.OWNER,), Action.PREPARE, _prepared(is_commit=is_commit)),
        _refuse(event, _PREPARED, _BUSY, Guard.WRITING, Guard.OWNER),
    )


def _prepared(*, is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _end_and_raise(event: Event, *, is_commit: bool) -> tuple[_Row, ...]:
    """Returns the rows of EndTxn v5, which raises the epoch. A producer that knows its next epoch uses
    it at once, so a busy id answers before it checks the producer."""
    decided, undone = (_COMMITTED, _ABORTED) if is_commit else (_ABORTED, _COMMITTED)
    return (
        _refuse(event, _IDLE + _OPEN, _BUSY, Guard.WRITING),
        Row(decided, event, (Guard.MISSED_END,), Action.ANSWER_AGAIN),
        _refuse(event, undone, _NOT_OPEN, Guard.MISSED_END),
        *_fence(event, _IDLE + _OPEN),
        _refuse(event, _OPEN, _BUSY, Guard.NO_SPARE_ID),
        Row(_OPEN, event, (Guard.OWNER,), Action.PREPARE, _prepared(is_commit=is_commit)),
        _refuse(event, _PREPARED, _BUSY),
    )


_END: tuple[_Row, ...] = (
    *_end(Event.COMMIT, is_commit=True),
    *_end(Event.ABORT, is_commit=False),
    *_end_and_raise(Event.COMMIT_AND_RAISE, is_commit=True),
    *_end_and_raise(Event.ABORT_AND_RAISE, is_commit=False),
    # In the new protocol a producer may abort what it has not begun: that also raises its epoch.
    _refuse(Event.COMMIT_AND_RAISE, _IDLE, _NOT_OPEN, Guard.NO_SPARE_ID, Guard.OWNER),
    _refuse(Event.ABORT_AND_RAISE, _IDLE, _BUSY, Guard.NO_SPARE_ID),
    Row(
        _IDLE,
        Event.ABORT_AND_RAISE,
        (Guard.OWNER,),
        Action.PREPARE_EMPTY,
        TransactionState.PREPARE_ABORT,
    ),
    Row(
        _COMMITTING,
        Event.MARKERS_WRITTEN,
        (Guard.ALWAYS,),
        Action.COMPLETE,
        TransactionState.COMPLETE_COMMIT,
    ),
    Row(
        _ABORTING,
        Event.MARKERS_WRITTEN,
        (Guard.ALWAYS,),
        Action.COMPLETE,
        TransactionState.COMPLETE_ABORT,
    ),
)

_TIME: tuple[_Row, ...] = (
    _nothing(Event.TIME_OUT, _IDLE + _PREPARED),
    _nothing(Event.TIME_OUT, _OPEN, Guard.WRITING),
    _nothing(Event.TIME_OUT, _OPEN, Guard.NOT_DUE),
    Row(
        _OPEN,
        Event.TIME_OUT,
        (Guard.DUE,),
        Action.ABORT_AND_FENCE,
        TransactionState.PREPARE_ABORT,
    ),
    _nothing(Event.EXPIRE, _OPEN + _PREPARED + _DEAD),
    _nothing(Event.EXPIRE, _IDLE, Guard.WRITING),
    _nothing(Event.EXPIRE, _IDLE, Guard.NOT_DUE),
    Row(_IDLE, Event.EXPIRE, (Guard.DUE,), Action.DELETE, TransactionState.DEAD),
)

_NOT_WHEN_DEAD: tuple[Event, ...] = tuple(event for event in Event if event is not Event.EXPIRE)

_IMPOSSIBLE: tuple[_Impossible, ...] = (
    *(Impossible(_DEAD, event, GUARDS[event]) for event in _NOT_WHEN_DEAD),
    Impossible(_EMPTY + _OPEN, Event.COMMIT_AND_RAISE, (Guard.MISSED_END,)),
    Impossible(_EMPTY + _OPEN, Event.ABORT_AND_RAISE, (Guard.MISSED_END,)),
    Impossible(_IDLE + _OPEN, Event.MARKERS_WRITTEN, (Guard.ALWAYS,)),
)

TRANSACTION_STATES = TransitionTable(
    _EMPTY + _OPEN + _PREPARED + _COMMITTED + _ABORTED + _DEAD,
    GUARDS,
    _INIT + _ADD_PARTITIONS + _APPEND + _END + _TIME,
    _IMPOSSIBLE,
)
