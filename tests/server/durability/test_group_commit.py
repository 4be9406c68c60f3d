"""Group commit: rounds, high watermarks and waiters, on a disk whose timed the test controls.

The log and the write-ahead bookkeeping are stand-ins. The tests are about when a sync starts, what it
covers and what its failure means, which a real disk does not show.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

import pytest

from metrics.server_probe import ServerProbe
from server.durability import group_commit
from server.durability.fetch_waiters import FetchWaiters
from server.durability.group_commit import GroupCommit
from storage.formats.log_config import LogConfig


class TimedLog:
    """A log reduced to its offsets."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.config = config if config is not None else LogConfig()
        self.log_end_offset = 0
        self.high_watermark = 0
        self.offline_reason: str | None = None
        self.flush_is_due = False

    def is_flush_due(self, now_ms: int = -1) -> bool:
        return self.flush_is_due

    def append(self, count: int) -> int:
        self.log_end_offset += count
        return self.log_end_offset

    def advance_high_watermark(self, offset: int) -> None:
        assert offset <= self.log_end_offset
        self.high_watermark = max(self.high_watermark, offset)


@dataclass
class Synced:
    log: TimedLog
    end_offset: int


class TimedRounds:
    """Syncs when the test allows it, and records what each round covered."""

    def __init__(self) -> None:
        self.dirty: set[TimedLog] = set()
        self.rounds: list[dict[TimedLog, int]] = []
        self.gate = threading.Semaphore(0)
        self.failing: TimedLog | None = None

    def mark_dirty(self, log: TimedLog) -> None:
        self.dirty.add(log)

    is_round_over = False

    def begin_round(self) -> bool:
        return False

    @property
    def has_dirty(self) -> bool:
        return bool(self.dirty)

    def sync_round(self) -> tuple[Synced, ...]:
        covered = {log: log.log_end_offset for log in self.dirty if log.offline_reason is None}
        self.dirty = set()
        self.rounds.append(covered)
        assert self.gate.acquire(timeout=30)
        if self.failing is not None:
            covered.pop(self.failing, None)
            self.failing.offline_reason = "Input/output error"
        return tuple(Synced(log, end) for log, end in covered.items())


@pytest.fixture
def timed() -> Iterator[TimedRounds]:
    timed = TimedRounds()
    yield timed
    for _ in range(10):
        timed.gate.release()


def group_commit_over(timed: Any, *, syncs: bool = True) -> tuple[GroupCommit, FetchWaiters]:
    waiters = FetchWaiters()
    return GroupCommit(timed, waiters, flush_on_acks_all=syncs), waiters


async def rounds(timed: TimedRounds, count: int) -> None:
    async with asyncio.timeout(30):
        while len(timed.rounds) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_round_that_a_request_waits_for_begins_before_the_loop_has_its_next_turn(
    timed: TimedRounds,
) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(3)
    commit.appended(log)
    durable = commit.durable(log, 3)

    commit.start_round_now()

    # The loop gets no turn, so it cannot be the loop that starts the round.
    for _ in range(500):
        if timed.rounds:
            break
        time.sleep(0.01)  # noqa: ASYNC251
    assert timed.rounds == [{log: 3}]
    timed.gate.release()
    assert await durable
    assert len(timed.rounds) == 1


async def test_an_append_is_durable_and_readable_only_after_its_sync(timed: TimedRounds) -> None:
    commit, waiters = group_commit_over(timed)
    log: Any = TimedLog()
    parked = waiters.park()
    parked.watch(log)
    log.append(3)
    commit.appended(log)
    durable = commit.durable(log, 3)
    await rounds(timed, 1)
    await asyncio.sleep(0.01)
    assert not durable.done()
    assert log.high_watermark == 0
    assert not parked.is_woken

    timed.gate.release()

    assert await durable is True
    assert log.high_watermark == 3
    assert parked.take_woken() == [log]
    await commit.stop()


