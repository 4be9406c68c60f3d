"""Subscriptions by regular expression: RE2's syntax, whole names, and no way to stop the broker."""

from __future__ import annotations

import pytest

from server.coordination.groups.consumer.topic_patterns import InvalidPattern, matching

NAMES = ("orders", "orders-eu", "events")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu"}),
        ("order", set()),
        (r"^\w+$", {"orders", "events"}),
        (".*", set(NAMES)),
        ("", set()),
    ],
)
def test_whole_names_match(pattern: str, expected: set[str]) -> None:
    assert matching(pattern, NAMES) == expected


@pytest.mark.parametrize("pattern", ["[", "(?=a)", r"(a)\1", "a" * 9 + "{1001}" * 3, "(" * 5000])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        matching(pattern, NAMES)


@pytest.mark.timeout(10)
def test_no_expression_takes_longer_than_its_length() -> None:
    assert matching("(a*)*b", ["a" * 249]) == frozenset()
