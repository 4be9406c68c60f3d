"""The topic whose last values an HTTP request asks for, and its logs. Raises refusals."""

from __future__ import annotations

from collections.abc import Iterable

from server.admin.refusals import UNKNOWN_TOPIC, CompactionRefused
from server.topics.topic import Topic
from server.topics.topics import Topics
from server.views.snapshot_topic import SnapshotTopic, snapshot_topic_name
from server.views.snapshot_topics import SnapshotTopics
from storage.log.log import PartitionLog

AskedTopic = Topic | SnapshotTopic


def asked_topic(topics: Topics, name: str) -> Topic:
    """Returns the topic of a request, which keeps the last value of each key.

    Raises:
        CompactionRefused: it does not, it does not exist, or it is the broker's own.
    """
    topic = topics.get(name)
    if topic is None:
        raise CompactionRefused(404, f"there is no topic {name}", code=UNKNOWN_TOPIC)
    if topic.is_internal:
        raise CompactionRefused(
            409, f"{name} is internal: its records are the broker's own", code="internal"
        )
    _check_compacted(topic)
    return topic


async def asked_in_snapshot(
    snapshots: SnapshotTopics, name: str, snapshot_id: str
) -> SnapshotTopic:
    """Returns the topic of a request as it is in a snapshot, with its logs open.

    Raises:
        CompactionRefused: the snapshot does not exist or does not have the topic, or the topic does not
            keep the last value of each key.
    """
    topic = snapshots.get(snapshot_topic_name(name, snapshot_id))
    if topic is None:
        raise CompactionRefused(
            404, f"there is no snapshot {snapshot_id} with topic {name}", code="unknown_snapshot"
        )
    _check_compacted(topic)
    return await snapshots.opened(topic)


def _check_compacted(topic: AskedTopic) -> None:
    if not topic.config.is_compacted:
        raise CompactionRefused(
            409,
            f"{topic.name} does not keep the last value of each key: its cleanup.policy lacks compact",
            code="not_compacted",
        )


def check_exists(topics: Topics, topic: Topic) -> None:
    """Raises CompactionRefused if a topic was deleted meanwhile."""
    if asked_topic(topics, topic.name).id != topic.id:
        raise CompactionRefused(
            404, f"topic {topic.name} was deleted and created again", code=UNKNOWN_TOPIC
        )


def check_partition(topic: AskedTopic, partition: int) -> None:
    """Raises CompactionRefused if a topic has no such partition."""
    count = len(topic.partitions)
    if partition >= count:
        raise CompactionRefused(
            404,
            f"topic {topic.name} has no partition {partition}: it has {count}, counted from 0",
            code="unknown_partition",
        )


def logs_of(topic: AskedTopic, numbers: Iterable[int]) -> dict[int, PartitionLog]:
    """Returns the logs of some partitions, by their numbers. Raises CompactionRefused."""
    found = {}
    for number in sorted(numbers):
        log = topic.partitions[number]
        if not isinstance(log, PartitionLog) or log.offline_reason is not None:
            raise CompactionRefused(
                503, f"{log.topic_partition} is offline: {log.offline_reason}", code="offline"
            )
        found[number] = log
    return found
