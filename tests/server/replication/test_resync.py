"""Whether a resync may begin, when its copy is complete, and what is put aside."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.wire.numbers import Epoch, Offset
from server.replication.divergence import Place
from server.replication.findings import Verdict
from server.replication.mirror import Mirror
from server.replication.resync import (
    begins_by_itself,
    goes_aside,
    is_complete,
    needs_aside,
    progress,
    refusal_of_resync,
)
from server.replication.slot_content import ResyncMemory, resync_of
from server.replication.state_table import FINAL, Action, Event, Guard, MirrorState
from storage.files.errors import DiskError, NoSpace
from storage.log.log import PartitionLog
from tests.harness.mirror_world import MirrorWorld

LOST_TOMBSTONES = ResyncMemory(Guard.MISSED_TOMBSTONES, puts_aside=False)


def place(end: int, *epochs: tuple[int, int]) -> Place:
    entries = [(Epoch(epoch), Offset(start)) for epoch, start in epochs]
    return Place(end=Offset(end), epochs=entries, cut_offset_min=Offset(0))


@pytest.mark.parametrize("cause", FINAL)
def test_a_failed_partition_is_resynced_unless_another_topic_has_its_name_or_none(
    cause: Guard,
) -> None:
    for puts_aside in (False, True):
        reason = refusal_of_resync(
            MirrorState.FAILED, cause, puts_aside=puts_aside, is_offline=False
        )
        needs_it = cause in (Guard.SOURCE_LOST, Guard.RECORDS_GONE)
        never = cause in (Guard.OTHER_TOPIC, Guard.GONE)
        assert bool(reason) == (never or (needs_it and not puts_aside)), reason


@pytest.mark.parametrize("state", sorted(set(MirrorState) - {MirrorState.FAILED}))
def test_only_a_failed_partition_is_resynced(state: MirrorState) -> None:
    cause = Guard.MISSED_TOMBSTONES
    assert refusal_of_resync(state, cause, puts_aside=True, is_offline=False)


def test_there_is_no_resync_on_a_disk_that_failed() -> None:
    failed = MirrorState.FAILED
    assert refusal_of_resync(failed, None, puts_aside=True, is_offline=False)
    assert refusal_of_resync(failed, Guard.MISSED_TOMBSTONES, puts_aside=True, is_offline=True)


def test_a_copy_is_complete_at_the_old_end_or_where_the_source_ends_if_that_is_lower() -> None:
    def ends(copy: int, old: int, source: int) -> bool:
        return is_complete(copy_end=Offset(copy), old_end=Offset(old), source_end=Offset(source))

    assert ends(10, 10, 50)
    assert not ends(9, 10, 50)
    assert ends(5, 10, 5)
    assert not ends(4, 10, 5)


@pytest.mark.parametrize(
    ("memory", "is_compacted", "new", "expected"),
    [
        (LOST_TOMBSTONES, True, place(10, (0, 0)), False),
        (LOST_TOMBSTONES, True, place(12, (0, 0), (3, 11)), False),
        (LOST_TOMBSTONES._replace(puts_aside=True), True, place(10, (0, 0)), True),
        (LOST_TOMBSTONES, False, place(10, (0, 0)), True),
        (LOST_TOMBSTONES, True, place(9, (0, 0)), True),
        (LOST_TOMBSTONES, True, place(12, (0, 0), (3, 8)), True),
        (ResyncMemory(Guard.DIVERGES_IN_CLEAN, puts_aside=False), True, place(10, (0, 0)), True),
    ],
    ids=[
        "the source has all of it",
        "the source has gone on",
        "asked for",
        "history is kept here",
        "the copy is shorter",
        "the logs diverge",
        "another cause",
    ],
)
def test_the_old_log_is_put_aside_unless_the_source_has_all_that_cleaning_here_would_keep(
    memory: ResyncMemory, is_compacted: bool, new: Place, expected: bool
) -> None:
    old = place(10, (0, 0))
    assert goes_aside(memory, old, new, is_compacted=is_compacted, may_have_own=False) is expected
    assert goes_aside(memory, old, new, is_compacted=is_compacted, may_have_own=True)


def test_an_empty_old_log_has_no_records_of_its_own() -> None:
    new = place(5, (1, 0))
    assert not goes_aside(LOST_TOMBSTONES, place(0), new, is_compacted=True, may_have_own=False)


@pytest.mark.parametrize(
    ("cause", "is_compacted", "may_have_own", "expected"),
    [
        (Guard.MISSED_TOMBSTONES, True, False, False),
        (Guard.MISSED_TOMBSTONES, True, True, True),
        (Guard.MISSED_TOMBSTONES, False, False, True),
        (Guard.RECORDS_GONE, True, False, True),
        (None, True, False, True),
    ],
)
def test_only_a_copy_that_is_cleaned_as_the_source_is_need_not_be_put_aside(
    cause: Guard | None, is_compacted: bool, may_have_own: bool, expected: bool
) -> None:
    found = needs_aside(cause, is_compacted=is_compacted, may_have_own=may_have_own)
    assert found is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"mode": "manual"}, False),
        ({"cause": Guard.DIVERGES_IN_CLEAN}, False),
        ({"state": MirrorState.COPYING}, False),
        ({"has_failed": True}, False),
        ({"has_aside": True}, False),
    ],
    ids=str,
)
def test_only_missing_tombstones_begin_a_resync_by_itself(
    changed: dict[str, Any], expected: bool
) -> None:
    facts: dict[str, Any] = {
        "mode": "auto",
        "state": MirrorState.FAILED,
        "cause": Guard.MISSED_TOMBSTONES,
        "has_failed": False,
        "has_aside": False,
    }
    assert begins_by_itself(**facts | changed) is expected


async def resyncing(cause: Guard = Guard.SOURCE_LOST) -> MirrorWorld:
    """Returns a world in whose mirror a new copy has begun."""
    world = MirrorWorld(seed=0)
    for _ in range(3):
        world.source.append((b"k", b"v"))
    world._remember(0)
    await world.settle()
    world.mirror.answered(Verdict(guard=cause, reason="a sentence"))
    world.mirror.begin_resync(cause, puts_aside=True)
    await world.writer.begin_copy(world.mirror)
    return world


def fails(mirror: Mirror, guard: Guard) -> None:
    mirror.slot_committed(0, mirror.slot_content, mirror.target)
    assert mirror.answered(Verdict(guard=guard, reason="a sentence")) is Action.DROP


async def test_the_slot_is_the_copys_but_not_beyond_the_log_and_remembers_the_log() -> None:
    world = await resyncing()
    mirror = world.mirror
    safe_ms = mirror.tombstones.safe_ms
    world._pass_time(5_000)
    slot = mirror.slot_content
    assert (slot.offset, slot.safe_ms) == (0, safe_ms)
    assert mirror.resync is not None
    assert mirror.target is not None
    remembered = (mirror.resync.id, mirror.target.tombstones.safe_ms)
    assert resync_of(slot.metadata()) == (
        Guard.SOURCE_LOST,
        True,
        str(remembered[0]),
        remembered[1],
    )
    assert not mirror.is_asking, "until the source has this slot"
    assert slot.has_news(slot._replace(resync=None), 86_400_000)


async def test_a_slot_that_was_sent_for_another_target_does_not_count() -> None:
    world = await resyncing()
    mirror = world.mirror
    mirror.slot_committed(0, mirror.slot_content, mirror.own)
    assert not mirror.is_asking
    mirror.slot_ended("a sentence", mirror.own)
    assert mirror.state is MirrorState.RESYNC


async def test_a_copy_that_took_too_long_leaves_the_log_its_own_cause() -> None:
    world = await resyncing()
    fails(world.mirror, Guard.MISSED_TOMBSTONES)
    assert world.mirror.cause is Guard.SOURCE_LOST
    assert world.mirror.left_over is not None
    await world.writer.drop_copy(world.mirror)
    assert world.mirror.left_over is None
    assert not [name for name in world.copy.fs.list("data/orders") if "resync" in name]


async def test_a_copy_that_cannot_be_removed_is_left_to_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await resyncing()
    fails(world.mirror, Guard.MISSED_TOMBSTONES)

    def fail(_: object) -> None:
        raise DiskError("remove", "data/orders/0.resync", 5, "I/O error")

    monkeypatch.setattr(world.counter, "drop_copy", fail)
    await world.writer.drop_copy(world.mirror)
    assert world.mirror.left_over is None
    assert world.mirror.cause is Guard.SOURCE_LOST, "its own log is whole"


def without_room(patch: pytest.MonkeyPatch) -> list[PartitionLog]:
    """Let swaps meet a full disk. Returns the copies of those."""
    tried = list[PartitionLog]()

    def fail(_: PartitionLog, copy: PartitionLog, **__: object) -> None:
        tried.append(copy)
        raise NoSpace("link", "data/orders/0.aside.part", 28, "No space left on device")

    patch.setattr(PartitionLog, "replace_with", fail)
    return tried


async def until_due(world: MirrorWorld) -> int:
    """Let the time pass until the next attempt. Returns the milliseconds."""
    due_ms = world.mirror.next_attempt_ms
    assert due_ms is not None
    waited_ms = due_ms - world.now_ms
    world._pass_time(waited_ms)
    return waited_ms


async def test_a_swap_for_which_the_disk_has_no_room_is_tried_again_with_the_same_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await resyncing()
    mirror, before = world.mirror, world.copy.records()
    mirror.slot_committed(0, mirror.slot_content, mirror.target)
    waits = []
    with monkeypatch.context() as patch:
        tried = without_room(patch)
        for attempt in range(1, 5):
            for _ in range(20):
                await world._fetch(is_lost=False)
            assert (mirror.state, mirror.attempts) == (MirrorState.RETRYING, attempt)
            assert "No space left on device" in mirror.reason
            assert world.copy.records() == before
            waits.append(await until_due(world))
    assert len(set(tried)) == 1
    assert len(tried) == 4
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0], "each pause is about twice as long"

    await world._fetch(is_lost=False)
    assert (mirror.resyncs_completed, mirror.left_over) == (1, None)
    await world.settle()
    assert (mirror.state, mirror.attempts, mirror.reason) == (MirrorState.COPYING, 0, "")
    assert not world.diverges()


async def test_a_copy_that_waits_for_room_takes_no_more_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would need the room, too."""
    world = await resyncing()
    mirror = world.mirror
    mirror.slot_committed(0, mirror.slot_content, mirror.target)
    tried = without_room(monkeypatch)
    for _ in range(20):
        await world._fetch(is_lost=False)
    (copy,) = tried
    end = copy.log_end_offset
    world.source.append((b"later", b"1"))
    world._remember(end)
    await until_due(world)
    await world._fetch(is_lost=False)
    assert (tried, copy.log_end_offset) == ([copy, copy], end)


