"""Which existing topics a group is subscribed to, however many names its members have."""

from __future__ import annotations

import pytest

from server.coordination.groups.consumer.topic_catalog import (
    NAMES_LOOKED_UP,
    existing,
    metadata_hash,
)
from tests.harness.consumer_world import ConsumerWorld

MANY = frozenset(f"absent-{number}" for number in range(NAMES_LOOKED_UP))


@pytest.mark.parametrize(
    "subscriptions",
    [
        pytest.param([{"a", "b", "absent"}], id="few"),
        pytest.param([{"a"}, {"b", "a"}, set()], id="several"),
        pytest.param([MANY | {"a", "b"}], id="many"),
        pytest.param([MANY | {"a"}, {"b"}], id="many_and_few"),
        pytest.param([MANY | {"a"}, MANY | {"b"}], id="several_of_many"),
        pytest.param([{f"{name}{n}" for n in range(600)} | {name} for name in "ab"], id="sum"),
    ],
)
def test_topics_are_found_by_lookup_and_by_scan_alike(subscriptions: list[set[str]]) -> None:
    topics = ConsumerWorld().topics
    for name in ("a", "b", "c"):
        topics.put(name, 1)

    assert sorted(topic.name for topic in existing(subscriptions, topics)) == ["a", "b"]
    assert metadata_hash(subscriptions, topics) == metadata_hash([{"a", "b"}], topics) != 0


def test_without_an_existing_topic_the_hash_is_0() -> None:
    assert metadata_hash([MANY, set()], ConsumerWorld().topics) == 0
