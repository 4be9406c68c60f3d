"""What an answer means to a link: with what it knows of its source, and of the logs here."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.client.access import Access
from server.replication.findings import SourceAnswer, Verdict
from server.replication.link_source import LinkSource
from server.replication.source_topics import FoundTopic, FoundTopics
from server.replication.state_table import Event, Guard
from tests.harness.mirror_world import TOPIC, TOPIC_ID, MirrorWorld


class Topics:
    """The mirrors' topics, as far as a judgement needs them."""

    def source_id(self, _: str) -> uuid.UUID:
        return TOPIC_ID


async def world_with(records: int) -> MirrorWorld:
    """Returns a source and a mirror that has all of its records."""
    world = MirrorWorld(seed=0)
    for _ in range(records):
        world.source.append((b"k", b"v"))
    world._remember(0)
    await world.settle()
    return world


def source_of(world: MirrorWorld, *, may_have_own: bool) -> LinkSource:
    topics: Any = Topics()
    source = LinkSource(
        topics,
        Access(),
        is_standby=True,
        may_have_own=may_have_own,
        sparse_level=lambda: 1,
        now_ms=lambda: world.now_ms,
    )
    name = world.copy.log.topic_partition.topic
    facts = replace(TOPIC, deletes=True)
    found = FoundTopic(name=name, facts=facts, overrides={}, leaders={0: "a:1"}, leader_epochs={})
    source.found = FoundTopics(cluster_id="c", topics={name: found})
    return source


STARTS_LATER = SourceAnswer(
    error_code=ErrorCode.OFFSET_OUT_OF_RANGE, start=Offset(150), high_watermark=Offset(200)
)


@pytest.mark.parametrize(
    ("may_have_own", "is_copy", "records", "expected"),
    [
        (False, False, 3, Guard.STARTS_LATER),
        (True, True, 3, Guard.STARTS_LATER),
        (True, False, 0, Guard.STARTS_LATER),
        (True, False, 3, Guard.RECORDS_GONE),
    ],
    ids=["has-not-led", "is-a-copy", "is-empty", "may-have-its-own"],
)
async def test_a_log_that_may_have_records_of_its_own_does_not_start_over(
    may_have_own: bool, is_copy: bool, records: int, expected: Guard
) -> None:
    """They would be the last copy of what this broker has acknowledged as a primary."""
    world = await world_with(records)
    world.copy.log.declare_copy(is_copy=is_copy)

    verdict = source_of(world, may_have_own=may_have_own).judge(world.mirror, STARTS_LATER)

    assert verdict.guard is expected


def later(offset: int) -> Verdict:
    return Verdict(guard=Guard.STARTS_LATER, offset=Offset(offset), reason="they are gone")


async def test_a_mirror_that_was_stopped_since_the_verdict_keeps_its_records() -> None:
    world = await world_with(3)
    before = world.copy.records()
    world.mirror.happened(Event.PAUSE)

    await world.writer.skip(world.mirror, later(150))

    assert world.copy.records() == before
    assert world.mirror.skipped_records == 0


async def test_a_log_that_was_filled_since_the_verdict_does_not_go_back() -> None:
    world = await world_with(3)
    before = world.copy.records()

    await world.writer.skip(world.mirror, later(2))

    assert world.copy.records() == before
    assert world.mirror.skipped_records == 0
