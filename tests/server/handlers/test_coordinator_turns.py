"""However much a request to a coordinator names, its handler never holds the loop."""

from __future__ import annotations

import importlib
import inspect
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from protocol.api_keys import APIS, Api, ApiKey
from protocol.request import RequestHeader
from server.connection import Connection
from server.dispatch import RequestContext
from tests.harness.large_requests import LargeRequest, Value, large_requests
from tests.harness.loop_turns import measured_turns
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_requests import TX, init

ELEMENTS = 50_000
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
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"group_id": lambda _: "beaten"},
}


async def test_no_handler_of_a_coordinator_holds_the_loop(tmp_path: Path) -> None:
    too_long = {}
    config = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}
    async with serving_broker(tmp_path, **config) as served:
        world = await world_of(served)
        for key in COORDINATOR_APIS:
            values = VALUES | world | OF_ONE_API.get(key, {})
            for version in versions(APIS[key]):
                for large in large_requests(APIS[key], version, ELEMENTS, values):
                    longest_s = await longest_turn(served, large)
                    if longest_s > LONGEST_TURN_SECONDS:
                        too_long[large.name] = f"{longest_s * 1000:.0f} ms"
    assert too_long == {}, "\n".join(f"{name}: {took}" for name, took in too_long.items())


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
