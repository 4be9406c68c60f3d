"""How the partitions of a source are spread over the connections of a link."""

from __future__ import annotations

import uuid

from server.replication.findings import SourceTopic
from server.replication.source_topics import FoundTopic, FoundTopics
from storage.formats.topic_partition import TopicPartition


def found(*leaders: str, name: str = "orders") -> FoundTopics:
    """Returns a source with one topic, given the leader of each partition; "" if it has none."""
    facts = SourceTopic(
        topic_id=uuid.UUID(int=1), partitions_count=len(leaders), compacts=False, deletes=False
    )
    topic = FoundTopic(
        name=name,
        facts=facts,
        overrides={},
        leaders={number: each for number, each in enumerate(leaders) if each},
        leader_epochs={},
    )
    return FoundTopics(cluster_id="c", topics={name: topic})


def numbers(led: dict[tuple[str, int], list[TopicPartition]]) -> dict[tuple[str, int], list[int]]:
    return {fetcher: [each.partition for each in partitions] for fetcher, partitions in led.items()}


def test_the_partitions_of_a_topic_are_spread_evenly_over_the_fetchers_of_their_leader() -> None:
    led = numbers(found("a", "a", "a", "a").led_by(2))
    assert sorted(led.values()) == [[0, 2], [1, 3]]
    assert {address for address, _ in led} == {"a"}


def test_a_partition_without_a_leader_has_no_fetcher() -> None:
    assert sorted(numbers(found("a", "").led_by(4)).values()) == [[0]]


def test_a_partition_keeps_the_number_of_its_fetcher_when_another_broker_leads_it() -> None:
    (before,) = found("a").led_by(3)
    (after,) = found("b").led_by(3)
    assert (before[0], after[0]) == ("a", "b")
    assert before[1] == after[1]


def test_topics_with_one_partition_each_are_spread_too() -> None:
    fetchers = {next(iter(found("a", name=f"topic-{each}").led_by(2))) for each in range(20)}
    assert len(fetchers) == 2
