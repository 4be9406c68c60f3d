"""DescribeConfigs: values as they were set, where they come from, and what cannot be described."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.wire.error_codes import ErrorCode
from server.config.broker_configs import BrokerConfigs
from server.config.rows import ConfigRow, broker_rows
from tests.harness.served_broker import ServedBroker, serving_broker

TOPIC, BROKER = 2, 4
FROM_TOPIC, FROM_STATIC_BROKER, FROM_DEFAULT = 1, 4, 5
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7


async def describe(
    served: ServedBroker,
    resource_type: int,
    name: str,
    *keys: str,
    version: int = 4,
    **settings: Any,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys or None
    )
    request = DescribeConfigsRequest(resources=(resource,), **settings)
    (result,) = (await served.call(request, version, DescribeConfigsResponse)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete", "dedupe"])
async def test_the_cleanup_policy_reads_back_exactly_as_it_was_set(
    tmp_path: Path, version: int, policy: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy=policy)
        result = await describe(served, TOPIC, "orders", "cleanup.policy", version=version)
        (config,) = result.configs
    assert (config.name, config.value) == ("cleanup.policy", policy)
    assert config.config_source == FROM_TOPIC
    assert not config.is_sensitive


async def test_a_value_says_where_it_comes_from(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_segment_bytes="2000000") as served:
        await served.create("orders", segment_ms="5000", cleanup_policy="compact")
        result = await describe(
            served, TOPIC, "orders", include_synonyms=True, include_documentation=True
        )
    configs = by_name(result)
    own, inherited = configs["segment.ms"], configs["segment.bytes"]
    default = configs["min.cleanable.dirty.ratio"]
    assert (own.value, own.config_source, own.config_type) == ("5000", FROM_TOPIC, LONG)
    assert (inherited.value, inherited.config_source) == ("2000000", FROM_STATIC_BROKER)
    assert (default.value, default.config_source) == ("0.5", FROM_DEFAULT)
    assert [(s.name, s.value, s.source) for s in inherited.synonyms] == [
        ("log.segment.bytes", "2000000", FROM_STATIC_BROKER),
        ("log.segment.bytes", "1073741824", FROM_DEFAULT),
    ]
    assert own.synonyms[0].name == "segment.ms"
    assert all(config.documentation for config in configs.values())
    assert not any(config.read_only for config in configs.values())
    assert not any(name.startswith("internal.") for name in configs)


async def test_synonyms_and_documentation_come_only_when_asked_for(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for config in by_name(await describe(served, TOPIC, "orders")).values():
            assert config.synonyms == ()
            assert config.documentation is None


async def test_only_the_properties_named_are_described(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        result = await describe(served, TOPIC, "orders", "segment.ms", "no.such", "retention.ms")
    assert set(by_name(result)) == {"segment.ms", "retention.ms"}


async def test_the_broker_is_described_by_its_number(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, num_partitions="3") as served:
        node_id = str(served.broker.node.node_id)
        configs = by_name(await describe(served, BROKER, node_id, include_synonyms=True))
    given, default = configs["num.partitions"], configs["auto.create.topics.enable"]
    assert (given.value, given.config_source, given.config_type) == ("3", FROM_STATIC_BROKER, INT)
    assert (default.value, default.config_source) == ("true", FROM_DEFAULT)
    assert [(s.value, s.source) for s in given.synonyms] == [
        ("3", FROM_STATIC_BROKER), ("1", FROM_DEFAULT),
    ]  # fmt: skip
    assert configs["log.segment.bytes"].value == "1073741824"
    assert configs["num.partitions"].read_only
    assert not configs["log.cleaner.io.max.bytes.per.second"].read_only


async def test_what_holds_for_all_brokers_is_empty_until_it_is_set(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        assert by_name(await describe(served, BROKER, "")) == {}


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        pytest.param(TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown_topic"),
        pytest.param(TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, id="invalid_topic"),
        pytest.param(BROKER, "99", ErrorCode.INVALID_REQUEST, id="other_broker"),
        pytest.param(BROKER, "x", ErrorCode.INVALID_REQUEST, id="not_a_broker"),
        pytest.param(8, "7", ErrorCode.INVALID_REQUEST, id="other_brokers_loggers"),
        pytest.param(16, "m", ErrorCode.INVALID_REQUEST, id="client_metrics"),
        pytest.param(77, "1", ErrorCode.INVALID_REQUEST, id="unknown_type"),
    ],
)
async def test_what_cannot_be_described_gets_an_error_and_a_reason(
    tmp_path: Path, resource_type: int, name: str, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        result = await describe(served, resource_type, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == ()


async def test_a_resource_that_is_named_often_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 times the same broker in 40 KB cost ten seconds of the loop."""
    looked_up = []

    def counted(configs: BrokerConfigs) -> Iterable[ConfigRow]:
        looked_up.append(configs)
        return broker_rows(configs)

    monkeypatch.setattr("server.handlers.describe_configs.broker_rows", counted)
    asked = [
        DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=keys)
        for keys in [None, ("log.dirs",), (), ("num.partitions", "log.dirs", "log.dirs", "no.such")]
    ]
    request = DescribeConfigsRequest(resources=(*asked * 50,))
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, 4, DescribeConfigsResponse)

    assert len(looked_up) == 1
    assert len(response.results) == 200
    for index, result in enumerate(response.results):
        assert result == response.results[index % 4]
    whole, one, none, two = (
        {config.name for config in result.configs} for result in response.results[:4]
    )
    assert (one, none, two) == ({"log.dirs"}, set(), {"log.dirs", "num.partitions"})
    assert two < whole
