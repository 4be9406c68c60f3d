"""A fenced broker: all that it has acknowledged can be read, on one listener, and nothing is written."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from pathlib import Path

import aiohttp
import pytest

from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.broker import Broker
from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from server.runtime.clock import SystemClock
from server.standby.fence import KEY, Fence
from tests.harness.authorization_requests import TOPIC
from tests.harness.authorization_world import World, state_of
from tests.harness.fencing import BY, INTERNAL, fence, lift, set_fence
from tests.harness.served_broker import (
    batch_of,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
    records_in,
    serving_broker,
)
from tests.server.handlers import test_checkpoint_pieces as checkpoints
from tests.server.handlers import test_fetch_snapshot as metadata

REASON = f"this broker is fenced: {BY} has taken over"
WRITERS = {
    "partition load", "offset expiry", "transactional id expiry", "cleaner", "link",
    "log clock: roll", "log clock: checkpoint", "log clock: delete old segments",
}  # fmt: skip
"""The names of tasks that write, or that remove records, of a broker that serves."""


async def test_what_was_acknowledged_is_read_on_the_internal_listener_alone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        client, port = await served.connect(), served.broker.addresses["PLAINTEXT"][1]

        await fence(served)

        assert await client.is_closed()
        assert list(served.broker.addresses) == ["INTERNAL"]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        inside = await served.connect("INTERNAL")
        found = only_fetched(
            await inside.call(fetch_request([("orders", 0, 0)]), 12, FetchResponse)
        )
        assert len(records_in(found)) == 3


async def test_a_produce_is_refused_with_who_has_taken_over(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        await fence(served)
        client = await served.connect("INTERNAL")

        request = produce_request("orders", batch_of(1))
        answer = only_produced(await client.call(request, 9, ProduceResponse))

        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.error_message == REASON
        assert served.log("orders").log_end_offset == 0


async def test_a_producer_that_reads_no_answer_loses_its_connection(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        await fence(served)
        client = await served.connect("INTERNAL")

        client.send(produce_request("orders", batch_of(1), acks=0), 9)

        assert await client.is_closed()


async def test_a_restart_keeps_the_fence_and_its_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await fence(served)
        first = served.broker.fence
    async with serving_broker(tmp_path, **INTERNAL) as served:
        assert isinstance(first, Fence)
        assert served.broker.fence == first
        assert first.by == BY
        assert first.since_ms is not None


async def test_clients_work_again_once_the_fence_is_lifted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        await fence(served)

        await lift(served)

        await served.produce("orders", batch_of(2))
        assert len(records_in(await served.fetch("orders", 0))) == 5
        assert served.log("orders").log_end_offset == 5
        assert served.broker.not_ready is None
        assert await served.broker._stores.node.get(KEY) is None  # type: ignore[union-attr]


async def test_the_fence_can_be_lifted_before_the_broker_has_started_fenced(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        client = await served.connect("INTERNAL")
        await set_fence(client, BY)
        await set_fence(client, None)

        await served.restarted()

        assert served.broker.fence is None


class LateClock(SystemClock):
    """A clock that is a month ahead: every timeout and retention has passed."""

    def now_ms(self) -> int:
        return super().now_ms() + 30 * 86_400_000


async def test_nothing_is_written_while_it_is_fenced(tmp_path: Path) -> None:
    """Also not for a transaction, a member and offsets whose time is over; only after the fence."""
    settings = INTERNAL | {"group_initial_rebalance_delay_ms": "0"}
    async with serving_broker(tmp_path, **settings) as served:
        world = World(served, await served.connect(), await served.connect())
        await world.prepare()
        await world.commit("team")
        await fence(served, clock=LateClock())
        before = state_of(served)
        client = await served.connect("INTERNAL")

        for _ in range(20):
            request = MetadataRequest(topics=(MetadataRequestTopic(name="no-such-topic"),))
            answer = await client.call(request, 12, MetadataResponse)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        assert not WRITERS & {task.get_name() for task in asyncio.all_tasks()}
        assert state_of(served) == before
        end = served.log(TOPIC).log_end_offset
        await lift(served)
        async with asyncio.timeout(60):
            # The transaction is aborted at once.
            while served.log(TOPIC).log_end_offset == end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_broker_that_serves_has_the_tasks_that_a_fenced_one_lacks(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL):
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert {each for each in WRITERS if each.startswith("log clock")} <= names
        assert {"offset expiry", "transactional id expiry"} <= names


async def test_a_follower_catches_up_with_the_metadata_and_learns_that_nobody_leads(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        client = await served.connect("INTERNAL")
        before = await metadata.fetched(client, metadata.fetch(1, 0))
        await fence(served)

        after = await metadata.fetched(await served.connect("INTERNAL"), metadata.fetch(1, 0))

        assert before.current_leader.leader_id == 1
        assert after.current_leader.leader_id == -1
        assert after.high_watermark == before.high_watermark
        assert bytes(after.records) == bytes(before.records)  # type: ignore[arg-type]


async def test_a_follower_gets_a_coordinators_log_and_its_checkpoint(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **checkpoints.SETTINGS) as served:
        await checkpoints.commit_some(served)
        await fence(served)
        client = await served.connect("INTERNAL")

        fetched = await client.call(fetch_request([(OFFSETS_TOPIC, 0, 0)]), 12, FetchResponse)
        part = await checkpoints.got(client, checkpoints.piece(checkpoints.NEWEST, 10))

        assert len(records_in(only_fetched(fetched))) == 10
        assert checkpoints.data_of(part) == checkpoints.checkpoint_of(served)
        assert part.snapshot_id.end_offset == 10


async def test_a_checkpoint_that_a_follower_took_serves_the_next_start(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **checkpoints.SETTINGS) as served:
        await checkpoints.commit_some(served)
        await fence(served)
        client = await served.connect("INTERNAL")
        await checkpoints.got(client, checkpoints.piece(checkpoints.NEWEST, 10))

        await lift(served)

        await served.broker.groups.table.loads.loaded()
        (state,) = served.broker.groups.topic.checkpoints.states().values()
        assert state.end_offset == 10
        (group,) = served.broker.groups.table.entries()
        assert group.group.group_id


async def test_a_coordinators_topic_that_does_not_exist_has_no_checkpoint(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **checkpoints.SETTINGS) as served:
        await fence(served)
        client = await served.connect("INTERNAL")

        response = await client.call(
            checkpoints.piece(checkpoints.NEWEST), 1, FetchSnapshotResponse
        )

        ((part,),) = [topic.partitions for topic in response.topics]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert served.broker.topics.get(TRANSACTION_STATE_TOPIC) is None


async def test_without_an_internal_listener_no_fence_can_be_set(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        code, message = await set_fence(await served.connect(), BY)

        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert "set inter.broker.listener.name first" in message
        assert not served.broker._restart.is_set()


async def test_a_fenced_broker_whose_internal_listener_was_removed_opens_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await fence(served)
    with caplog.at_level(logging.WARNING):
        async with serving_broker(tmp_path) as served:
            assert served.broker.addresses == {}
            assert served.broker.not_ready == REASON
    assert "no listener is open, as inter.broker.listener.name is not set" in caplog.text


async def test_http_answers_say_so_and_no_metric_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = INTERNAL | {"http_listener": "127.0.0.1:0", "log_cleaner_enable": "true"}
    async with serving_broker(tmp_path, **settings) as served:
        await served.create("orders", cleanup_policy="compact")
        await fence(served)
        url = f"http://127.0.0.1:{served.broker.http_port}"
        async with aiohttp.ClientSession() as session:
            found = {}
            for method, path in await routes_of(session, url):
                concrete = path.replace("{topic}", "orders").replace("{partition}", "0")
                # The stream of changes would not end.
                concrete = concrete.replace("/changes", "/changes?follow=false")
                async with session.request(method, url + concrete.replace("{", "x")) as response:
                    found[method, path] = response.status, await response.text()

    assert {path for path, (status, _) in found.items() if status >= 500} == {
        ("GET", "/health/ready"),
        ("GET", "/v1/status/ready"),
    }
    assert found["GET", "/health/ready"][1] == f"{REASON}\n"
    assert found["GET", "/health/live"][0] == 200
    assert "kompakt_broker_fenced 1.0" in found["GET", "/metrics"][1]
    assert found["GET", "/v1/metadata/followers"][0] == 200
    for path in ("/v1/links", "/v1/compaction"):
        assert found["GET", path] == (409, json.dumps({"error": REASON}))
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_nothing_keeps_the_broker_that_has_stopped(tmp_path: Path) -> None:
    """Else each fence would cost the memory of all partitions."""
    settings = INTERNAL | {"http_listener": "127.0.0.1:0", "log_cleaner_enable": "true"}
    async with serving_broker(tmp_path, **settings) as served:
        url = f"http://127.0.0.1:{served.broker.http_port}"
        async with aiohttp.ClientSession() as session:
            for _, path in await routes_of(session, url):
                async with session.get(url + path.replace("{", "x")):
                    pass
        await served.create("orders")
        await served.produce("orders", batch_of(1))
        before = brokers_alive()

        await fence(served)

        assert brokers_alive() == before


def brokers_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Broker) for each in gc.get_objects())


async def routes_of(session: aiohttp.ClientSession, url: str) -> list[tuple[str, str]]:
    async with session.get(url) as response:
        lines = (await response.text()).splitlines()
    return [(method, path) for method, path in (line.split() for line in lines)]


@pytest.mark.parametrize("name", ["x" * 301, "a\nb", "a\x1b[0m"])
async def test_a_name_that_does_not_fit_into_a_line_is_refused(tmp_path: Path, name: str) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        code, message = await set_fence(await served.connect("INTERNAL"), name)

        assert code == ErrorCode.INVALID_REQUEST
        assert message == ("broker.fenced.by: a name has at most 300 characters, all printable")


async def test_one_line_says_who_has_taken_over_and_how_to_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        with caplog.at_level(logging.WARNING):
            await fence(served)

    (line,) = [each.message for each in caplog.records if "is fenced" in each.message]
    assert line.startswith(f"{REASON} (since 20")
    assert line.endswith(
        "; only requests that read are served, on INTERNAL; on that listener,"
        " kompakt configs unset --broker broker.fenced.by ends it"
    )