async def test_appends_during_a_round_share_the_next_one(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    await rounds(timed, 1)
    waits = []
    for _ in range(10):
        end = log.append(1)
        commit.appended(log)
        waits.append(commit.durable(log, end))
    await asyncio.sleep(0.01)
    assert not any(wait.done() for wait in waits)

    timed.gate.release()
    await rounds(timed, 2)
    assert log.high_watermark == 1
    timed.gate.release()

    assert await asyncio.gather(*waits) == [True] * 10
    assert [list(covered.values()) for covered in timed.rounds] == [[1], [11]]
    await commit.stop()


async def wait(durable: asyncio.Future[bool]) -> None:
    assert await durable


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("who", ["an answer", "a fetch that parks", "a truncation"])
async def test_an_append_that_nobody_waits_for_lingers_until_something_does(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(group_commit, "LINGER_SECONDS", 3600)
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    await turns()
    log.append(1)
    commit.appended(log)
    await turns()
    assert not timed.rounds

    async with asyncio.TaskGroup() as waiting:
        match who:
            case "an answer":
                waiting.create_task(wait(commit.durable(log, 2)))
            case "a fetch that parks":
                commit.expect_reader(log)
            case _:
                waiting.create_task(commit.rest(log))
        await rounds(timed, 1)
        assert timed.rounds == [{log: 2}]
        timed.gate.release(2)
    await commit.stop()
    assert log.high_watermark == 2


async def test_the_appends_to_a_log_whose_fetches_are_parked_do_not_linger(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "LINGER_SECONDS", 3600)
    commit, waiters = group_commit_over(timed)
    read: Any = TimedLog()
    unread: Any = TimedLog()
    waiters.park().watch(read)
    unread.append(1)
    commit.appended(unread)
    await turns()
    assert not timed.rounds

    read.append(1)
    commit.appended(read)

    await rounds(timed, 1)
    assert timed.rounds == [{read: 1, unread: 1}]
    # The next append comes during the round, and the round after it does not linger.
    read.append(1)
    commit.appended(read)
    timed.gate.release()
    await rounds(timed, 2)
    timed.gate.release()
    await commit.stop()


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_neither_a_stop_nor_a_log_that_syncs_each_message_lets_appends_linger(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setattr(group_commit, "LINGER_SECONDS", 3600)
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog(LogConfig() if is_stopped else LogConfig(flush_messages=1))
    log.append(1)
    commit.appended(log)
    timed.gate.release()

    if is_stopped:
        await commit.stop()

    await rounds(timed, 1)
    await commit.stop()
    assert log.high_watermark == 1


async def test_an_append_that_nobody_waits_for_is_synced_soon(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)

    commit.appended(log)

    await rounds(timed, 1)
    timed.gate.release()
    await commit.stop()
    assert log.high_watermark == 1


async def test_a_reader_of_what_is_durable_starts_no_round(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()

    commit.expect_reader(log)

    await turns()
    assert not timed.rounds
    await commit.stop()


async def test_what_is_durable_already_does_not_wait(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(5)
    log.advance_high_watermark(5)

    assert await commit.durable(log, 5) is True
    await commit.stop()


async def test_a_log_rests_once_no_round_has_it(timed: TimedRounds) -> None:
    """Also a round that was scheduled while the one ran that made everything durable."""
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    await rounds(timed, 1)
    resting = asyncio.ensure_future(commit.rest(log))
    timed.gate.release()
    await rounds(timed, 2)
    assert log.high_watermark == 1
    assert not resting.done(), "the second round has it"

    timed.gate.release()

    await asyncio.wait_for(resting, 30)
    assert not timed.dirty
    await commit.stop()


async def test_a_log_that_is_offline_rests_at_once(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.offline_reason = "Input/output error"
    await asyncio.wait_for(commit.rest(log), 30)
    await commit.stop()


async def test_a_failed_sync_acknowledges_nothing(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    timed.failing = log
    log.append(1)
    commit.appended(log)
    durable = commit.durable(log, 1)
    await rounds(timed, 1)

    timed.gate.release()

    assert await durable is False
    assert log.high_watermark == 0
    await commit.stop()


class NoThread(threading.Thread):
    """A thread that the system does not have."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def appended_now(commit: GroupCommit, log: Any) -> asyncio.Future[bool]:
    """Append the first record, and start its round. Returns whether it becomes durable."""
    log.append(1)
    commit.appended(log)
    durable = commit.durable(log, 1)
    commit.start_round_now()
    return durable


async def test_a_round_without_a_thread_acknowledges_nothing_and_the_next_one_does(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", NoThread)
        assert await appended_now(commit, log) is False
        assert log.high_watermark == 0
    assert "can't start new thread" in caplog.text

    await rounds(timed, 1)  # The same append, tried again.
    timed.gate.release()
    log.append(1)
    commit.appended(log)
    timed.gate.release()
    assert await commit.durable(log, 2) is True
    await commit.stop()


async def test_a_round_that_cannot_begin_is_not_tried_again_at_once(
    event_wal: EventWal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would fail again and again in the same turn of the loop."""
    attempts = list[int]()

    def fail(self: EventWal) -> bool:
        attempts.append(1)
        raise ValueError("a mistake of ours")

    commit, _ = group_commit_over(event_wal)
    log: Any = TimedLog()
    with monkeypatch.context() as patch:
        patch.setattr(EventWal, "begin_round", fail)
        refused = appended_now(commit, log)
        assert attempts == [1]
        assert await refused is False
    await rounds(event_wal, 1)
    event_wal.finish()
    await commit.stop()
    assert log.high_watermark == 1


async def test_logs_on_a_sound_disk_are_acknowledged_though_another_disk_failed(
    timed: TimedRounds,
) -> None:
    commit, _ = group_commit_over(timed)
    broken: Any = TimedLog()
    sound: Any = TimedLog()
    timed.failing = broken
    waits = []
    for log in (broken, sound):
        log.append(1)
        commit.appended(log)
        waits.append(commit.durable(log, 1))
    await rounds(timed, 1)

    timed.gate.release()

    assert await asyncio.gather(*waits) == [False, True]
    assert (broken.high_watermark, sound.high_watermark) == (0, 1)
    await commit.stop()


async def test_a_log_that_went_offline_otherwise_answers_its_waiters(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    log.offline_reason = "a manifest commit failed"

    timed.gate.release()

    assert await commit.durable(log, 1) is False
    await commit.stop()


async def test_a_deleted_log_answers_its_waiters_and_wakes_its_fetches(timed: TimedRounds) -> None:
    commit, waiters = group_commit_over(timed)
    log: Any = TimedLog()
    parked = waiters.park()
    parked.watch(log)
    log.append(1)
    commit.appended(log)
    durable = commit.durable(log, 1)
    await rounds(timed, 1)

    commit.abandon(log)

    assert await durable is False
    assert parked.take_woken() == [log]
    timed.gate.release()
    await commit.stop()


async def test_without_syncs_the_high_watermark_is_the_logs_end_at_once(timed: TimedRounds) -> None:
    commit, waiters = group_commit_over(timed, syncs=False)
    log: Any = TimedLog()
    parked = waiters.park()
    parked.watch(log)
    log.append(2)

    commit.appended(log)

    assert log.high_watermark == 2
    assert await commit.durable(log, 2) is True
    assert parked.take_woken() == [log]
    assert timed.rounds == []
    await commit.stop()


async def test_flush_messages_1_syncs_before_anything_is_acknowledged_or_read(
    timed: TimedRounds,
) -> None:
    commit, _ = group_commit_over(timed, syncs=False)
    log: Any = TimedLog(LogConfig(flush_messages=1))
    log.append(2)
    commit.appended(log)
    durable = commit.durable(log, 2)
    await rounds(timed, 1)
    assert not durable.done()
    assert log.high_watermark == 0

    timed.gate.release()

    assert await durable is True
    assert log.high_watermark == 2
    await commit.stop()


async def test_a_flush_that_is_due_starts_a_round_for_which_nobody_waits(
    timed: TimedRounds,
) -> None:
    commit, _ = group_commit_over(timed, syncs=False)
    by_count: Any = TimedLog()
    by_time: Any = TimedLog()
    for log in (by_count, by_time):
        log.append(2)
        log.flush_is_due = log is by_count
        commit.appended(log)
        assert log.high_watermark == 2
        assert await commit.durable(log, 2) is True
    await rounds(timed, 1)
    assert timed.rounds == [{by_count: 2}]

    by_time.flush_is_due = True
    commit.flush_if_due(by_time, now_ms=5)
    timed.gate.release(2)
    await rounds(timed, 2)

    assert timed.rounds[1] == {by_time: 2}
    await commit.stop()


async def test_an_offline_log_is_not_flushed(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed, syncs=False)
    log: Any = TimedLog()
    log.flush_is_due = True
    log.offline_reason = "Input/output error"

    commit.flush_if_due(log, now_ms=5)

    await commit.stop()
    assert timed.rounds == []


class EventWal(TimedRounds):
    """Rounds without a worker, which end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.round_event = os.eventfd(0, os.EFD_NONBLOCK)
        self.under_way: dict[TimedLog, int] = {}
        self.is_round_over = False

    def begin_round(self) -> bool:
        assert not self.under_way
        self.under_way = {log: log.log_end_offset for log in self.dirty}
        self.dirty = set()
        self.rounds.append(self.under_way)
        return True

    def finish(self) -> None:
        self.is_round_over = True
        os.eventfd_write(self.round_event, 1)

    def end_round(self) -> tuple[Synced, ...]:
        covered, self.under_way, self.is_round_over = self.under_way, {}, False
        return tuple(Synced(log, end) for log, end in covered.items())


@pytest.fixture
def event_wal() -> Iterator[EventWal]:
    timed = EventWal()
    yield timed
    os.close(timed.round_event)


async def test_a_round_beside_the_loop_is_ended_by_its_event(event_wal: EventWal) -> None:
    commit, _ = group_commit_over(event_wal)
    log: Any = TimedLog()
    log.append(2)
    commit.appended(log)
    durable = commit.durable(log, 2)
    await rounds(event_wal, 1)
    assert event_wal.rounds == [{log: 2}]
    assert not durable.done()

    event_wal.finish()

    assert await durable is True
    assert log.high_watermark == 2
    await commit.stop()


async def test_the_round_of_a_request_that_waits_begins_at_the_end_of_the_turn(
    event_wal: EventWal,
) -> None:
    """Nobody else starts it, and it does not linger."""
    commit, _ = group_commit_over(event_wal)
    log: Any = TimedLog()
    with mock.patch("server.durability.group_commit.call_later"):
        log.append(1)
        commit.appended(log)
        durable = commit.durable(log, 1)
        log.append(1)
        commit.appended(log)
        assert event_wal.rounds == []

        await asyncio.sleep(0)

    assert event_wal.rounds == [{log: 2}]
    event_wal.finish()
    assert await durable is True
    await commit.stop()


async def test_a_request_that_waits_ends_a_round_that_is_over_and_begins_the_next(
    event_wal: EventWal,
) -> None:
    """The loop may be busy with a burst of requests; the disk must not wait until that is over."""
    commit, _ = group_commit_over(event_wal)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    first = commit.durable(log, 1)
    commit.start_round_now()
    event_wal.finish()
    log.append(1)
    commit.appended(log)
    second = commit.durable(log, 2)

    commit.start_round_now()

    assert event_wal.rounds == [{log: 1}, {log: 2}]
    assert (first.done(), second.done()) == (True, False)
    await asyncio.sleep(0.01)  # The first round's event comes late, and belongs to no waiter.
    assert not second.done()
    event_wal.finish()
    assert await second is True
    await commit.stop()


async def test_the_next_round_begins_before_the_waiters_of_the_last_are_answered(
    event_wal: EventWal,
) -> None:
    commit, _ = group_commit_over(event_wal)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    commit.start_round_now()
    log.append(1)
    commit.appended(log)
    durable = commit.durable(log, 2)
    event_wal.finish()
    await rounds(event_wal, 2)

    assert event_wal.rounds == [{log: 1}, {log: 2}]
    assert log.high_watermark == 1
    event_wal.finish()
    assert await durable is True
    await commit.stop()


async def test_stopping_finishes_the_round_under_way(timed: TimedRounds) -> None:
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    log.append(1)
    commit.appended(log)
    await rounds(timed, 1)
    stopping = asyncio.ensure_future(commit.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done()

    timed.gate.release()

    await stopping
    assert log.high_watermark == 1


async def test_stopping_gives_up_rounds_that_cannot_start(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log syncs itself when it closes."""
    commit, _ = group_commit_over(timed)
    log: Any = TimedLog()
    monkeypatch.setattr(threading, "Thread", NoThread)
    assert await appended_now(commit, log) is False
    async with asyncio.timeout(30):
        await commit.stop()
    assert log.high_watermark == 0


async def test_a_round_that_cannot_start_is_no_sync_in_the_metric(
    timed: TimedRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = ServerProbe()
    commit = GroupCommit(cast("Any", timed), FetchWaiters(), flush_on_acks_all=True, probe=probe)
    log: Any = TimedLog()
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", NoThread)
        assert await appended_now(commit, log) is False
    assert sum(probe.sync_seconds.counts) == 0
    await rounds(timed, 1)
    timed.gate.release()
    await commit.stop()
    assert sum(probe.sync_seconds.counts) == 1
