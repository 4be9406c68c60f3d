"""Answers that only repeat that there is nothing new are judged now and then, all others at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.access import Access
from server.replication.copying import IDLE_WAITS, SourceCopier
from server.replication.findings import SourceAnswer, Verdict
from server.replication.mirror import JUDGE_EVERY_MS, Mirror
from server.replication.requests import Asked, FetchBounds, Fetched, fetch_answers
from server.replication.state_table import Event, Guard, MirrorState
from storage.formats.topic_partition import TopicPartition
from storage.segment.reader import Isolation
from tests.harness.mirror_world import NO_LIMIT, MirrorWorld


class World(MirrorWorld):
    """Counts judgements; nothing happens by chance."""

    judged = 0

    def judge(self, mirror: Mirror, answer: SourceAnswer) -> Verdict:
        self.judged += 1
        return super().judge(mirror, answer)

    def _write(self) -> None:
        """The source is idle."""

    async def idle(self, count: int = 1, **changed: Any) -> int:
        """Take so many answers without records. Returns how many were judged."""
        before = self.judged
        for _ in range(count):
            fetched = self._answer(self.mirror, self.mirror.own)
            while not fetched.is_complete:
                fetched = self._answer(self.mirror, self.mirror.own)
            if changed:
                fetched = replace(fetched, answer=replace(fetched.answer, **changed))
            await self.copier.take(self.mirror, self.mirror.own, fetched, self._source_epoch_end)
        return self.judged - before


@pytest.fixture
async def world() -> World:
    """Returns a world whose mirror has everything."""
    world = World(seed=0)
    world.source.append((b"a", b"1"), (b"b", b"2"))
    world._remember(0)
    await world.settle()
    await world.idle(2)
    return world


async def test_repeated_answers_are_judged_once_in_a_while(world: World) -> None:
    assert await world.idle(50) == 0
    world._pass_time(JUDGE_EVERY_MS)
    assert await world.idle(50) == 1


async def test_they_tell_at_once_that_nothing_is_missing(world: World) -> None:
    world._pass_time(JUDGE_EVERY_MS - 1)
    assert await world.idle() == 0
    assert world.mirror.tombstones.safe_ms == world.now_ms


@pytest.mark.parametrize(
    "changed",
    [
        {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"start": Offset(1)},
        {"high_watermark": Offset(7)},
        {"high_watermark": Offset(1)},
        {"diverging": (0, Offset(1))},
    ],
    ids=str,
)
async def test_an_answer_that_says_something_else_is_judged(
    world: World, changed: dict[str, object]
) -> None:
    assert await world.idle(1, **changed) == 1


async def test_a_mirror_that_was_paused_is_judged_again(world: World) -> None:
    world.mirror.happened(Event.PAUSE)
    world.mirror.happened(Event.RESUME)
    assert await world.idle() == 1
    assert world.mirror.state is MirrorState.COPYING


async def test_what_changes_beside_the_answers_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Verdict(guard=Guard.GONE, reason="the topic is gone")
    monkeypatch.setattr(MirrorWorld, "judge", lambda *_: gone)
    states = []
    for passed_ms in (0, JUDGE_EVERY_MS):
        world._pass_time(passed_ms)
        await world.idle()
        states.append(world.mirror.state)
    assert states == [MirrorState.COPYING, MirrorState.FAILED]


PARTITION = TopicPartition("t", 0)
IDLE = Fetched(
    answer=SourceAnswer(start=Offset(0), high_watermark=Offset(5)), records=b"", is_complete=True
)


def answered(before: Fetched, **changed: Any) -> Fetched:
    """Returns what an answer about one partition says after another one."""
    fields: dict[str, Any] = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "log_start_offset": 0,
        "records": b"",
    }
    data = PartitionData(**fields | changed)
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic_id=UUID(int=7), partitions=(data,)),)
    )
    asked = Asked(PARTITION, UUID(int=7), Offset(5), Epoch(0), before)
    return fetch_answers([asked], response)[PARTITION]


def test_an_answer_that_repeats_the_last_one_is_the_last_one() -> None:
    assert answered(IDLE) is IDLE


@pytest.mark.parametrize(
    "changed",
    [
        {"error_code": 1},
        {"high_watermark": 6},
        {"log_start_offset": 1},
        {"records": b"records"},
        {"diverging_epoch": EpochEndOffset(epoch=0, end_offset=3)},
    ],
    ids=str,
)
def test_any_other_answer_is_another_one(changed: dict[str, Any]) -> None:
    found = answered(IDLE, **changed)
    assert found is not IDLE
    assert found != IDLE


async def test_an_idle_mirror_keeps_nothing_of_the_answers_frame(world: World) -> None:
    frame = bytearray(100)
    with memoryview(frame)[:0] as empty:
        world.mirror.judged(replace(world._answer(world.mirror, world.mirror.own), records=empty))
    frame.clear()
    assert world.mirror.idle is not None


class Source:
    """Answers about one partition with what its log has, and notes how long it may wait."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits_ms: list[int] = []

    async def call(self, request: FetchRequest, _: object) -> FetchResponse:
        self.waits_ms.append(request.max_wait_ms)
        log, ((asked,),) = self.world.source.log, [each.partitions for each in request.topics]
        read = log.reader.read(
            Offset(asked.fetch_offset),
            max_bytes=1_000,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        assert not isinstance(read, ErrorCode)
        data = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            records=b"".join(region.read_bytes() for region in read.regions),
        )
        for region in read.regions:
            region.release()
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=(data,))
        return FetchResponse(responses=(topic,))


async def test_a_source_without_news_may_wait_longer_until_there_are_some(world: World) -> None:
    source: Any = Source(world)
    bounds = FetchBounds(wait_ms=500, min_bytes=1, max_bytes=1_000, partition_max_bytes=1_000)
    led = [world.mirror]
    copier = SourceCopier("", Access(), lambda: led, world, world.writer, bounds, NO_LIMIT)
    for _ in range(3):
        await copier._round(source, [world.mirror])
    world.source.append((b"c", b"3"))
    for _ in range(4):
        await copier._round(source, [world.mirror])
        world.copy.log.advance_high_watermark(world.copy.log.sync())
    led.append(MirrorWorld(seed=1).mirror)
    await copier._round(source, [world.mirror])
    await copier._round(source, [world.mirror])
    idle = 500 * IDLE_WAITS
    assert source.waits_ms[1:] == [idle, idle, idle, 500, 500, idle, idle, 500]
