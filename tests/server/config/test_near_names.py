"""A mistyped name gets a suggestion; an unrelated one does not."""

from __future__ import annotations

import pytest

from server.config.near_names import NAMES_MAX, hint

TOPICS = ["accounts", "prices", "orders.v1"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("accouunts", "accounts"), ("Prices", "prices"), ("orders-v1", "orders.v1")],
)
def test_a_slip_is_recognised(typed: str, meant: str) -> None:
    assert hint(typed, TOPICS) == f"; did you mean {meant}?"


def test_nothing_is_guessed_for_another_name() -> None:
    assert hint("nope", TOPICS) == ""
    assert hint("accounts", []) == ""


def test_a_great_many_names_are_not_searched() -> None:
    assert hint("accouunts", ["accounts", *map(str, range(NAMES_MAX))]) == ""
