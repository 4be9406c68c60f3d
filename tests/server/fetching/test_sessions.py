"""Fetch sessions over a socket, where they meet rights, waiting, other requests and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from metrics.facts import FetchSessionFacts
from protocol.messages.fetch import FetchRequest, FetchResponse, ForgottenTopic, PartitionData
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch
from server.handlers import fetch
from server.http import broker_facts
from server.net.send_queue import COPIED_BYTES_MAX
from server.security.acls import Operation, ResourceType
from server.security.principal import Principal
from tests.harness.authorized_broker import (
    SUPER,
    allow,
    authorizing_broker,
    connect_as,
    set_acls,
)
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    records_in,
    serving_broker,
)

LONG_MS = 30_000
BOTH = [("orders", 0, 0), ("orders", 1, 0)]


def next_request(
    session: int, epoch: int, *places: tuple[str, int, int], **settings: Any
) -> FetchRequest:
    return fetch_request(places, session_id=session, session_epoch=epoch, **settings)


async def begun(client: RawClient) -> int:
    """Begin a session for both partitions. Returns its id."""
    answer = await client.call(fetch_request(BOTH, session_epoch=0), 12, FetchResponse)
    assert answer.session_id != 0
    return answer.session_id


async def called(client: RawClient, request: FetchRequest) -> FetchResponse:
    return await client.call(request, 12, FetchResponse)


def partitions(answer: FetchResponse) -> dict[int, PartitionData]:
    assert answer.error_code == ErrorCode.NONE
    return {data.partition_index: data for topic in answer.responses for data in topic.partitions}


def codes(answer: FetchResponse) -> dict[int, int]:
    return {number: data.error_code for number, data in partitions(answer).items()}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_a_full_request_for_one_partition_begins_no_session(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders")
        request = fetch_request([("orders", 0, 0)], session_epoch=0)
        answer = await served.call(request, 12, FetchResponse)
    assert answer.session_id == 0
    assert [len(records_in(each)) for each in partitions(answer).values()] == [1]


async def test_a_right_that_is_taken_and_given_back_shows_in_the_next_answer(
    tmp_path: Path,
) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders", 2)
        read = allow(ResourceType.TOPIC, "orders", Operation.READ)
        await set_acls(served, [read])
        client = await served.connect()
        session = await begun(client)
        assert codes(await called(client, next_request(session, 1))) == {}
        await set_acls(served, [])
        refused = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert codes(await called(client, next_request(session, 2))) == refused
        assert codes(await called(client, next_request(session, 3))) == refused
        await set_acls(served, [read])
        assert codes(await called(client, next_request(session, 4))) == {0: 0, 1: 0}
        assert codes(await called(client, next_request(session, 5))) == {}


async def test_another_principal_does_not_find_a_session(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders", 2)
        client = await connect_as(served, SUPER)
        session = await begun(client)
        other = await connect_as(served, Principal.parse("User:eve"))
        answer = await called(other, next_request(session, 1))
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        full = fetch_request(BOTH, session_id=session, session_epoch=-1)
        await called(other, full)
        assert (await called(client, next_request(session, 1))).error_code == ErrorCode.NONE


async def parked(served: ServedBroker, client: RawClient, request: FetchRequest) -> int:
    """Send a request that has to wait, and return once it does. Returns its correlation id."""
    correlation_id = client.send(request, 12)
    await until(lambda: served.broker.fetch_waiters.parked_count == 1)
    return correlation_id


async def test_a_request_waits_for_all_partitions_of_its_session(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        client = await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        await served.produce("orders", batch_of(3), 1)
        answer = partitions(await client.receive(FetchResponse, 12, waiting))
    assert {number: len(records_in(data)) for number, data in answer.items()} == {1: 3}


async def test_a_second_request_of_a_session_that_waits_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        client, other = await served.connect(), await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        for epoch in (1, 2):
            answer = await called(other, next_request(session, epoch, ("orders", 0, 7)))
            assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await served.produce("orders", batch_of(1), 0)
        assert 0 in partitions(await client.receive(FetchResponse, 12, waiting))
        assert 0 in partitions(await called(other, next_request(session, 2)))


async def test_a_lost_connection_leaves_no_pins_and_the_session_is_closed_by_a_new_one(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        await served.produce("orders", batch_of(1, value=bytes(COPIED_BYTES_MAX)), 0)
        await served.produce("orders", batch_of(1), 1)
        client = await served.connect()
        session = await begun(client)
        pinned, copied = (served.log("orders", each).segments[0] for each in (0, 1))
        held = served.broker.answers.held_bytes
        waiting = next_request(session, 1, max_wait_ms=LONG_MS, min_bytes=1 << 20)
        await parked(served, client, waiting)
        assert (pinned.files._pins, copied.files._pins) == (1, 0)
        assert served.broker.answers.held_bytes > held
        client.abort()
        await until(lambda: served.broker.fetch_waiters.parked_count == 0)
        await until(lambda: pinned.files._pins == 0)
        assert served.broker.answers.held_bytes == held
        again = await served.connect()
        answer = await called(again, fetch_request(BOTH, session_id=session, session_epoch=0))
        assert answer.session_id not in (0, session)
        assert set(partitions(answer)) == {0, 1}
        assert len(served.broker.fetch_sessions) == 1
        assert served.broker.fetch_sessions.partitions_count == 2


async def test_a_request_that_waits_is_answered_though_its_session_was_closed(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        client = await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        closing = fetch_request(BOTH, session_id=session, session_epoch=-1)
        assert set(partitions(await served.call(closing, 12, FetchResponse))) == {0, 1}
        await served.produce("orders", batch_of(1), 0)
        assert set(partitions(await client.receive(FetchResponse, 12, waiting))) == {0}
        answer = await called(client, next_request(session, 2))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_broker_without_slots_answers_full_requests(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, max_incremental_fetch_session_cache_slots="0") as served:
        await served.create("orders", 2)
        for _ in range(2):
            answer = await served.call(fetch_request(BOTH, session_epoch=0), 12, FetchResponse)
            assert answer.session_id == 0
            assert set(partitions(answer)) == {0, 1}


async def test_metrics_count_the_sessions_and_their_partitions(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        client = await served.connect()
        session = await begun(client)
        served.broker.fetch_sessions.evictions = 7
        facts = broker_facts(served.broker).fetch_sessions
        assert facts == FetchSessionFacts(sessions=1, partitions=2, evictions_total=7)
        await called(client, fetch_request(BOTH, session_id=session, session_epoch=-1))
        facts = broker_facts(served.broker).fetch_sessions
        assert facts == FetchSessionFacts(evictions_total=7)


async def test_a_right_that_is_taken_while_a_full_request_is_collected_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create("orders", 2)
        read = allow(ResourceType.TOPIC, "orders", Operation.READ)
        await set_acls(served, [read])
        ask_for = fetch._ask_for

        async def ask_and_lose(*arguments: Any) -> None:
            await ask_for(*arguments)
            await set_acls(served, [])

        monkeypatch.setattr(fetch, "_ask_for", ask_and_lose)
        client = await served.connect()
        session = await begun(client)
        monkeypatch.setattr(fetch, "_ask_for", ask_for)
        refused = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert codes(await called(client, next_request(session, 1))) == refused


async def test_an_epoch_that_rises_while_a_request_waits_shows_in_the_next_answer(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        log, client = served.log("orders"), await served.connect()
        epoch = log.leader_epoch
        full = fetch_request(BOTH, session_epoch=0, current_leader_epoch=epoch)
        answer = await called(client, full)
        session, first = answer.session_id, ("orders", 0, 0)
        request = next_request(session, 1, first, max_wait_ms=200, current_leader_epoch=epoch)
        waiting = await parked(served, client, request)
        log.lead_above(Epoch(log.leader_epoch))
        assert codes(await client.receive(FetchResponse, 12, waiting)) == {}
        fenced = {0: ErrorCode.FENCED_LEADER_EPOCH}
        assert codes(await called(client, next_request(session, 2))) == fenced


@pytest.mark.parametrize("seed", range(8))
async def test_a_session_that_waits_again_and_again_misses_no_record(
    tmp_path: Path, seed: int
) -> None:
    """Records come while a request waits, while none does, and while partitions come and go."""
    random, count = Random(seed), 5
    async with serving_broker(tmp_path) as served:
        await served.create("orders", count)
        client = await served.connect()
        places = [("orders", number, 0) for number in range(count)]
        first = fetch_request(places, session_epoch=0)
        session, epoch = (await called(client, first)).session_id, 0
        positions = dict.fromkeys(range(count), 0)
        changed: dict[int, int] = {}
        for _ in range(60):
            forgotten = random.sample(sorted(positions), 1) if random.random() < 0.2 else []
            changed = {number: at for number, at in changed.items() if number not in forgotten}
            request = replace(
                next_request(
                    session,
                    epoch := epoch + 1,
                    *(("orders", number, at) for number, at in changed.items()),
                    max_wait_ms=LONG_MS,
                ),
                forgotten_topics_data=(
                    ForgottenTopic(topic="orders", partitions=tuple(forgotten)),
                ),
            )
            early, late = (random.sample(range(count), random.randint(0, 2)) for _ in range(2))
            for number in early:
                await served.produce("orders", batch_of(1), number)
            correlation_id = client.send(request, 12)
            kept = [each for each in range(count) if each not in forgotten]
            for number in {*late, random.choice(kept)}:
                await served.produce("orders", batch_of(1), number)
            async with asyncio.timeout(LONG_MS / 2_000):
                answer = partitions(await client.receive(FetchResponse, 12, correlation_id))
            changed = {}
            for number, data in answer.items():
                assert number not in forgotten
                offsets = [record.offset for record in records_in(data)]
                assert offsets == list(range(positions[number], positions[number] + len(offsets)))
                if offsets:
                    positions[number] = changed[number] = offsets[-1] + 1
            # What was forgotten comes back with the next request.
            changed |= {number: positions[number] for number in forgotten}
        last = await called(
            client,
            next_request(
                session, epoch + 1, *(("orders", number, at) for number, at in changed.items())
            ),
        )
        for number, data in partitions(last).items():
            if records := records_in(data):
                positions[number] = records[-1].offset + 1
        assert positions == {
            number: served.log("orders", number).high_watermark for number in positions
        }


async def test_a_partition_that_joins_a_session_is_waited_for(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 3)
        client = await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        await served.produce("orders", batch_of(1), 0)
        await client.receive(FetchResponse, 12, waiting)
        joining = next_request(session, 2, ("orders", 0, 1), ("orders", 2, 0), max_wait_ms=LONG_MS)
        waiting = await parked(served, client, joining)
        await served.produce("orders", batch_of(1), 2)
        async with asyncio.timeout(LONG_MS / 2_000):
            answer = partitions(await client.receive(FetchResponse, 12, waiting))
    assert set(answer) == {2}


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_what_a_request_reads_that_need_not_wait_is_waited_for_by_the_next_one(
    tmp_path: Path, is_replaced: bool
) -> None:
    """Partition 1 joins, or gets another log, in a request that is answered at once."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 1)
        topic = await served.create("users", 1)
        client = await served.connect()
        places = [("orders", 0, 0), ("users", 0, 0)]
        answer = await called(client, fetch_request(places, session_epoch=0))
        session = answer.session_id
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        await served.produce("orders", batch_of(1), 0)
        await client.receive(FetchResponse, 12, waiting)
        await served.produce("orders", batch_of(1), 0)
        forgotten = ForgottenTopic(topic="users", partitions=(0,))
        if is_replaced:
            await served.broker.topics.delete(topic)
            await served.create("users", 1)
            joining = next_request(session, 2, ("orders", 0, 1), max_wait_ms=LONG_MS)
            await called(client, joining)
            epoch = 3
        else:
            going = next_request(session, 2, ("orders", 0, 1), max_wait_ms=LONG_MS)
            await called(client, replace(going, forgotten_topics_data=(forgotten,)))
            joining = next_request(session, 3, ("users", 0, 0), max_wait_ms=LONG_MS)
            await called(client, joining)  # The records of orders come again.
            epoch = 4
        request = next_request(session, epoch, ("orders", 0, 2), max_wait_ms=LONG_MS)
        waiting = await parked(served, client, request)
        await served.produce("users", batch_of(1), 0)
        async with asyncio.timeout(LONG_MS / 2_000):
            answer = await client.receive(FetchResponse, 12, waiting)
    assert [topic.topic for topic in answer.responses] == ["users"]


