"""AlterConfigs: what is not named goes back to its default."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

TOPIC = 2


async def alter(
    served: ServedBroker,
    name: str,
    *configs: tuple[str, str | None],
    validate_only: bool = False,
    version: int = 2,
) -> AlterConfigsResourceResponse:
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=tuple(AlterableConfig(name=key, value=value) for key, value in configs),
    )
    request = AlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (answer,) = (await served.call(request, version, AlterConfigsResponse)).responses
    assert (answer.resource_type, answer.resource_name) == (TOPIC, name)
    return answer


def overrides(served: ServedBroker, name: str) -> dict[str, str]:
    topic = served.broker.topics.get(name)
    assert topic is not None
    return dict(topic.overrides)


@pytest.mark.parametrize("version", range(3))
async def test_the_whole_configuration_is_replaced(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", segment_ms="5000", cleanup_policy="compact")
        answer = await alter(
            served, "orders", ("retention.ms", "9"), ("cleanup.policy", ""), version=version
        )
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert overrides(served, "orders") == {"retention.ms": "9", "cleanup.policy": ""}
        config = served.log("orders").config
        assert (config.retention_ms, config.cleanup_policy) == (9, ())
        assert config.segment_ms == 7 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("configs", "validate_only", "code"),
    [
        pytest.param([("no.such", "1")], False, ErrorCode.INVALID_CONFIG, id="unknown_name"),
        pytest.param([("segment.ms", "0")], False, ErrorCode.INVALID_CONFIG, id="out_of_range"),
        pytest.param([("segment.ms", None)], False, ErrorCode.INVALID_REQUEST, id="null"),
        pytest.param([("segment.ms", "7")], True, ErrorCode.NONE, id="validate_only"),
    ],
)
async def test_nothing_changes_where_something_is_wrong_or_only_checked(
    tmp_path: Path,
    configs: list[tuple[str, str | None]],
    validate_only: bool,
    code: ErrorCode,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", retention_ms="5000")
        answer = await alter(served, "orders", *configs, validate_only=validate_only)
        assert answer.error_code == code
        assert bool(answer.error_message) is (code != ErrorCode.NONE)
        assert overrides(served, "orders") == {"retention.ms": "5000"}


async def test_librdkafka_replaces_a_configuration(tmp_path: Path) -> None:
    def run(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = ConfigResource(ResourceType.TOPIC, "orders", set_config={"retention.ms": "77"})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            futures = admin.alter_configs([wanted])
        for future in futures.values():
            future.result(10)

    async with serving_broker(tmp_path) as served:
        await served.create("orders", segment_ms="5000")
        host, port = served.broker.addresses["PLAINTEXT"]
        await asyncio.to_thread(run, f"{host}:{port}")
        assert overrides(served, "orders") == {"retention.ms": "77"}
