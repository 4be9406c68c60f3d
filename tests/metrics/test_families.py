"""Samples from dictionaries that another thread changes meanwhile."""

from __future__ import annotations

from metrics.families import in_order
from tests.harness.garbage import at_every_collection


def test_items_are_in_the_order_of_their_keys() -> None:
    assert in_order({"b": 1, "a": 2}) == [("a", 2), ("b", 1)]


def test_a_count_that_appears_during_the_copy_does_not_fail_the_scrape() -> None:
    counts = {f"topic {number}": number for number in range(1000)}

    with at_every_collection(lambda: counts.update({f"new {len(counts)}": 0})):
        found = in_order(counts)

    assert len(found) >= 1000
    assert len(counts) > 1000, "a collection ran"
