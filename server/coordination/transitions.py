"""Tables of state machines: the step that a state takes at an event, for each guard of the event.

A guard is a named condition. At an event exactly one of the event's guards holds, and a table has
exactly one row for each combination of state, event and guard: what to do, the next state, and the error
code to answer. Combinations that cannot happen are also listed, so that a table leaves nothing open; to
look one up is a bug and raises KeyError.

docs/design/states.md is generated from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

from protocol.wire.error_codes import ErrorCode

StateT = TypeVar("StateT")
EventT = TypeVar("EventT")
GuardT = TypeVar("GuardT")
ActionT = TypeVar("ActionT")


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT, ActionT]):
    """The step of one state at an event."""

    action: ActionT
    next_state: StateT
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class Row(Generic[StateT, EventT, GuardT, ActionT]):
    """A step that several states have in common, under any of these guards."""

    states: tuple[StateT, ...]
    event: EventT
    guards: tuple[GuardT, ...]
    action: ActionT
    next_state: StateT | None = None
    """None: the state stays as it is."""
    error_code: ErrorCode = ErrorCode.NONE

    def step(self, state: StateT) -> Step[StateT, ActionT]:
        """Returns the step of one of its states."""
        next_state = state if self.next_state is None else self.next_state
        return Step(self.action, next_state, self.error_code)


@dataclass(frozen=True, slots=True)
class Impossible(Generic[StateT, EventT, GuardT]):
    """Combinations that cannot happen."""

    states: tuple[StateT, ...]
    event: EventT
    guards: tuple[GuardT, ...]


class TransitionTable(Generic[StateT, EventT, GuardT, ActionT]):
    """The rows of one state machine, with a lookup in constant time."""

    __slots__ = ("_steps", "guards", "impossible", "rows", "states")

    def __init__(
        self,
        states: Iterable[StateT],
        guards: Mapping[EventT, tuple[GuardT, ...]],
        rows: Iterable[Row[StateT, EventT, GuardT, ActionT]],
        impossible: Iterable[Impossible[StateT, EventT, GuardT]] = (),
    ) -> None:
        """Build the lookup.

        Args:
            guards: the guards of each event.
        """
        self.states = tuple(states)
        self.guards = guards
        self.rows = tuple(rows)
        self.impossible = tuple(impossible)
        self._steps: dict[tuple[StateT, EventT], dict[GuardT, Step[StateT, ActionT]]] = {
            key: {} for key in product(self.states, guards)
        }
        for row in self.rows:
            for state in row.states:
                step = row.step(state)
                self._steps[state, row.event].update(dict.fromkeys(row.guards, step))

    def step(self, state: StateT, event: EventT, guard: GuardT) -> Step[StateT, ActionT]:
        """Returns the step. Raises KeyError if the combination cannot happen."""
        return self._steps[state, event][guard]

    def combinations(self) -> Iterator[tuple[StateT, EventT, GuardT]]:
        """Yields every combination of state, event and guard of the event."""
        for state, event in product(self.states, self.guards):
            for guard in self.guards[event]:
                yield state, event, guard
