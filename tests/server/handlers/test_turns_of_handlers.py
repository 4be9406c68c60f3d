"""The largest legal request of each API takes turns: it holds the loop for a slice at a time.

Generated from the API table, so that a new API is in it. Those of ELSEWHERE need logs, groups or
transactions behind them to mean anything.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from protocol.api_keys import APIS, Api, ApiKey
from protocol.request import RequestHeader
from protocol.schema import Message
from server.addresses import Address
from server.connection import Connection
from server.dispatch import RequestContext
from tests.harness.largest_requests import Filling, filled, fillings
from tests.harness.loop_turns import Timed
from tests.harness.served_broker import ServedBroker, serving_broker

TURN_SECONDS_MAX = 0.05

ELSEWHERE = {
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.TXN_OFFSET_COMMIT, ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}  # fmt: skip


def cases() -> Iterator[Any]:
    for api in APIS.values():
        if api.key not in ELSEWHERE:
            for filling in fillings(api):
                yield pytest.param(api, filling, id=f"{api.name}-{filling}")


class Peer:
    """Stands for the connection that a request came by."""

    endpoint = Address(name="PLAINTEXT", host="127.0.0.1", port=9092)

    def __str__(self) -> str:
        return "a test"


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """What a full collection takes depends on everything that is alive, not on the handler."""
    gc.disable()
    yield
    gc.enable()


async def answered(served: ServedBroker, api: Api, request: Message) -> tuple[Message, float]:
    """The handler's answer, and the longest time that it held the loop."""
    header = RequestHeader(
        api_key=api.key, api_version=api.version_max, correlation_id=1, client_id="test"
    )
    module = importlib.import_module(f"server.handlers.{api.key.name.lower()}")
    context = RequestContext(served.broker, header, cast("Connection", Peer()))
    timed = Timed(_whole(module.handle(request, context)))
    answer = await timed
    return answer, timed.longest_turn_s


async def _whole(handled: Awaitable[Any]) -> Message:
    answer = await handled
    return cast("Message", answer if isinstance(answer, Message) else await answer)


@pytest.mark.usefixtures("quiet_collector")
@pytest.mark.parametrize(("api", "filling"), list(cases()))
async def test_the_largest_request_holds_the_loop_for_a_slice_at_a_time(
    tmp_path: Path, api: Api, filling: Filling
) -> None:
    request = filled(api, filling)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        answer, longest_s = await answered(served, api, request)

    assert isinstance(answer, api.response_type)
    assert longest_s <= TURN_SECONDS_MAX, f"held the loop for {longest_s * 1000:.1f} ms at once"
