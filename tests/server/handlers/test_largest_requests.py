"""The largest legal requests, straight to their handlers: no turn of the loop is held for long."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.api_keys import APIS, ApiKey
from protocol.request import RequestHeader
from server.addresses import Address
from server.dispatch import Handler, RequestContext
from tests.harness.largest_requests import NAME, largest_request, largest_requests
from tests.harness.loop_turns import watched_turns
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker

TURN_SECONDS_MAX = 0.020

SLICED = (
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)
"""The APIs that answer partitions and topics from what the broker has at hand."""

OTHER_VERSIONS = {ApiKey.FETCH: (12,)}
"""Beside the last one: Fetch by names, which finds the topic that there is."""

REQUESTS = [
    pytest.param(key, version, path, differ, id=f"{key.name}-v{version}-{name}")
    for key in SLICED
    for version in (*OTHER_VERSIONS.get(key, ()), APIS[key].version_max)
    for name, path, differ in largest_requests(APIS[key].request_type, version)
]


def handler_of(key: ApiKey) -> Handler:
    module: Any = importlib.import_module(f"server.handlers.{key.name.lower()}")
    handler: Handler = module
    return handler


def context_of(served: ServedBroker, key: ApiKey, version: int) -> RequestContext:
    """What a handler needs to know, without a connection."""
    header = RequestHeader(api_key=key, api_version=version, correlation_id=1, client_id="test")
    connection: Any = SimpleNamespace(
        is_lost=False,
        is_ending=False,
        endpoint=Address(name="PLAINTEXT", host="127.0.0.1", port=9092),
        park=lambda fetch: None,
    )
    return RequestContext(served.broker, header, connection)


@pytest.mark.parametrize(("key", "version", "path", "differ"), REQUESTS)
async def test_the_largest_request_holds_no_turn_of_the_loop(
    tmp_path: Path, key: ApiKey, version: int, path: tuple[str, ...], differ: bool
) -> None:
    request = largest_request(APIS[key].request_type, version, path, differ=differ)
    async with serving_broker(tmp_path, auto_create_topics_enable="false") as served:
        await served.create(NAME, partitions=4)
        await served.produce(NAME, batch_of(3))
        handler = handler_of(key)
        with watched_turns() as turns:
            answer = await handler.handle(request, context_of(served, key, version))
    assert answer is not None
    held_ms = turns.longest_s * 1000
    assert turns.longest_s <= TURN_SECONDS_MAX, f"the loop was held for {held_ms:.0f} ms"
