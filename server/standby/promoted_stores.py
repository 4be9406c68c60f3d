"""What a promotion writes into the metadata stores: pure, from what is in them.

The cluster's store is the followed one, so its topics are the source's; the node's store is the
standby's own, so it has the placements of the mirrors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from server.metadata.producer_ids import KEY as NEXT_PRODUCER_ID
from server.metadata.store import Delete, Put
from server.standby.promotion import Promotion
from server.topics.keys import PLACED, TOPICS, UNSETTLED, placed_json, topic_value
from server.topics.names import parse_id
from server.topics.start import ClusterTopic, Placement, StoredTopics
from server.topics.topic import EVENTS_TOPIC
from storage.files.paths import topic_id_text

PROMOTIONS = "/promotions/"
"""An entry of the cluster's store for each promotion, by its time: its standby and its source."""
PRODUCER_IDS_SKIPPED = 1_000_000
"""Producer ids that the source may have handed out without the standby's knowledge: it reserves 1,000
at a time."""


class Placed(NamedTuple):
    """What to write into the node's store, and what of the metadata has no log here."""

    operations: list[Put | Delete]
    without_log: list[str]
    """A sentence for each partition that was never copied."""


def place(stored: StoredTopics, directory_id: str, *, written: Collection[str]) -> Placed:
    """Place the logs of the coordinators' topics, and those of partitions that no mirror has.

    Args:
        directory_id: the directory of all new logs.
        written: the names of the coordinators' topics, whose logs the promotion has written.
    """
    operations: list[Put | Delete] = []
    without_log: list[str] = []
    for topic in stored.topics:
        holders = _holders(stored.placed.get(topic.id))
        missing = topic.partitions_count - len(holders)
        if missing <= 0:
            continue
        first, topic_id = len(holders), topic_id_text(topic.id)
        holders = [*holders, *[directory_id] * missing]
        operations.append(Put(key=PLACED + topic_id, value=placed_json(topic.name, holders)))
        # A start opens those that are there, and creates the others.
        operations.append(Put(key=f"{UNSETTLED}{topic_id}/{first}", value=""))
        # Its events would be those of the other broker's passes.
        if topic.name not in written and topic.name != EVENTS_TOPIC:
            without_log += _without_log(topic, first)
    return Placed(operations, without_log)


def _holders(placed: Placement | None) -> Sequence[str]:
    return () if placed is None else placed.holders


def _without_log(topic: ClusterTopic, first: int) -> list[str]:
    return [
        f"{topic.name}-{number}: no record was copied before the promotion"
        for number in range(first, topic.partitions_count)
    ]


def promoted_metadata(
    promotion: Promotion, topics: Mapping[str, str], next_producer_id: int
) -> list[Put | Delete]:
    """Returns what to write into the cluster's store, once.

    Args:
        topics: the names of its topics, with their ids.
    """
    operations: list[Put | Delete] = [
        Put(
            key=f"{PROMOTIONS}{promotion.promoted_ms}",
            value=f"{promotion.standby} for {promotion.source}",
        ),
        Put(key=NEXT_PRODUCER_ID, value=str(next_producer_id + PRODUCER_IDS_SKIPPED)),
    ]
    operations += [
        Put(
            key=TOPICS + topic.name,
            value=topic_value(parse_id(topic.id), topic.partitions, topic.configs),
        )
        for topic in promotion.unknown_topics
        if topic.name not in topics
    ]
    return operations
