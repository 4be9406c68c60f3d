"""Fetch sessions: who may continue one, and which ones give their slot to others."""

from __future__ import annotations

import pytest

from protocol.messages.fetch import FetchPartition
from protocol.wire.error_codes import ErrorCode
from server.fetching import session_cache
from server.fetching.asked_partitions import AskedPartitions, AskedTopic, TopicKey
from server.fetching.session import EPOCH_MAX, FetchSession
from server.fetching.session_cache import IDLE_SECONDS_MAX, FetchSessionCache
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


def begun(cache: FetchSessionCache, count: int = 2) -> FetchSession:
    """Begin a session, for which there must be room."""
    session, _ = cache.create(asked(count), principal=ALICE, has_ids=True, viewpoint=VIEW)
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


def test_a_session_is_found_by_its_id_and_next_epoch(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    session = begun(cache)
    assert found(cache, session) is session
    assert found(cache, session, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.advance()
    assert found(cache, session, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert found(cache, session, 2) is session
    assert found(cache, session, 2, has_ids=False) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_last_epoch_is_followed_by_the_first(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    session = begun(cache)
    session.epoch = EPOCH_MAX
    session.advance()
    assert found(cache, session, 1) is session


def test_only_the_principal_that_began_a_session_may_continue_or_close_it(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    session = begun(cache)
    assert found(cache, session, principal=BOB) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.close_by_client(session.id, BOB) is None
    assert cache.close_by_client(session.id, ALICE) is session
    assert found(cache, session) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.close_by_client(session.id, ALICE) is None


def test_one_request_at_a_time_uses_a_session(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    session = begun(cache)
    session.is_in_use = True
    assert found(cache, session) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_session_for_so_few_partitions(clock: Clock, count: int) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    assert cache.create(asked(count), principal=ALICE, has_ids=True, viewpoint=VIEW) == (None, None)


def test_a_name_that_no_topic_can_have_is_not_remembered(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=10, clock=clock)
    long = asked(2)
    add(long, range(1), topic="x" * 250)
    assert cache.create(long, principal=ALICE, has_ids=True, viewpoint=VIEW) == (None, None)
    session = begun(cache)
    add(session.asked, range(1), topic="x" * 249)
    assert cache.note_use(session)
    add(session.asked, range(1), topic="x" * 250)
    assert not cache.note_use(session)
    assert session.is_closed


def test_without_slots_there_are_no_sessions(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=0, clock=clock)
    assert cache.create(asked(2), principal=ALICE, has_ids=True, viewpoint=VIEW) == (None, None)


def evicted(cache: FetchSessionCache, count: int = 2) -> FetchSession | None:
    """Ask for another session. Returns the one that gives its slot; None if there is no slot."""
    session, gone = cache.create(asked(count), principal=BOB, has_ids=True, viewpoint=VIEW)
    assert (session is None) == (gone is None)
    if gone is not None:
        assert gone.is_closed
        assert found(cache, gone, gone.epoch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return gone


def test_an_idle_session_gives_its_slot_to_any_other_the_longest_unused_first(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=2, clock=clock)
    first, second = begun(cache, 9), begun(cache, 9)
    clock.now_s += 1
    assert cache.note_use(first)
    clock.now_s += IDLE_SECONDS_MAX - 1
    assert evicted(cache) is None
    clock.now_s += 0.5
    assert evicted(cache) is second
    assert evicted(cache) is None
    clock.now_s += 1
    assert evicted(cache) is first
    assert cache.evictions == 2


def test_an_old_session_gives_its_slot_to_a_larger_one_the_smallest_first(clock: Clock) -> None:
    cache = FetchSessionCache(slots_max=3, clock=clock)
    sessions = [begun(cache, size) for size in (5, 3, 4)]
    clock.now_s += IDLE_SECONDS_MAX
    assert all(cache.note_use(each) for each in sessions)
    assert evicted(cache, 6) is None
    clock.now_s += 0.5
    assert evicted(cache, 3) is None
    assert evicted(cache, 4) is sessions[1]
    assert evicted(cache, 6) is sessions[2]


def test_all_sessions_together_remember_a_bounded_number_of_partitions(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = FetchSessionCache(slots_max=10, clock=clock)
    first = begun(cache, 6)
    assert cache.create(asked(11), principal=BOB, has_ids=True, viewpoint=VIEW) == (None, None)
    assert cache.create(asked(5), principal=BOB, has_ids=True, viewpoint=VIEW) == (None, None)
    begun(cache, 4)
    assert (len(cache), cache.partitions_count) == (2, 10)
    clock.now_s += IDLE_SECONDS_MAX + 1
    assert evicted(cache, 10) is None
    assert evicted(cache, 6) is first


def test_a_session_that_grows_beyond_the_bound_is_closed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    cache = FetchSessionCache(slots_max=10, clock=clock)
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
