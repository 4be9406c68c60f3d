"""Writes the diagrams and tables of docs/design/states.md from the tables of states.

python -m tests.harness.state_page    update the page
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from server.coordination.groups.classic.state_table import GROUP_STATES, GroupState
from server.coordination.groups.consumer.member import MemberState
from server.coordination.groups.consumer.member_state_table import MEMBER_STATES
from server.coordination.transactions.metadata import TransactionState
from server.coordination.transactions.state_table import TRANSACTION_STATES
from server.coordination.transitions import Impossible
from server.erasure.state_table import ERASURE_STATES, ErasureState
from server.replication.state_table import MIRROR_STATES, MirrorState
from tests.harness.state_tables import AnyRow, Table, all_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "states.md"
HEADER = ("| State | Guard | Action | Next state | Error |", "|---|---|---|---|---|")


def updated(page: str) -> str:
    """Returns the page with its parts made from the tables."""
    parts = {
        "transactions": described(
            TRANSACTION_STATES, first=TransactionState.EMPTY, last=TransactionState.DEAD
        ),
        "groups": described(GROUP_STATES, first=GroupState.EMPTY),
        "members": described(MEMBER_STATES, first=MemberState.STABLE),
        "mirrors": described(MIRROR_STATES, first=MirrorState.CHECKING, last=MirrorState.STOPPED),
        "erasures": described(
            ERASURE_STATES, first=ErasureState.CLEANING, last=ErasureState.COMPLETE
        ),
    }
    for name, lines in parts.items():
        before, begin, rest = page.partition(f"<!-- {name}: begin -->\n")
        _, end, after = rest.partition(f"<!-- {name}: end -->\n")
        page = "\n".join((before + begin, *lines, "", end + after))
    return page


def described(table: Table, *, first: enum.Enum, last: enum.Enum | None = None) -> Iterator[str]:
    """Yields the diagram, then the rows of each event."""
    yield from diagram(table, first=first, last=last)
    for event in table.guards:
        yield from ("", f"**{event}**", "", *HEADER)
        for row in all_rows(table):
            if row.event is event:
                yield _line(table, row)


def diagram(table: Table, *, first: enum.Enum, last: enum.Enum | None) -> Iterator[str]:
    """Yields a Mermaid diagram with an arrow for each pair of states, named by its events."""
    arrows: dict[tuple[str, str], dict[str, None]] = {}
    for row in table.rows:
        for state in row.states:
            if row.next_state is not None:
                arrow = arrows.setdefault((title(state), title(row.next_state)), {})
                arrow[_label(table, state, row)] = None
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {title(first)}")
    for (before, after), events in arrows.items():
        yield f"    {before} --> {after} : {'<br/>'.join(events)}"
    if last is not None:
        yield f"    {title(last)} --> [*]"
    yield "```"


def _label(table: Table, state: enum.Enum, row: AnyRow) -> str:
    """Returns the event, with the guards if these decide between several states."""
    nexts = {
        each.next_state
        for each in table.rows
        if each.event is row.event and state in each.states and each.next_state is not None
    }
    return f"{row.event} ({' or '.join(row.guards)})" if len(nexts) > 1 else str(row.event)


def _line(table: Table, row: AnyRow) -> str:
    is_all = set(row.guards) == set(table.guards[row.event])
    cells = [
        _listed(map(title, row.states), table.states, row.states),
        "any" if is_all else "; ".join(row.guards),
    ]
    if isinstance(row, Impossible):
        return _joined([*cells, "cannot happen", "", ""])
    next_state = "" if row.next_state is None else title(row.next_state)
    error = row.error_code.name if row.error_code else ""
    return _joined([*cells, str(row.action), next_state, error])


def _listed(names: Iterable[str], every: tuple[Any, ...], states: tuple[Any, ...]) -> str:
    return "any" if set(states) == set(every) else ", ".join(names)


def _joined(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def title(state: enum.Enum) -> str:
    """Returns the name that clients see."""
    is_named = isinstance(state, GroupState)
    return state.value if is_named else state.name.title().replace("_", "")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