async def test_a_copy_that_a_full_disk_has_damaged_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await resyncing()
    mirror, before = world.mirror, world.copy.records()
    mirror.slot_committed(0, mirror.slot_content, mirror.target)

    def fail(_: PartitionLog, copy: PartitionLog, **__: object) -> None:
        copy.go_offline("its files cannot be moved back")
        raise NoSpace("write", "data/orders/0/manifest", 28, "No space left on device")

    monkeypatch.setattr(PartitionLog, "replace_with", fail)
    for _ in range(20):
        await world._fetch(is_lost=False)
    assert (mirror.state, mirror.cause) == (MirrorState.FAILED, Guard.SOURCE_LOST)
    assert world.copy.records() == before


async def test_a_topic_that_is_gone_is_a_cause_of_its_own() -> None:
    world = await resyncing()
    fails(world.mirror, Guard.GONE)
    assert world.mirror.cause is Guard.GONE


async def test_a_mirror_that_stops_before_its_copy_is_made_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await resyncing()
    begun, directory = world.mirror, world.counter
    begin = directory.begin_copy

    def begin_and_stop(*arguments: Any) -> Any:
        begun.happened(Event.STOP)
        return begin(*arguments)

    monkeypatch.setattr(directory, "begin_copy", begin_and_stop)
    await world.writer.begin_copy(begun)
    assert (begun.state, begun.target, begun.left_over) == (MirrorState.STOPPED, begun.own, None)
    assert not [name for name in world.copy.fs.list("data/orders") if "resync" in name]


async def test_progress_estimates_what_is_left_from_what_was_copied() -> None:
    world = await resyncing()
    resync = world.mirror.resync
    assert resync is not None
    assert progress(resync, Offset(3), Offset(9), world.now_ms).remaining_ms is None
    assert resync.target is not None
    resync.target.log.appender.advance_end(Offset(2))
    facts = progress(resync, Offset(6), Offset(9), resync.started_ms + 1_000)
    assert (facts.copied, facts.goal, facts.remaining_ms) == (2, 6, 2_000)
