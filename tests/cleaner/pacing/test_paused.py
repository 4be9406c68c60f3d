"""The scopes of pauses."""

from __future__ import annotations

import uuid

from cleaner.pacing.paused import NOTHING_PAUSED, Paused, PauseScope

ORDERS, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def test_nothing_is_paused_at_first() -> None:
    assert NOTHING_PAUSED.scope_of(ORDERS, 0) is None


def test_the_widest_pause_is_the_one_that_is_named() -> None:
    partition = Paused(partitions=frozenset({(ORDERS, 1)}))
    topic = Paused(topics=frozenset({ORDERS}), partitions=frozenset({(ORDERS, 1)}))

    assert partition.scope_of(ORDERS, 1) is PauseScope.PARTITION
    assert partition.scope_of(ORDERS, 0) is None
    assert topic.scope_of(ORDERS, 1) is PauseScope.TOPIC
    assert topic.scope_of(OTHER, 1) is None
    assert Paused(everything=True).scope_of(OTHER, 1) is PauseScope.EVERYTHING
