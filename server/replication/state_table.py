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
    RECORDS_GONE = "the source's log starts above the end here, and the source never deletes by age"
    STARTS_LATER = "the source's log starts above the end here"
    FITS = "it continues the log"
    ALWAYS = "always"


class Action(enum.StrEnum):
    """What a step does. `mirror.py` and `copying.py` have the methods."""

    NOTHING = "nothing"
    APPEND = "append what the source sent"
    SKIP = "move start and end to the source's start"
    CUT = "cut the log where it diverges"
    CHECK = "compare both logs"
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

GUARDS: dict[Event, tuple[Guard, ...]] = {
    event: ANSWERS if event is Event.ANSWER else (Guard.ALWAYS,) for event in Event
}
"""The guards of each event."""

_ASKING = (MirrorState.CHECKING, MirrorState.COPYING)
_WAITING = (MirrorState.RETRYING, MirrorState.UPGRADE_REQUIRED)
_RESTING = (MirrorState.PAUSED, MirrorState.FAILED)
_RUNNING = (*_ASKING, MirrorState.CUTTING, *_WAITING)
_STOPPED = (MirrorState.STOPPED,)
_ALWAYS = (Guard.ALWAYS,)

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
        Row(_WAITING, Event.DUE, _ALWAYS, Action.CHECK, MirrorState.CHECKING),
        # The copier waits for the end of a cut before it asks, also if the mirror was paused meanwhile.
        Row((*_ASKING, *_WAITING, *_RESTING), Event.CUT, _ALWAYS, Action.NOTHING),
        Row(_RUNNING, Event.PAUSE, _ALWAYS, Action.NOTHING, MirrorState.PAUSED),
        Row(_RESTING, Event.PAUSE, _ALWAYS, Action.NOTHING),
        Row((*_WAITING, *_RESTING), Event.RESUME, _ALWAYS, Action.CHECK, MirrorState.CHECKING),
        Row((*_ASKING, MirrorState.CUTTING), Event.RESUME, _ALWAYS, Action.NOTHING),
        Row((*_RUNNING, *_RESTING), Event.STOP, _ALWAYS, Action.END, MirrorState.STOPPED),
        Row(_STOPPED, Event.ANSWER, ANSWERS, Action.NOTHING),
        Row(_STOPPED, Event.CUT, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.DISK_FAILED, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.DUE, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.PAUSE, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.RESUME, _ALWAYS, Action.NOTHING),
        Row(_STOPPED, Event.STOP, _ALWAYS, Action.NOTHING),
    ],
    [
        Impossible((*_ASKING, MirrorState.CUTTING, *_RESTING), Event.DUE, _ALWAYS),
    ],
)
"""All combinations of state, event and guard."""
