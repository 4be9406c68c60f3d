"""The states of a mirrored partition as a table: the step of each state at each event under each guard.

`mirror.py` looks its steps up here, and `findings.py` names the guard that holds. The table as a page,
with its diagram: docs/design/states.md.

Source: founding document 002 (stream replication with log compaction); KIP-1279 (states of a mirror).
"""

from __future__ import annotations

import enum

from server.coordination.transitions import Impossible, Row, TransitionTable


class MirrorState(enum.StrEnum):
    """What a mirrored partition does. The values are shown to users."""

    CHECKING = "checking"
    """Both logs are compared."""
    CUTTING = "cutting"
    """Records that the source no longer has are cut off."""
    COPYING = "copying"
    RESYNC = "resync"
    """A new copy is filled beside the log, from the source's start on."""
    RETRYING = "retrying"
    """It waits for its next attempt."""
    UPGRADE_REQUIRED = "upgrade-required"
    """This cluster's feature level cannot hold a log with gaps; nothing is written."""
    PAUSED = "paused"
    FAILED = "failed"
    """An operator must decide."""
    STOPPED = "stopped"
    """The link was deleted, or the topic was promoted."""


class Event(enum.StrEnum):
    """What happens to a mirrored partition. The values are the names in the documentation."""

    ANSWER = "answer of the source"
    CUT = "the cut is durable"
    DISK_FAILED = "the disk failed"
    DUE = "its next attempt is due"
    PAUSE = "pause"
    RESUME = "resume"
    RESYNC = "resync"
    """It is requested, or was under way before a restart."""
    SWAPPED = "the new copy has taken the log's place"
    STOP = "stop"


class Guard(enum.StrEnum):
    """A condition of an event; those of an answer are asked in this order, and the first one counts."""

    OTHER_TOPIC = "another topic id: the topic was deleted and created again"
    GONE = "the source has no such topic or partition"
    ERROR = "no answer, an error, or a damaged batch"
    TOO_OLD = "this cluster cannot hold a log with gaps"
    SOURCE_LOST = "the source has lost records that are here"
    DIVERGES_IN_CLEAN = "the logs diverge below what was cleaned here"
    DIVERGES = "the logs diverge"
    MISSED_TOMBSTONES = "the source may have removed tombstones that are not here"
    RECORDS_GONE = (
        "the source has deleted what follows here, or what it had here, and its topic is only compacted"
        " or this log may have records of its own"
    )
    STARTS_LATER = "the source's log starts above the end here"
    FITS = "it continues the log"
    NEW_COPY = "a new copy has begun"
    NO_COPY = "no new copy has begun"
    ALWAYS = "always"


class Action(enum.StrEnum):
    """What a step does. `mirror.py` and `copying.py` have the methods."""

    NOTHING = "nothing"
    APPEND = "append what the source sent"
    SKIP = "move start and end to the source's start"
    CUT = "cut the log where it diverges"
    CHECK = "compare both logs"
    BEGIN = "begin an empty new copy"
    CONTINUE = "continue the new copy"
    DROP = "drop the new copy, keep the log, and say what an operator must do"
    WAIT = "wait, each time twice as long"
    REPORT = "say what an operator must do"
    END = "let go of the log"


ANSWERS = (
    Guard.OTHER_TOPIC,
    Guard.GONE,
    Guard.ERROR,
    Guard.TOO_OLD,
    Guard.SOURCE_LOST,
    Guard.DIVERGES_IN_CLEAN,
    Guard.DIVERGES,
    Guard.MISSED_TOMBSTONES,
    Guard.RECORDS_GONE,
    Guard.STARTS_LATER,
    Guard.FITS,
)
FINAL = (
    Guard.OTHER_TOPIC,
    Guard.GONE,
    Guard.SOURCE_LOST,
    Guard.DIVERGES_IN_CLEAN,
    Guard.MISSED_TOMBSTONES,
    Guard.RECORDS_GONE,
)
"""What only an operator can decide: each would lose records that may be the last copy, or keep deleted
ones."""

_COPIES = (Guard.NEW_COPY, Guard.NO_COPY)
_ALWAYS = (Guard.ALWAYS,)
GUARDS: dict[Event, tuple[Guard, ...]] = {
    event: {Event.ANSWER: ANSWERS, Event.DUE: _COPIES, Event.RESUME: _COPIES}.get(event, _ALWAYS)
    for event in Event
}
"""The guards of each event."""

_ASKING = (MirrorState.CHECKING, MirrorState.COPYING)
_WAITING = (MirrorState.RETRYING, MirrorState.UPGRADE_REQUIRED)
_RESTING = (MirrorState.PAUSED, MirrorState.FAILED)
_RESYNC = (MirrorState.RESYNC,)
_RUNNING = (*_ASKING, MirrorState.CUTTING, *_RESYNC, *_WAITING)
_STOPPED = (MirrorState.STOPPED,)