async def test_a_session_without_a_request_watches_its_logs_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.fetching.session.WATCH_SECONDS", 0.05)
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        waiters, logs = served.broker.fetch_waiters, [served.log("orders", each) for each in (0, 1)]
        client = await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        await served.produce("orders", batch_of(1), 0)
        await client.receive(FetchResponse, 12, waiting)
        assert waiters.parked_count == 0
        assert all(log in waiters._by_log for log in logs)
        await until(lambda: not any(log in waiters._by_log for log in logs))
        request = next_request(session, 2, ("orders", 0, 1), max_wait_ms=LONG_MS)
        waiting = await parked(served, client, request)
        await served.produce("orders", batch_of(1), 1)
        assert set(partitions(await client.receive(FetchResponse, 12, waiting))) == {1}


@pytest.mark.parametrize("how", ["closed by its client", "its partition forgotten", "an error"])
async def test_a_watch_ends_with_what_it_was_for(tmp_path: Path, how: str) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        waiters, log = served.broker.fetch_waiters, served.log("orders")
        client = await served.connect()
        session = await begun(client)
        waiting = await parked(served, client, next_request(session, 1, max_wait_ms=LONG_MS))
        await served.produce("orders", batch_of(1), 0)
        await client.receive(FetchResponse, 12, waiting)
        assert log in waiters._by_log
        request = next_request(session, 2, ("orders", 0, 1))
        if how == "closed by its client":
            request = fetch_request(BOTH, session_id=session, session_epoch=-1)
        elif how == "an error":
            request = next_request(session, 2, ("orders", 0, 99))
        else:
            forgotten = ForgottenTopic(topic="orders", partitions=(0,))
            request = replace(request, forgotten_topics_data=(forgotten,))
        await called(client, request)
        assert log not in waiters._by_log
