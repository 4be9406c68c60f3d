"""Fetch sessions: who may continue one, and which ones give their slot to others."""

from __future__ import annotations

import asyncio

import pytest

from protocol.messages.fetch import FetchPartition
from protocol.wire.error_codes import ErrorCode
from server.fetching import session_cache
from server.fetching.asked_partitions import AskedPartitions, AskedTopic, TopicKey
from server.fetching.session import EPOCH_MAX, FetchSession
from server.fetching.session_cache import IDLE_SECONDS_MAX, FetchSessionCache
from server.runtime.turns import Turns
from server.security.principal import Principal

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
VIEW = (0, "127.0.0.1", "PLAINTEXT")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def new_topic(key: TopicKey) -> AskedTopic:
    return AskedTopic(str(key), None)


def asked(count: int) -> AskedPartitions:
    partitions = AskedPartitions()
    add(partitions, range(count))
    return partitions


def add(partitions: AskedPartitions, numbers: range, *, topic: str = "orders") -> None:
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in numbers
    ]
    partitions.add(topic, wanted, new_topic)


def cache_of(clock: Clock, slots_max: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots_max=slots_max, clock=clock, turns=Turns())


def created(
    cache: FetchSessionCache, partitions: AskedPartitions, principal: Principal = ALICE
) -> FetchSession | None:
    return cache.create(partitions, principal=principal, has_ids=True, viewpoint=VIEW)


def begun(cache: FetchSessionCache, count: int = 2) -> FetchSession:
    """Begin a session, for which there must be room."""
    session = created(cache, asked(count))
    assert session is not None
    return session


def found(
    cache: FetchSessionCache,
    session: FetchSession,
    epoch: int = 1,
    *,
    principal: Principal = ALICE,
    has_ids: bool = True,
) -> FetchSession | ErrorCode:
    return cache.find(session.id, epoch, principal=principal, has_ids=has_ids)


