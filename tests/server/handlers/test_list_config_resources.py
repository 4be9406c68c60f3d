"""ListConfigResources: the names of what can be configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def ask(directory: Path, *types: int, version: int = 1) -> list[tuple[int, str]]:
    async with serving_broker(directory, node_id="7") as served:
        for name in ("b", "a"):
            await served.create(name)
        request = ListConfigResourcesRequest(resource_types=types)
        response = await served.call(request, version, ListConfigResourcesResponse)
        assert response.error_code == ErrorCode.NONE
        return [(each.resource_type, each.resource_name) for each in response.config_resources]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "7"), (LOGGER, "7")]),
        ((TOPIC, TOPIC), [(TOPIC, "a"), (TOPIC, "b")]),
        ((BROKER,), [(BROKER, "7")]),
        ((CLIENT_METRICS, GROUP), []),
    ],
    ids=["all", "topics", "brokers", "others"],
)
async def test_each_type_asked_for_is_listed_once(
    tmp_path: Path, types: tuple[int, ...], expected: list[tuple[int, str]]
) -> None:
    assert await ask(tmp_path, *types) == expected


async def test_v0_asks_for_client_metrics_alone(tmp_path: Path) -> None:
    assert await ask(tmp_path, version=0) == []


async def test_a_type_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        request = ListConfigResourcesRequest(resource_types=(TOPIC, 99))
        response = await served.call(request, 1, ListConfigResourcesResponse)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
