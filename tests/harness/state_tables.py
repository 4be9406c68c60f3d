"""What must hold of every table of states, and which of its rows a test has reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from server.coordination.transitions import Impossible, Row, Step, TransitionTable

Table = TransitionTable[Any, Any, Any, Any]
AnyRow = Row[Any, Any, Any, Any] | Impossible[Any, Any, Any]
Combination = tuple[Any, Any, Any]
"""A state, an event and a guard."""


def open_combinations(table: Table) -> list[str]:
    """Returns the combinations that do not have exactly one row, each as a text."""
    claims: Counter[Combination] = Counter(
        (state, each.event, guard)
        for each in all_rows(table)
        for state in each.states
        for guard in each.guards
    )
    found = dict.fromkeys(table.combinations(), 1)
    wrong = {key: claims[key] for key in found | claims if claims[key] != found.get(key, 0)}
    return [f"{describe(key)}: {count} rows" for key, count in wrong.items()]


def all_rows(table: Table) -> list[AnyRow]:
    """Returns the rows, then the combinations that cannot happen."""
    return [*table.rows, *table.impossible]


def describe(combination: Combination) -> str:
    state, event, guard = combination
    return f"{getattr(state, 'name', state)} | {event} | {guard}"


class Reached:
    """The combinations of a table that were looked up, and the steps of the current request."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.combinations: set[Combination] = set()
        self.steps: list[tuple[Combination, Step[Any, Any]]] = []
        """Cleared by the test before a request."""

    def check_chain(self, state: Any) -> None:
        """Check that each step begins where the one before ends, and that the last one ends here."""
        ends = [step.next_state for _, step in self.steps]
        begins = [combination[0] for combination, _ in self.steps]
        assert ends == [*begins[1:], state][: len(ends)], [describe(each) for each, _ in self.steps]

    def rows(self) -> set[tuple[Any, Row[Any, Any, Any, Any]]]:
        """Returns each row that was reached, with the state."""
        return {(state, row) for state, row in rows_by_state(self.table) if self._has(state, row)}

    def missed(self) -> list[str]:
        """Returns the rows that were not reached, each as a text, state by state."""
        return [
            f"{describe((state, row.event, ' or '.join(row.guards)))} -> {row.action}"
            for state, row in rows_by_state(self.table)
            if not self._has(state, row)
        ]

    def _has(self, state: Any, row: Row[Any, Any, Any, Any]) -> bool:
        return any((state, row.event, guard) in self.combinations for guard in row.guards)


def rows_by_state(table: Table) -> Iterator[tuple[Any, Row[Any, Any, Any, Any]]]:
    """Yields each row once for each of its states."""
    for row in table.rows:
        for state in row.states:
            yield state, row


@contextmanager
def recording(table: Table) -> Iterator[Reached]:
    """Record the lookups in a table."""
    reached = Reached(table)
    look_up = TransitionTable.step

    def step(each: Table, *combination: Any) -> Step[Any, Any]:
        found: Step[Any, Any] = look_up(each, *combination)
        if each is table:
            reached.combinations.add(combination)
            reached.steps.append((combination, found))
        return found

    with mock.patch.object(TransitionTable, "step", step):
        yield reached


ANSWERS = {"REFUSE", "ALLOW", "NOTHING"}
"""Actions that do nothing: the error code of such a step says it all."""


def acting_events(table: Table) -> list[Any]:
    """Returns the events that have other actions than ANSWERS."""
    acting = (row.event for row in table.rows if row.action.name not in ANSWERS)
    return list(dict.fromkeys(acting))


def check_actions_are_read(table: Table, event: Any, explore: Callable[[Reached], object]) -> None:
    """Check that the broker's code fails if a step of an event has an action that it cannot carry out.

    Otherwise it would ignore the action, so that the table would not say what happens.
    """
    look_up = TransitionTable.step

    def step(each: Table, *combination: Any) -> Step[Any, Any]:
        found: Step[Any, Any] = look_up(each, *combination)
        is_changed = each is table and combination[1] is event
        return replace(found, action="an action of no table") if is_changed else found

    with (
        mock.patch.object(TransitionTable, "step", step),
        recording(table) as reached,
        pytest.raises(AssertionError) as caught,
    ):
        explore(reached)
    failed = caught.traceback[-1].frame.f_globals["__name__"]
    assert failed.startswith("server."), "the code ignores the action"
