"""A link looks at its source's topics as soon as an answer shows that they have changed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from server.replication.link import Link
from server.replication.link_source import CHANGED
from server.replication.link_spec import LinkSpec
from server.replication.requests import FetchBounds
from server.replication.slots import OF_ONE_SLOT
from server.replication.source_topics import FoundTopic, FoundTopics
from server.replication.state_table import MirrorState
from tests.harness.mirror_world import TOPIC, TOPIC_ID, MirrorWorld

BOUNDS = FetchBounds(wait_ms=0, min_bytes=0, max_bytes=0, partition_max_bytes=0)


class Topics:
    """The mirrors' topics, as far as a link asks them here."""

    def source_id(self, _: str) -> uuid.UUID:
        return TOPIC_ID


class RefusingCoordinator:
    """A source that refuses each slot with one error."""

    def __init__(self, error: ErrorCode) -> None:
        self.error = error

    async def call(self, request: OffsetCommitRequest, *_: object) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=self.error
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )


def link_with_one_mirror() -> Link:
    """Returns the link of a standby whose only mirror has no slot yet."""
    topics: Any = Topics()
    nothing: Any = None
    link = Link(
        LinkSpec(name="standby", own_group="standby.x", bootstrap="a:1", is_standby=True),
        topics,
        nothing,
        nothing,
        nothing,
        bounds=BOUNDS,
        fetchers=1,
        cluster_id="c",
        sparse_level=lambda: 1,
        is_fenced=nothing,
        now_ms=lambda: 1_000,
        monotonic=lambda: 1.0,
    )
    mirror = MirrorWorld(seed=0).mirror
    mirror.slot = None
    link._mirrors[mirror.log.topic_partition] = mirror
    name = mirror.log.topic_partition.topic
    found = FoundTopic(
        name=name,
        facts=TOPIC,
        overrides={},
        leaders={0: "a:1"},
        leader_epochs={0: 3},
        leader_ids={0: 2},
    )
    link.source.found = FoundTopics(cluster_id="c", topics={name: found})
    return link


@pytest.mark.parametrize("error", sorted(OF_ONE_SLOT), ids=lambda error: error.name)
async def test_a_refused_slot_that_shows_a_changed_topic_lets_the_link_look_again(
    error: ErrorCode,
) -> None:
    """A topic can be deleted before its first slot is committed: no fetch asks for it then, so only this
    answer shows that it is gone, and a promotion waits for a standby that knows."""
    link = link_with_one_mirror()
    coordinator: Any = RefusingCoordinator(error)
    await link._commit(coordinator)
    (mirror,) = link.mirrors()
    assert mirror.state is MirrorState.RETRYING
    assert link.source.is_stale is (error in CHANGED)
