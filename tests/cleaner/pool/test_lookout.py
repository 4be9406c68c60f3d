"""Looks at real logs: idle ones roll, are cleaned once, and are then left alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pool.lookout import SECONDS_PER_TURN, Lookout, sketch
from cleaner.rules.hold import NO_HOLD, HeldLog, Hold
from cleaner.rules.pick import Reason
from storage.files.errors import CorruptLog
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog, identity, opening

MINUTE_MS = 60_000
DAY_MS = 86_400_000
IDLE_MS = 10 * MINUTE_MS


class World:
    """A log and a lookout, with one clock that only the test advances."""

    def __init__(self, **changes: float) -> None:
        config = replace(CONFIG, compaction_idle_roll_ms=IDLE_MS, delete_retention_ms=0)
        self.compacted = CompactedLog(replace(config, **changes))  # type: ignore[arg-type]
        self.hold = NO_HOLD
        self.lookout = Lookout(self, lambda _log: self.hold)
        self.passes = 0

    @property
    def log(self) -> PartitionLog:
        return self.compacted.log

    def now_ms(self) -> int:
        return self.compacted.now_ms

    def monotonic(self) -> float:
        return self.compacted.now_ms / 1000

    def look(self) -> int:
        """Look once, and clean what that finds. Returns the next moment to look."""
        look = self.lookout.begin()
        self.lookout.look_at(self.log, look, may_run=True)
        if look.best is not None:
            plan = self.lookout.plan(self.log)
            assert plan is not None
            self.lookout.completed(self.log, plan, self.compacted.execute(plan))
            self.passes += 1
        return look.wake_ms

    def let_pass(self, minutes: int) -> None:
        """Look every minute."""
        for _ in range(minutes):
            self.compacted.now_ms += MINUTE_MS
            self.look()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 15), st.just(False)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(actions=ACTIONS, ratio=st.sampled_from([0.0, 0.3, 0.5]))
def test_a_log_that_was_left_alone_is_cleaned_once_and_then_left_in_peace(
    actions: list[tuple[str, int, bool]], ratio: float
) -> None:
    world = World(min_cleanable_dirty_ratio=ratio)
    for action, number, is_tombstone in actions:
        if action == "append":
            world.compacted.append((b"%d" % number, None if is_tombstone else b"value"))
        else:
            world.let_pass(number)

    world.let_pass(15)
    segments, passes = world.log.segments, world.passes
    world.let_pass(60)

    assert (world.log.segments, world.passes) == (segments, passes)
    active = world.log.segments[-1]
    dirty = sum(
        each.size for each in world.log.segments if each.end_offset > world.log.clean_offset
    )
    assert dirty <= ratio * world.log.size_bytes, "what stays dirty is what the ratio lets stay"
    if ratio == 0:
        assert active.size == 0


@settings(deadline=None)
@given(actions=ACTIONS)
def test_no_record_outlives_its_deadline(actions: list[tuple[str, int, bool]]) -> None:
    """With any dirty ratio, with or without further appends, if the log is looked at every minute."""
    lag_ms = 20 * MINUTE_MS
    world = World(
        min_cleanable_dirty_ratio=1.0, compaction_idle_roll_ms=-1, max_compaction_lag_ms=lag_ms
    )
    appended_at: dict[int, int] = {}
    for action, number, is_tombstone in actions:
        if action == "append":
            value = None if is_tombstone else b"value"
            at = world.compacted.append((b"%d" % number, value)).base_offset
            appended_at[at] = world.now_ms()
        for _ in range(number if action == "wait" else 0):
            world.let_pass(1)
            late = [at for at, ms in appended_at.items() if world.now_ms() - ms >= lag_ms]
            assert all(at < world.log.clean_offset for at in late)


async def test_the_turn_of_a_late_log_goes_to_the_earliest_deadline() -> None:
    """Also if another late log has waited longer, because it was dirty before."""
    short = World(max_compaction_lag_ms=60 * MINUTE_MS, min_cleanable_dirty_ratio=1.0)
    long = CompactedLog(replace(CONFIG, max_compaction_lag_ms=10 * 60 * MINUTE_MS))
    long.log.identity = identity("dirty-for-long")
    long.append_segment((b"a", b"1"))
    look = short.lookout.begin()
    short.lookout.look_at(long.log, look, may_run=True)
    short.compacted.now_ms += 9 * 60 * MINUTE_MS - 5 * MINUTE_MS
    short.compacted.append_segment((b"a", b"1"))
    short.compacted.now_ms += 65 * MINUTE_MS

    look = short.lookout.begin()
    for log in (long.log, short.log):
        short.lookout.look_at(log, look, may_run=True)
    queue = await short.lookout.queue([long.log, short.log], may_run=lambda _: True)

    assert look.best is short.log
    assert [each.topic_partition.topic for each in queue] == ["orders", "dirty-for-long"]
    assert [each.late_ms for each in queue] == [5 * MINUTE_MS, 0]


def test_the_next_moment_is_when_the_idle_segment_rolls() -> None:
    world = World(min_cleanable_dirty_ratio=0.5)
    world.compacted.append((b"a", b"1"))

    moment = world.look()
    world.compacted.now_ms = moment - 1
    world.look()
    before = len(world.log.segments)
    world.compacted.now_ms = moment
    world.look()

    assert (before, len(world.log.segments), world.passes) == (1, 2, 1)


def test_a_log_that_grows_does_not_roll_for_being_idle() -> None:
    world = World()
    for _ in range(30):
        world.compacted.append((b"a", b"1"))
        world.let_pass(9)

    assert len(world.log.segments) == 1


def test_a_head_of_min_compaction_lag_bytes_stays_as_it_was() -> None:
    world = World(min_compaction_lag_bytes=1)
    for _ in range(3):
        world.compacted.append_segment((b"a", b"1"), (b"a", b"2"))
        world.look()
    world.let_pass(120)

    assert [offset for offset, _key, _value in world.compacted.pairs()] == [3, 4, 5]


def test_a_log_whose_producers_cannot_be_read_is_no_reason_to_stop_looking() -> None:
    """Its last stable offset is then unknown, so nothing of it may be cleaned."""
    log = CompactedLog()
    log.append((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll()
    log.append((b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
    log.log.close()
    for name in log.files():
        if name.endswith((".snapshot", ".log")):
            log.fs.write_bytes(f"{DIRECTORY}/{name}", b"damaged")
    log.log = open_log(log.fs, identity(), log.log.config, opening(is_clean=True))

    drawn = sketch(log.log)

    assert drawn.last_stable_offset == log.log.log_start_offset
    with pytest.raises(CorruptLog):
        _ = log.log.last_stable_offset


async def test_a_look_at_many_logs_that_take_long_leaves_the_loop_to_others() -> None:
    """For example because very many groups hold their tombstones."""
    world, looked_at, turns = World(), list[int](), list[int]()
    world.compacted.append((b"k", b"v"))

    def take_a_millisecond(_: HeldLog) -> Hold:
        world.compacted.now_ms += 1
        looked_at.append(len(turns))
        return NO_HOLD

    async def count_turns() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    lookout, counting = Lookout(world, take_a_millisecond), asyncio.ensure_future(count_turns())
    for look in (lookout.look_at_all, lookout.queue):
        looked_at.clear()
        await look([world.log] * 20, may_run=lambda _: True)
        assert max(Counter(looked_at).values()) <= 1000 * SECONDS_PER_TURN + 1
    counting.cancel()


def test_what_an_undo_has_put_back_counts_as_dirty_again() -> None:
    """What is known of the last pass is no longer true of the log."""
    world = World(min_cleanable_dirty_ratio=0.1, compaction_undo_ms=DAY_MS)
    log = world.compacted
    for number in range(4):
        log.append_segment((b"a", b"%d" % number), (b"b", None))
    world.look()
    assert world.passes == 1
    number = world.log.passes_kept[-1].number
    assert world.lookout._remainder(world.log) is not None

    world.log.undo_pass(number)

    assert world.lookout._remainder(world.log) is None
    assert world.lookout.assess(world.log).reason is Reason.DIRTY
