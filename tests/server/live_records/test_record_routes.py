"""Counts of records and lags of groups over HTTP, in a whole broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from protocol.wire.numbers import Offset
from server.live_records.counting import (
    CHANGING,
    NOT_SERVED,
    LiveRecords,
    Question,
    count_live_records,
)
from storage.files.errors import SegmentRemoved
from tests.harness.committed import commit
from tests.harness.served_broker import batch_of
from tests.harness.steered_broker import SteeredBroker, steered_broker

Json = dict[str, Any]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    """`users-0` has 200 offsets and 51 records: 50 cleaned ones and one that was appended later."""
    async with steered_broker(tmp_path) as steered:
        await steered.served.create("users", 2, cleanup_policy="compact")
        for number in range(199):
            await put(steered, b"%d" % (number % 50))
        await steered.finished(await steered.post("/topics/users/partitions/0/now"))
        await put(steered, b"0")
        yield steered


async def put(broker: SteeredBroker, key: bytes) -> None:
    await broker.served.produce("users", batch_of(1, key=key))


async def ask(broker: SteeredBroker, path: str) -> tuple[int, Json]:
    async with aiohttp.ClientSession() as session, session.get(broker.url + path) as response:
        return response.status, await response.json()


async def lag(broker: SteeredBroker, group: str = "restore") -> Json:
    status, answer = await ask(broker, f"/v1/groups/{group}/lag")
    assert status == 200, answer
    return answer


async def test_a_topic_has_the_records_that_a_reader_gets(broker: SteeredBroker) -> None:
    status, answer = await ask(broker, "/v1/topics/users/records")

    assert status == 200
    assert (answer["topic"], answer["records"], answer["is_exact"]) == ("users", 51, True)
    first, second = answer["partitions"]
    assert first == {
        "partition": 0,
        "start_offset": 0,
        "first_live_offset": 149,
        "end_offset": 200,
        "records": 51,
        "is_exact": True,
        "error": None,
    }
    assert (second["records"], second["first_live_offset"], second["end_offset"]) == (0, None, 0)


async def test_a_partition_says_how_many_records_are_left_from_an_offset_on(
    broker: SteeredBroker,
) -> None:
    path = "/v1/topics/users/partitions/0/records"
    left = [
        (await ask(broker, f"{path}?offset={at}"))[1]["record_lag"] for at in (0, 150, 199, 200)
    ]

    assert left == [51, 50, 1, 0]
    assert "record_lag" not in (await ask(broker, path))[1]


async def test_the_lag_of_a_group_is_that_of_the_records_and_ends_at_zero(
    broker: SteeredBroker,
) -> None:
    seen, answer = [], {}
    for offset in (0, 149, 174, 199, 200):
        await commit(broker.served, "restore", "users", offset)
        answer = await lag(broker)
        seen.append((answer["record_lag"], answer["partitions"][0]["offset_lag"]))

    assert seen == [(51, 200), (51, 51), (26, 26), (1, 1), (0, 0)]
    assert (answer["group"], answer["records"], answer["is_exact"]) == ("restore", 51, True)
    assert answer["cluster_id"] == broker.served.broker.node.cluster_id
    assert answer["partitions"] == [
        {
            "topic": "users",
            "partition": 0,
            "committed_offset": 200,
            "end_offset": 200,
            "offset_lag": 0,
            "record_lag": 0,
            "records": 51,
            "is_exact": True,
            "error": None,
        }
    ]


async def test_the_lag_of_a_group_that_reads_a_view_is_that_of_the_topic(
    broker: SteeredBroker,
) -> None:
    await commit(broker.served, "viewer", "users.latest", 199)
    answer = await lag(broker, "viewer")
    assert [(each["topic"], each["record_lag"]) for each in answer["partitions"]] == [
        ("users.latest", 1)
    ]


async def test_a_log_that_is_out_of_service_is_not_counted(
    broker: SteeredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(broker.served, "restore", "users", 150)
    await commit(broker.served, "restore", "users", 0, partition=1)
    log = broker.served.log("users", 1)
    monkeypatch.setattr(log._service, "offline_reason", "the disk failed")

    answer = await lag(broker)
    first, second = answer["partitions"]
    _, topic = await ask(broker, "/v1/topics/users/records")

    assert (answer["record_lag"], answer["is_exact"], first["record_lag"]) == (50, False, 50)
    assert (second["record_lag"], second["error"]) == (None, NOT_SERVED)
    assert [each["error"] for each in topic["partitions"]] == [None, NOT_SERVED]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/topics/never/records", 404),
        ("/v1/topics/users/partitions/2/records", 404),
        ("/v1/topics/users/partitions/-1/records", 400),
        ("/v1/topics/users/partitions/0/records?offset=x", 400),
        ("/v1/groups/never/lag", 404),
    ],
)
async def test_what_does_not_exist_is_refused_with_a_sentence(
    broker: SteeredBroker, path: str, status: int
) -> None:
    found, answer = await ask(broker, path)
    assert found == status
    assert answer["error"]


async def test_what_a_swap_has_removed_is_counted_again(
    broker: SteeredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, executor = broker.served.log("users"), broker.served.broker.executors.record_counts
    counting = "server.live_records.counting._count"
    failures = 0

    def removed(*_: object) -> LiveRecords:
        nonlocal failures
        failures += 1
        raise SegmentRemoved("0.log")

    with monkeypatch.context() as patch:
        patch.setattr(counting, removed)
        assert await count_live_records([Question(log)], executor) == [CHANGING]
    (counted,) = await count_live_records([Question(log)], executor)

    assert failures == 3
    assert isinstance(counted, LiveRecords)
    assert counted.records == (51, True)


async def test_a_log_that_is_being_cut_is_not_counted(broker: SteeredBroker) -> None:
    log, executor = broker.served.log("users"), broker.served.broker.executors.record_counts
    log._list.begin_change()
    assert await count_live_records([Question(log)], executor) == [CHANGING]
    log._list.end_change()


async def test_a_request_reads_no_more_than_its_budget(broker: SteeredBroker) -> None:
    log, executor = broker.served.log("users"), broker.served.broker.executors.record_counts
    question = Question(log, Offset(175))
    (estimated,) = await count_live_records([question], executor, read_bytes_max=0)
    (counted,) = await count_live_records([question], executor)

    assert isinstance(estimated, LiveRecords)
    assert isinstance(counted, LiveRecords)
    assert (estimated.is_exact, estimated.records.is_exact) == (False, True)
    assert counted.lag == (25, True)


async def test_metrics_show_the_records_and_the_lag(broker: SteeredBroker) -> None:
    await commit(broker.served, "restore", "users", 199)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{broker.url}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()

    labels = 'consumergroup="restore",partition="0",topic="users"'
    assert f"kompakt_group_record_lag{{{labels}}} 1.0" in lines
    assert 'kompakt_group_record_lag_sum{consumergroup="restore",topic="users"} 1.0' in lines
    assert 'kompakt_topic_records{topic="users"} 51.0' in lines
