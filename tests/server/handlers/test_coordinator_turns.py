"""However much a request to a coordinator names, its handler never holds the loop."""

from __future__ import annotations

import importlib
import inspect
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from protocol.api_keys import APIS, Api, ApiKey
from protocol.request import RequestHeader
from server.connection import Connection
from server.dispatch import RequestContext
from tests.harness.large_requests import LargeRequest, Value, large_requests
from tests.harness.loop_turns import measured_turns
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_requests import TX, init

ELEMENTS = 100_000
FITTING = 40_000
"""So many names of topics fit into one record, which is not made in slices; more are refused before."""

LONGEST_TURN_SECONDS = 0.05

COORDINATOR_APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)

TOPIC, GROUP = "t", "g"
CONNECTION = SimpleNamespace(
    client_host="127.0.0.1", endpoint=SimpleNamespace(host="localhost", port=9092)
)


def _text(prefix: str) -> Value:
    """The name that exists for element 0; names that do not exist for the others."""
    return lambda number: f"{prefix}{number}" if number else prefix


VALUES: dict[str, Value] = {
    "name": _text(TOPIC),
    "topics_name": _text(TOPIC),
    "group_id": _text(GROUP),
    "groups_names": _text(GROUP),
    "member_id": _text("member"),
    "transactional_id": _text(TX),
    "transactional_ids": _text(TX),
    "v3_and_below_transactional_id": _text(TX),
    "protocol_type": lambda _: "consumer",
    "session_timeout_ms": lambda _: 30_000,
    "rebalance_timeout_ms": lambda _: 30_000,
    "generation_id": lambda _: -1,
    "generation_id_or_member_epoch": lambda _: -1,
    "key_type": lambda _: 0,
    "subscribed_topic_names": _text(TOPIC),
    "group_instance_id": lambda _: None,
    "instance_id": lambda _: None,
    "rack_id": lambda _: None,
    "server_assignor": lambda _: None,
    "subscribed_topic_regex": lambda _: None,
    "verify_only": lambda _: False,
}


OF_ONE_API: dict[ApiKey, dict[str, Value]] = {
    # A new static member: it is let in at once.
    ApiKey.JOIN_GROUP: {
        "member_id": lambda _: "",
        "group_instance_id": lambda _: "static",
        "group_id": lambda _: "joined",
    },
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": lambda _: "beaten",
        "subscribed_topic_names": lambda number: f"a-topic-of-20-bytes{number:06}",
    },
}


@pytest.mark.parametrize("key", COORDINATOR_APIS, ids=lambda key: APIS[key].name)
async def test_no_handler_of_a_coordinator_holds_the_loop(tmp_path: Path, key: ApiKey) -> None:
    took = {}
    config = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}
    async with serving_broker(tmp_path, **config) as served:
        values = VALUES | await world_of(served) | OF_ONE_API.get(key, {})
        for large in requests(APIS[key], values):
            took[large.name] = await longest_turn(served, large)
    assert {name: s for name, s in took.items() if s > LONGEST_TURN_SECONDS} == {}


def requests(api: Api, values: dict[str, Value]) -> Iterator[LargeRequest]:
    """All that are sent to one API."""
    is_recorded = api.key is ApiKey.CONSUMER_GROUP_HEARTBEAT
    for count in (FITTING, ELEMENTS) if is_recorded else (ELEMENTS,):
        for version in versions(api):
            yield from large_requests(api, version, count, values)


async def world_of(served: ServedBroker) -> dict[str, Value]:
    """What the requests name, where they name something that exists."""
    topic = await served.create(TOPIC, 2)
    producer = await init(served)
    await served.broker.groups.topic.ensure()
    return {
        "topic_id": lambda number: uuid.UUID(int=number) if number else topic.id,
        "producer_id": lambda _: producer.id,
        "producer_epoch": lambda _: producer.epoch,
    }


def versions(api: Api) -> list[int]:
    """The last version of each set of arrays that requests may have."""
    last: dict[tuple[str, ...], int] = {}
    for version in range(api.served_min, api.version_max + 1):
        shape = tuple(
            each.name.split(" ", 2)[2] for each in large_requests(api, version, 2, VALUES)
        )
        last[shape] = version
    return sorted(last.values())


async def longest_turn(served: ServedBroker, large: LargeRequest) -> float:
    """CPU seconds of the longest turn while a request is handled."""
    api = APIS[large.request.api_key]
    handler = importlib.import_module(f"server.handlers.{api.key.name.lower()}")
    header = RequestHeader(
        api_key=api.key, api_version=large.version, correlation_id=1, client_id="large"
    )
    context = RequestContext(served.broker, header, cast("Connection", CONNECTION))
    async with measured_turns() as turns:
        answer = await handler.handle(large.request, context)
        if inspect.isawaitable(answer):
            await answer
    return turns.longest_s
