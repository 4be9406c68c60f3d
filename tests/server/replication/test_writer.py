"""What a link writes into its mirrors' logs."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest

from protocol.wire.numbers import Offset
from server.replication.findings import SourceAnswer
from server.replication.mirror import JUDGE_EVERY_MS
from server.replication.requests import Fetched
from server.replication.state_table import Event, MirrorState
from tests.harness import mirror_world
from tests.harness.log_builder import batch_of
from tests.harness.mirror_world import MirrorWorld
from tests.harness.rejoining_world import NAME, RejoiningWorld


async def test_a_cut_whose_copier_is_cancelled_ends() -> None:
    """`Link._start_copiers` cancels the copier of a broker that leads nothing now."""
    world = MirrorWorld(seed=0)
    world.source.append((b"a", b"1"))
    world.source.append((b"b", b"2"))
    await world.settle()
    reached, is_done = asyncio.Event(), asyncio.Event()

    class Slow:
        async def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
            reached.set()
            await is_done.wait()

    disk: Any = Slow()
    world.writer._disk = disk
    diverging = world.mirror.own.place.last_epoch, Offset(1)
    answer = SourceAnswer(start=Offset(0), high_watermark=Offset(9), diverging=diverging)
    fetched = Fetched(answer=answer, records=b"", is_complete=True)
    task = asyncio.create_task(
        world.copier.take(world.mirror, world.mirror.own, fetched, world._source_epoch_end)
    )
    await reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    was_locked = world.mirror.writing.locked()
    is_done.set()
    await asyncio.gather(task, return_exceptions=True)
    assert world.mirror.state is not MirrorState.CUTTING
    assert was_locked, "the thread still truncates"


async def followed_by_an_old_primary(seed: int = 5) -> RejoiningWorld:
    """Returns a world whose mirror has led, but has no records of its own."""
    world = RejoiningWorld(seed)
    assert not world.own
    assert world.copy.log.log_end_offset > 0
    assert world.copy.log.copied_from is None
    return world


async def test_a_log_remembers_its_source_with_the_first_answer_that_shows_it() -> None:
    world = await followed_by_an_old_primary()

    await world._fetch(is_lost=False)

    assert world.copy.log.copied_from == NAME
    world._restart_copy()
    assert world.copy.log.copied_from == NAME


async def test_a_full_disk_postpones_that_a_log_remembers_its_source() -> None:
    world = await followed_by_an_old_primary()
    world.copy.fs.faults.fail("write", errno.ENOSPC, path="/0/manifest")

    await world._fetch(is_lost=False)

    assert world.copy.log.copied_from is None
    assert world.mirror.state is MirrorState.COPYING
    world._pass_time(JUDGE_EVERY_MS)
    await world._fetch(is_lost=False)
    assert world.copy.log.copied_from == NAME


async def test_a_promotion_waits_for_a_log_that_remembers_its_source() -> None:
    world = await followed_by_an_old_primary()
    mirror, log = world.mirror, world.copy.log
    reached, is_done = asyncio.Event(), asyncio.Event()
    at_once, done = world.writer._disk, list[str]()

    class Slow:
        async def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
            if work == log.remember_source:
                reached.set()
                await is_done.wait()
                done.append("remembered")
            return await at_once.run(work, *args, **kwargs)

    disk: Any = Slow()
    world.writer._disk = disk
    copier = asyncio.create_task(world.writer.remember_source(mirror, NAME))
    await reached.wait()
    copier.cancel()
    mirror.happened(Event.STOP)
    promotion = asyncio.create_task(world.writer.finish(mirror))
    promotion.add_done_callback(lambda _: done.append("promoted"))
    await asyncio.sleep(0)
    is_done.set()
    await asyncio.gather(copier, promotion, return_exceptions=True)
    await asyncio.sleep(0)

    assert done == ["remembered", "promoted"]


@pytest.mark.parametrize("answers", [3, 6])
async def test_a_full_disk_is_tried_again_after_growing_pauses(answers: int) -> None:
    """The source sends what does not fit each time."""
    world = MirrorWorld(seed=0)
    for number in range(3):
        world.source.append((b"k", b"%d" % number))
    world._remember(0)
    waits = []
    for _ in range(answers):
        while world.mirror.state is not MirrorState.RETRYING:
            world.copy.fs.faults.space = 0
            await world._fetch(is_lost=False)
        due_ms = world.mirror.next_attempt_ms
        assert due_ms is not None
        waits.append(due_ms - world.now_ms)
        world._pass_time(waits[-1])
    assert world.mirror.attempts == answers
    assert waits[-1] > 1.2 ** (answers - 1) * waits[0]
    world.copy.fs.faults.heal()
    await world.settle()
    assert world.mirror.attempts == 0


async def test_an_empty_answer_of_a_topic_that_is_not_compacted_is_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apache Kafka answers so, without an error, if a read of tiered storage takes too long."""
    topic = replace(mirror_world.TOPIC, compacts=False, deletes=True)
    monkeypatch.setattr(mirror_world, "TOPIC", topic)
    world = MirrorWorld(seed=0)
    world.source.append((b"a", b"1"), (b"b", b"2"))
    answer = SourceAnswer(start=Offset(0), high_watermark=Offset(2))
    fetched = Fetched(answer=answer, records=b"", is_complete=True, is_alone=True)

    await world.copier.take(world.mirror, world.mirror.own, fetched, world._source_epoch_end)
    await world.settle()

    assert len(world.copy.records()) == 2


async def test_a_batch_beyond_the_source_s_high_watermark_is_damaged() -> None:
    """A batch's CRC does not cover its base offset."""
    world = MirrorWorld(seed=0)
    await world.settle()
    answer = SourceAnswer(start=Offset(0), high_watermark=Offset(1))
    records = bytes(batch_of([(b"a", b"1")], base_offset=1 << 40, leader_epoch=0))
    fetched = Fetched(answer=answer, records=records, is_complete=True, is_alone=True)

    await world.copier.take(world.mirror, world.mirror.own, fetched, world._source_epoch_end)

    assert world.mirror.state is MirrorState.RETRYING
    assert "beyond its high watermark 1" in world.mirror.reason
    assert world.copy.log.log_end_offset == 0
