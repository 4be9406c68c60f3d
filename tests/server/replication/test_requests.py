"""A link's requests to its source, and how their answers are read."""

from __future__ import annotations

from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.wire.numbers import Epoch, Offset
from protocol.wire.primitives import ZERO_UUID
from server.replication.requests import Asked, Fetched, fetch_answers
from storage.formats.topic_partition import TopicPartition


def test_a_source_without_topic_ids_does_not_mix_topics_up() -> None:
    """Kafka 2.7 (Metadata 9), or an inter.broker.protocol.version below 2.8: every id is zero."""
    partitions = [("a", 0), ("a", 1), ("b", 1)]  # b-0 has another leader.
    asked = [Asked(TopicPartition(*each), ZERO_UUID, Offset(0), Epoch(-1)) for each in partitions]
    topics = [
        FetchableTopicResponse(
            topic=name,
            partitions=tuple(
                PartitionData(
                    partition_index=number,
                    error_code=0,
                    high_watermark=1,
                    records=f"{name}-{number}".encode(),
                )
                for topic, number in partitions
                if topic == name
            ),
        )
        for name in ("a", "b")
    ]
    found = fetch_answers(asked, FetchResponse(responses=tuple(topics)))
    assert {str(each): bytes(found[each].records).decode() for each in found} == {
        "a-0": "a-0",
        "a-1": "a-1",
        "b-1": "b-1",
    }


def test_only_an_answer_about_one_partition_says_that_there_is_a_gap() -> None:
    """Another partition may have taken the room, also one behind it in the answer."""
    partitions = [TopicPartition("t", number) for number in range(2)]
    asked = [Asked(each, ZERO_UUID, Offset(0), Epoch(-1)) for each in partitions]

    def answers(count: int) -> dict[TopicPartition, Fetched]:
        found = tuple(
            PartitionData(partition_index=number, error_code=0, high_watermark=5, records=b"")
            for number in range(count)
        )
        responses = (FetchableTopicResponse(topic="t", partitions=found),)
        return fetch_answers(asked[:count], FetchResponse(responses=responses))

    assert all(each.seems_to_have_gap_from(Offset(0)) for each in answers(2).values())
    assert not any(each.has_gap_from(Offset(0)) for each in answers(2).values())
    assert answers(1)[partitions[0]].has_gap_from(Offset(0))
