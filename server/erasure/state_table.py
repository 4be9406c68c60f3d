"""The states of an erasure as a table: its step at each event under each guard.

`erasures.py` names the guard that holds, and looks its steps up here. The table as a page, with its
diagram: docs/design/states.md.
"""

from __future__ import annotations

import enum

from server.coordination.transitions import Impossible, Row, TransitionTable


class ErasureState(enum.StrEnum):
    """What an erasure waits for. The values are shown to users, and stored."""

    CLEANING = "cleaning"
    """Records of the key may be below its offsets."""
    HELD = "held"
    """No record is in the log, but files are left that had some."""
    ERASED = "erased"
    """Nothing is left below its offsets, and that is certified. The tombstones wait."""
    COMPLETE = "complete"
    """The tombstones are gone as well, and that is certified."""
    ENDED = "ended"
    """The topic was deleted."""

    @property
    def is_final(self) -> bool:
        return self in _FINAL


class Event(enum.StrEnum):
    """What happens to an erasure. The values are the names in the documentation."""

    LOOK = "look at the logs"
    DELETED = "the topic is gone"


class Guard(enum.StrEnum):
    """A condition of an event; those of a look are asked in this order, and the first one counts."""

    LEFT = "records are left, or it is not proven that none is"
    KEPT = "a file is left that had such records"
    TOMBSTONE = "a tombstone is left"
    NOTHING = "nothing is left"
    ALWAYS = "always"


class Action(enum.StrEnum):
    """What a step does. `erasures.py` has the methods."""

    WORK = "clean, then prove"
    WAIT = "wait for what holds it"
    CERTIFY = "issue the certificate"
    WITHDRAW = "withdraw the certificate, and log an error"
    END = "wait no longer"


LOOKS = (Guard.LEFT, Guard.KEPT, Guard.TOMBSTONE, Guard.NOTHING)
"""The guards of a look, in their order."""

_ALWAYS = (Guard.ALWAYS,)
GUARDS: dict[Event, tuple[Guard, ...]] = {Event.LOOK: LOOKS, Event.DELETED: _ALWAYS}

_UNCERTIFIED = (ErasureState.CLEANING, ErasureState.HELD)
_ERASED = (ErasureState.ERASED,)
_FINAL = (ErasureState.COMPLETE, ErasureState.ENDED)

ERASURE_STATES: TransitionTable[ErasureState, Event, Guard, Action] = TransitionTable(
    ErasureState,
    GUARDS,
    [
        Row(_UNCERTIFIED, Event.LOOK, (Guard.LEFT,), Action.WORK, ErasureState.CLEANING),
        Row(_UNCERTIFIED, Event.LOOK, (Guard.KEPT,), Action.WAIT, ErasureState.HELD),
        Row(_UNCERTIFIED, Event.LOOK, (Guard.TOMBSTONE,), Action.CERTIFY, ErasureState.ERASED),
        Row(_UNCERTIFIED, Event.LOOK, (Guard.NOTHING,), Action.CERTIFY, ErasureState.COMPLETE),
        # Files of an older state of the log were put back.
        Row(_ERASED, Event.LOOK, (Guard.LEFT,), Action.WITHDRAW, ErasureState.CLEANING),
        # The file had the tombstone.
        Row(_ERASED, Event.LOOK, (Guard.KEPT,), Action.WAIT),
        Row(_ERASED, Event.LOOK, (Guard.TOMBSTONE,), Action.WORK),
        Row(_ERASED, Event.LOOK, (Guard.NOTHING,), Action.CERTIFY, ErasureState.COMPLETE),
        Row((*_UNCERTIFIED, *_ERASED), Event.DELETED, _ALWAYS, Action.END, ErasureState.ENDED),
    ],
    [
        # Final erasures are not looked at.
        Impossible(_FINAL, Event.LOOK, LOOKS),
        Impossible(_FINAL, Event.DELETED, _ALWAYS),
    ],
)
"""All combinations of state, event and guard."""