MIRROR_STATES: TransitionTable[MirrorState, Event, Guard, Action] = TransitionTable(
    MirrorState,
    GUARDS,
    [
        Row(_ASKING, Event.ANSWER, FINAL, Action.REPORT, MirrorState.FAILED),
        Row(_ASKING, Event.ANSWER, (Guard.ERROR,), Action.WAIT, MirrorState.RETRYING),
        Row(_ASKING, Event.ANSWER, (Guard.TOO_OLD,), Action.WAIT, MirrorState.UPGRADE_REQUIRED),
        Row(_ASKING, Event.ANSWER, (Guard.DIVERGES,), Action.CUT, MirrorState.CUTTING),
        Row(_ASKING, Event.ANSWER, (Guard.STARTS_LATER,), Action.SKIP, MirrorState.COPYING),
        Row(_ASKING, Event.ANSWER, (Guard.FITS,), Action.APPEND, MirrorState.COPYING),
        Row(
            _RESYNC,
            Event.ANSWER,
            (Guard.OTHER_TOPIC, Guard.GONE, Guard.MISSED_TOMBSTONES),
            Action.DROP,
            MirrorState.FAILED,
        ),
        Row(_RESYNC, Event.ANSWER, (Guard.ERROR,), Action.WAIT, MirrorState.RETRYING),
        Row(_RESYNC, Event.ANSWER, (Guard.TOO_OLD,), Action.WAIT, MirrorState.UPGRADE_REQUIRED),
        # The new copy holds nothing that could be lost.
        Row(
            _RESYNC,
            Event.ANSWER,
            (Guard.SOURCE_LOST, Guard.DIVERGES_IN_CLEAN, Guard.DIVERGES),
            Action.BEGIN,
        ),
        Row(_RESYNC, Event.ANSWER, (Guard.RECORDS_GONE, Guard.STARTS_LATER), Action.SKIP),
        Row(_RESYNC, Event.ANSWER, (Guard.FITS,), Action.APPEND),
        # The answer to a request that was sent before the state changed.
        Row((*_WAITING, *_RESTING, MirrorState.CUTTING), Event.ANSWER, ANSWERS, Action.NOTHING),
        Row((MirrorState.CUTTING,), Event.CUT, _ALWAYS, Action.CHECK, MirrorState.CHECKING),
        Row(
            (*_RUNNING, *_RESTING),
            Event.DISK_FAILED,
            _ALWAYS,
            Action.REPORT,
            MirrorState.FAILED,
        ),
        Row(_WAITING, Event.DUE, (Guard.NO_COPY,), Action.CHECK, MirrorState.CHECKING),
        Row(_WAITING, Event.DUE, (Guard.NEW_COPY,), Action.CONTINUE, MirrorState.RESYNC),
        # The copier waits for the end of a cut before it asks, also if the mirror was paused meanwhile.
        Row((*_ASKING, *_RESYNC, *_WAITING, *_RESTING), Event.CUT, _ALWAYS, Action.NOTHING),
        Row(_RUNNING, Event.PAUSE, _ALWAYS, Action.NOTHING, MirrorState.PAUSED),
        Row(_RESTING, Event.PAUSE, _ALWAYS, Action.NOTHING),
        Row(
            (*_WAITING, *_RESTING),
            Event.RESUME,
            (Guard.NO_COPY,),
            Action.CHECK,
            MirrorState.CHECKING,
        ),
        Row(
            (*_WAITING, MirrorState.PAUSED),
            Event.RESUME,
            (Guard.NEW_COPY,),
            Action.CONTINUE,
            MirrorState.RESYNC,
        ),
        Row((*_ASKING, MirrorState.CUTTING), Event.RESUME, (Guard.NO_COPY,), Action.NOTHING),
        Row(_RESYNC, Event.RESUME, (Guard.NEW_COPY,), Action.NOTHING),
        # From CHECKING only after a restart: the slot at the source remembers the resync.
        Row(
            (MirrorState.CHECKING, MirrorState.FAILED),
            Event.RESYNC,
            _ALWAYS,
            Action.BEGIN,
            MirrorState.RESYNC,
        ),
        Row(_RESYNC, Event.SWAPPED, _ALWAYS, Action.CHECK, MirrorState.CHECKING),
        # A swap that has begun ends, also if the mirror was paused or has failed meanwhile.
        Row(
            (*_ASKING, MirrorState.CUTTING, *_WAITING, *_RESTING),
            Event.SWAPPED,
            _ALWAYS,
            Action.NOTHING,
        ),
        Row((*_RUNNING, *_RESTING), Event.STOP, _ALWAYS, Action.END, MirrorState.STOPPED),
        Row(_STOPPED, Event.ANSWER, ANSWERS, Action.NOTHING),
        Row(_STOPPED, Event.CUT, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.DISK_FAILED, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.DUE, _COPIES, Action.NOTHING),
        Row(_STOPPED, Event.PAUSE, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.RESUME, _COPIES, Action.NOTHING),
        Row(_STOPPED, Event.RESYNC, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.SWAPPED, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.STOP, _ALWAYS, Action.NOTHING),
    ],
    [
        Impossible((*_ASKING, *_RESYNC, MirrorState.CUTTING, *_RESTING), Event.DUE, _COPIES),
        Impossible(
            (*_ASKING, MirrorState.CUTTING, MirrorState.FAILED), Event.RESUME, (Guard.NEW_COPY,)
        ),
        Impossible(_RESYNC, Event.RESUME, (Guard.NO_COPY,)),
        # A request is refused before.
        Impossible(
            (MirrorState.COPYING, *_RESYNC, MirrorState.CUTTING, *_WAITING, MirrorState.PAUSED),
            Event.RESYNC,
            _ALWAYS,
        ),
    ],
)
"""All combinations of state, event and guard."""
