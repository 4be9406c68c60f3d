"""Immutable objects: like frozen dataclasses, but mypy alone refuses assignments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.wire.value_class import value_class


@value_class
class Point:
    x: int
    y: int = 0


@value_class(kw_only=True)
class Named:
    name: str


def test_values_are_compared_hashed_and_shown_by_their_fields() -> None:
    assert Point(1) == Point(1, 0) != Point(1, 2)
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    assert repr(Point(1)) == "Point(x=1, y=0)"
    assert replace(Point(1), y=5) == Point(1, 5)


def test_values_have_slots_only() -> None:
    assert not hasattr(Point(1), "__dict__")
    assert Point.__slots__ == ("x", "y")  # type: ignore[attr-defined]


def test_fields_can_be_restricted_to_keywords() -> None:
    assert Named(name="a").name == "a"
    with pytest.raises(TypeError):
        Named("a")  # type: ignore[call-arg]


def _values_cannot_change(point: Point, named: Named) -> None:
    """Never runs: mypy reports the comments as unused if it ever allows the assignments."""
    point.x = 3  # type: ignore[misc]
    named.name = "b"  # type: ignore[misc]
