"""The answers of the handlers' `refuse`: they have an element for each one requested, however many.

The requests are generated from the table of APIs: each array of each request, oldest and newest version.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.wire.api_keys import APIS, Api, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.request import Request, parse_request
from protocol.wire.response import encode_response
from protocol.wire.schema import Message
from server.config.listeners.addresses import Address
from server.request_context import RequestContext
from server.runtime.turns import Pace
from tests.harness.large_requests import array_paths, large_request
from tests.harness.served_broker import ServedBroker
from tests.harness.watched_broker import WatchedBroker, watched_broker

ELEMENTS = 4_000
BLOCKS_MAX = ELEMENTS // 4
"""The most allocated blocks; a separate element for each requested one would take at least one."""

MESSAGE = "not now"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with watched_broker(tmp_path_factory.mktemp("broker")) as watched:
        yield watched


CASES = [
    pytest.param(api.key, version, path, id=f"{api.name}-v{version}-{'.'.join(path)}")
    for api in APIS.values()
    for version in sorted({api.served_min, api.version_max})
    for path in array_paths(api.request_type, version)
]


def refused(served: ServedBroker, api: Api, request: Request) -> tuple[Message | None, int]:
    """Returns the answer of an API's `refuse`, and the number of blocks allocated for it."""
    handler: Any = importlib.import_module(f"server.handlers.{api.key.name.lower()}")
    pace = Pace(served.broker.turns)
    connection = cast(
        "Any", SimpleNamespace(endpoint=Address(name="PLAINTEXT", host="127.0.0.1", port=9092))
    )
    context = RequestContext(served.broker, request.header, connection, pace)
    before = sys.getallocatedblocks()
    answer = handler.refuse(request.body, context, ErrorCode.KAFKA_STORAGE_ERROR, MESSAGE)
    return answer, sys.getallocatedblocks() - before


@pytest.mark.parametrize(("key", "version", "path"), CASES)
def test_a_refusal_makes_its_elements_when_they_are_encoded(
    broker: WatchedBroker, key: ApiKey, version: int, path: tuple[str, ...]
) -> None:
    api = APIS[key]
    few, many = (
        parse_request(large_request(api, path, "distinct", count, version=version).frame)
        for count in (1, ELEMENTS)
    )

    async def refuse_both(served: ServedBroker) -> tuple[Message | None, int]:
        refused(served, api, few)  # imports, and other one-time work
        return refused(served, api, many)

    answer, blocks = broker.run(refuse_both)

    assert blocks <= BLOCKS_MAX
    if answer is not None:
        assert encode_response(many.header, answer)