async def test_a_session_is_found_by_its_id_and_next_epoch(clock: Clock) -> None:
    cache = cache_of(clock)
    session = begun(cache)
    assert found(cache, session) is session
    assert found(cache, session, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.advance()
    assert found(cache, session, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert found(cache, session, 2) is session
    assert found(cache, session, 2, has_ids=False) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_the_last_epoch_is_followed_by_the_first(clock: Clock) -> None:
    cache = cache_of(clock)
    session = begun(cache)
    session.epoch = EPOCH_MAX
    session.advance()
    assert found(cache, session, 1) is session


async def test_only_the_principal_that_began_a_session_may_continue_or_close_it(
    clock: Clock,
) -> None:
    cache = cache_of(clock)
    session = begun(cache)
    assert found(cache, session, principal=BOB) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.close_by_client(session.id, BOB)
    assert found(cache, session) is session
    cache.close_by_client(session.id, ALICE)
    assert found(cache, session) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.close_by_client(session.id, ALICE)
    assert session.is_closed


async def test_one_request_at_a_time_uses_a_session(clock: Clock) -> None:
    cache = cache_of(clock)
    session = begun(cache)
    session.is_in_use = True
    assert found(cache, session) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("count", [0, 1])
async def test_there_is_no_session_for_so_few_partitions(clock: Clock, count: int) -> None:
    cache = cache_of(clock)
    assert created(cache, asked(count)) is None


async def test_a_name_that_no_topic_can_have_is_not_remembered(clock: Clock) -> None:
    cache = cache_of(clock)
    long = asked(2)
    add(long, range(1), topic="x" * 250)
    assert created(cache, long) is None
    session = begun(cache)
    add(session.asked, range(1), topic="x" * 249)
    assert cache.note_use(session)
    add(session.asked, range(1), topic="x" * 250)
    assert not cache.note_use(session)
    assert session.is_closed


async def test_without_slots_there_are_no_sessions(clock: Clock) -> None:
    cache = cache_of(clock, 0)
    assert created(cache, asked(2)) is None


def evicted(cache: FetchSessionCache, count: int = 2) -> list[FetchSession] | None:
    """Ask for another session. Returns those that give way for it; None if there is no room."""
    before = list(cache._sessions.values())
    session = created(cache, asked(count), BOB)
    gone = [each for each in before if each.is_closed]
    for each in gone:
        assert found(cache, each, each.epoch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return None if session is None else gone


async def test_an_idle_session_gives_its_slot_to_any_other_the_oldest_use_first(
    clock: Clock,
) -> None:
    cache = cache_of(clock, 2)
    first, second = begun(cache, 9), begun(cache, 9)
    clock.now_s += 1
    assert cache.note_use(first)
    clock.now_s += IDLE_SECONDS_MAX - 1
    assert evicted(cache) is None
    clock.now_s += 0.5
    assert evicted(cache) == [second]
    assert evicted(cache) is None
    clock.now_s += 1
    assert evicted(cache) == [first]
    assert cache.evictions == 2


async def test_an_old_session_gives_its_slot_to_a_larger_one_the_smallest_first(
    clock: Clock,
) -> None:
    cache = cache_of(clock, 3)
    sessions = [begun(cache, size) for size in (5, 3, 4)]
    clock.now_s += IDLE_SECONDS_MAX
    assert all(cache.note_use(each) for each in sessions)
    assert evicted(cache, 6) is None
    clock.now_s += 0.5
    assert evicted(cache, 3) is None
    assert evicted(cache, 4) == [sessions[1]]
    assert evicted(cache, 6) == [sessions[2]]


async def test_all_sessions_together_remember_a_bounded_number_of_partitions(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = cache_of(clock)
    first = begun(cache, 6)
    assert created(cache, asked(11)) is None
    assert created(cache, asked(5)) is None
    begun(cache, 4)
    assert (len(cache), cache.partitions_count) == (2, 10)
    clock.now_s += IDLE_SECONDS_MAX + 1
    assert evicted(cache, 6) == [first]


async def test_as_many_idle_sessions_give_way_as_are_in_the_way(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = cache_of(clock)
    idle = [begun(cache, 2) for _ in range(4)]
    clock.now_s += IDLE_SECONDS_MAX + 1
    in_use = begun(cache, 2)
    assert evicted(cache, 7) == idle[:4]
    assert not in_use.is_closed


async def test_a_session_that_grows_gets_the_room_of_idle_ones(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = cache_of(clock)
    idle = begun(cache, 4)
    clock.now_s += IDLE_SECONDS_MAX + 1
    growing = begun(cache, 6)
    add(growing.asked, range(6, 8))
    assert cache.note_use(growing)
    assert idle.is_closed


async def test_a_session_whose_request_waits_is_not_idle(clock: Clock) -> None:
    cache = cache_of(clock, 1)
    waiting = begun(cache)
    waiting.is_in_use = True
    clock.now_s += IDLE_SECONDS_MAX + 1
    assert evicted(cache) is None
    waiting.is_in_use = False
    cache.note_end_of_use(waiting)
    assert evicted(cache) is None


async def test_an_idle_session_ends_though_nobody_needs_its_slot(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "EXPIRY_SECONDS", 0.001)
    cache = cache_of(clock)
    idle, large = begun(cache), begun(cache, session_cache.FREED_AT_ONCE_MAX + 1)
    clock.now_s += IDLE_SECONDS_MAX + 1
    used = begun(cache)
    async with asyncio.timeout(30):
        while not (idle.is_closed and large.is_closed and not large.asked):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert (len(cache), used.is_closed, cache.evictions) == (1, False, 0)
    clock.now_s += IDLE_SECONDS_MAX + 1
    async with asyncio.timeout(30):
        while len(cache):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    begun(cache)
    assert cache._expiry is not None


async def test_a_session_that_grows_beyond_the_bound_is_closed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = cache_of(clock)
    first, second = begun(cache, 6), begun(cache, 3)
    add(first.asked, range(6, 7))
    assert cache.note_use(first)
    assert cache.partitions_count == 10
    add(second.asked, range(3, 4))
    assert not cache.note_use(second)
    assert second.is_closed
    assert (len(cache), cache.partitions_count) == (1, 7)
    first.asked.forget("orders", range(5))
    assert cache.note_use(first)
    assert cache.partitions_count == 2
