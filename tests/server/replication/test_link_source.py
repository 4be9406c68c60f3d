"""What an answer means to a link: with what it knows of its source, and of the logs here."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.client.access import Access
from server.metadata.reign import EPOCH_STEP
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


def source_of(
    world: MirrorWorld, *, has_led: bool, leader_id: int = 2, leader_epoch: int = 3
) -> LinkSource:
    topics: Any = Topics()
    source = LinkSource(
        topics,
        Access(),
        is_standby=True,
        follower="standby.x" if has_led else None,
        sparse_level=lambda: 1,
        now_ms=lambda: world.now_ms,
    )
    name = world.copy.log.topic_partition.topic
    facts = replace(TOPIC, deletes=True)
    found = FoundTopic(
        name=name,
        facts=facts,
        overrides={},
        leaders={0: "a:1"},
        leader_epochs={0: leader_epoch},
        leader_ids={0: leader_id},
    )
    source.found = FoundTopics(cluster_id="c", topics={name: found})
    return source


STARTS_LATER = SourceAnswer(
    error_code=ErrorCode.OFFSET_OUT_OF_RANGE, start=Offset(150), high_watermark=Offset(200)
)


@pytest.mark.parametrize(
    ("has_led", "is_copy", "records", "expected"),
    [
        (False, False, 3, Guard.STARTS_LATER),
        (True, True, 3, Guard.STARTS_LATER),
        (True, False, 0, Guard.STARTS_LATER),
        (True, False, 3, Guard.RECORDS_GONE),
    ],
    ids=["has-not-led", "is-a-copy", "is-empty", "may-have-its-own"],
)
async def test_a_log_that_may_have_records_of_its_own_does_not_start_over(
    has_led: bool, is_copy: bool, records: int, expected: Guard
) -> None:
    """They would be the last copy of what this broker has acknowledged as a primary."""
    world = await world_with(records)
    source = source_of(world, has_led=has_led)
    if is_copy:
        name = source.name_of(world.mirror)
        assert name is not None
        world.copy.log.remember_source(name)

    verdict = source.judge(world.mirror, STARTS_LATER)

    assert verdict.guard is expected


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ({}, True),
        ({"leader_epoch": 40}, True),
        ({"leader_epoch": EPOCH_STEP + 3}, False),
        ({"leader_id": 3}, False),
    ],
    ids=["the-same", "started-again", "promoted-since", "another-broker"],
)
async def test_a_copy_of_one_source_may_have_records_that_another_never_had(
    other: dict[str, int], is_same: bool
) -> None:
    world = await world_with(3)
    name = source_of(world, has_led=True).name_of(world.mirror)
    assert name is not None
    world.copy.log.remember_source(name)

    later_source = source_of(world, has_led=True, **other)

    assert later_source.may_have_own(world.mirror) is not is_same
    assert (later_source.name_of(world.mirror) == name) is is_same


async def test_a_source_without_a_leader_has_no_name() -> None:
    world = await world_with(3)
    source = source_of(world, has_led=True)
    source.found = FoundTopics(cluster_id="c")
    assert source.name_of(world.mirror) is None
    assert source.may_have_own(world.mirror)


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
