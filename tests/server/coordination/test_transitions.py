"""Tables of states: a lookup for each combination, and a page that shows them as they are."""

from __future__ import annotations

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.transitions import Impossible, Row, Step, TransitionTable
from tests.harness.state_page import PAGE, updated
from tests.harness.state_tables import open_combinations

ROWS = (
    Row(("shut",), "push", ("locked",), "refuse", None, ErrorCode.INVALID_REQUEST),
    Row(("shut",), "push", ("unlocked",), "swing", "open"),
    Row(("open",), "push", ("unlocked",), "rest"),
)
GUARDS = {"push": ("locked", "unlocked")}
OPEN_IS_UNLOCKED = Impossible(("open",), "push", ("locked",))
DOOR = TransitionTable(("shut", "open"), GUARDS, ROWS, (OPEN_IS_UNLOCKED,))


def test_a_step_names_what_to_do_the_next_state_and_the_error() -> None:
    assert DOOR.step("shut", "push", "unlocked") == Step("swing", "open", ErrorCode.NONE)
    assert DOOR.step("open", "push", "unlocked") == Step("rest", "open", ErrorCode.NONE)
    refused = DOOR.step("shut", "push", "locked")
    assert refused == Step("refuse", "shut", ErrorCode.INVALID_REQUEST)


def test_an_impossible_combination_is_a_bug() -> None:
    with pytest.raises(KeyError):
        DOOR.step("open", "push", "locked")


def test_what_has_no_row_or_two_is_found() -> None:
    assert open_combinations(DOOR) == []
    without = TransitionTable(("shut", "open"), GUARDS, ROWS)
    assert open_combinations(without) == ["open | push | locked: 0 rows"]
    twice = TransitionTable(("shut", "open"), GUARDS, (*ROWS, ROWS[1]), (OPEN_IS_UNLOCKED,))
    assert open_combinations(twice) == ["shut | push | unlocked: 2 rows"]
    unknown = Impossible(("open",), "push", ("locked", "jammed"))
    beyond = TransitionTable(("shut", "open"), GUARDS, ROWS, (unknown,))
    assert open_combinations(beyond) == ["open | push | jammed: 1 rows"]


def test_the_page_shows_the_tables_as_they_are() -> None:
    """After a change: python -m tests.harness.state_page"""
    page = PAGE.read_text("utf-8")
    assert page == updated(page)
