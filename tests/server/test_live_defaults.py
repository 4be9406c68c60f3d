"""Changes of dynamic broker properties apply to its topics and connections at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import ProducerId
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    only_produced,
    produce_request,
    serving_broker,
)

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER = 2, 4
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)
CLUSTER, NODE = "", "1"


async def alter(
    served: ServedBroker,
    *changes: tuple[int, str, str | None],
    resource: tuple[int, str] = (BROKER, CLUSTER),
) -> tuple[int, str | None]:
    """Returns the error code and message."""
    configs = tuple(
        AlterableConfig(config_operation=operation, name=name, value=value)
        for operation, name, value in changes
    )
    resource_type, name = resource
    asked = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False)
    (answer,) = (await served.call(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message


async def described(
    served: ServedBroker, resource: tuple[int, str], name: str
) -> tuple[str | None, int, Sequence[tuple[str, str | None, int]]]:
    """Returns the value, its source and its synonyms."""
    asked = DescribeConfigsResource(
        resource_type=resource[0], resource_name=resource[1], configuration_keys=(name,)
    )
    request = DescribeConfigsRequest(resources=(asked,), include_synonyms=True)
    (result,) = (await served.call(request, 4, DescribeConfigsResponse)).results
    (entry,) = result.configs
    synonyms = [(each.name, each.value, each.source) for each in entry.synonyms]
    return entry.value, entry.config_source, synonyms


async def code_of_produce(served: ServedBroker, name: str, value: bytes) -> int:
    request = produce_request(name, batch_of(1, value=value))
    return only_produced(await served.call(request, 9, ProduceResponse)).error_code


async def test_topics_follow_a_changed_default_at_once_but_not_where_they_override_it(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("follows")
        await served.create("overrides", max_message_bytes="5000")
        assert await code_of_produce(served, "follows", b"v" * 2000) == ErrorCode.NONE

        assert await alter(served, (SET, "message.max.bytes", "1000")) == (ErrorCode.NONE, None)

        too_large = ErrorCode.MESSAGE_TOO_LARGE
        assert await code_of_produce(served, "follows", b"v" * 2000) == too_large
        assert await code_of_produce(served, "overrides", b"v" * 2000) == ErrorCode.NONE
        await served.create("later")
        assert await code_of_produce(served, "later", b"v" * 2000) == too_large

    async with serving_broker(tmp_path) as served:
        assert await code_of_produce(served, "follows", b"v" * 2000) == too_large
        assert await alter(served, (DELETE, "message.max.bytes", None)) == (ErrorCode.NONE, None)
        assert await code_of_produce(served, "follows", b"v" * 2000) == ErrorCode.NONE


async def test_retention_and_compaction_follow_a_changed_default(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        log = served.log("orders")
        assert not log.config.is_compacted
        generation = log.generation

        await alter(
            served, (APPEND, "log.cleanup.policy", "compact"), (SET, "log.retention.ms", "77")
        )

        assert log.config.is_compacted
        assert log.config.is_deleted
        assert log.config.retention_ms == 77
        assert log.generation > generation, "passes planned before must not commit"


async def test_a_default_is_described_with_where_it_comes_from(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_retention_hours="1") as served:
        await served.create("orders")
        name, topic = "log.retention.ms", (TOPIC, "orders")
        hours = ("log.retention.hours", "1", STATIC)
        built_in = (name, "604800000", DEFAULT)
        assert await described(served, topic, "retention.ms") == (
            "3600000", STATIC, [hours, built_in],
        )  # fmt: skip

        await alter(served, (SET, name, "20"))
        await alter(served, (SET, name, "10"), resource=(BROKER, NODE))
        await alter(served, (SET, "retention.ms", "5"), resource=topic)

        own, cluster = (name, "10", DYNAMIC_BROKER), (name, "20", DYNAMIC_DEFAULT)
        value, source, synonyms = await described(served, topic, "retention.ms")
        assert (value, source) == ("5", TOPIC_CONFIG)
        assert synonyms == [("retention.ms", "5", TOPIC_CONFIG), own, cluster, hours, built_in]
        assert (await described(served, (BROKER, NODE), name))[:2] == ("10", DYNAMIC_BROKER)
        assert (await described(served, (BROKER, CLUSTER), name))[:2] == ("20", DYNAMIC_DEFAULT)
        await alter(served, (DELETE, "retention.ms", None), resource=topic)
        assert (await described(served, topic, "retention.ms"))[:2] == ("10", DYNAMIC_BROKER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("log.retention.ms", "soon"), "Not a number of type LONG"),
        (("log.retention.hours", "3"), "dynamically"),
        (("log.cleaner.max.compaction.lag.ms", "5"), "topic orders: conflict"),
    ],
)
async def test_an_invalid_default_is_refused_and_changes_nothing(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", min_compaction_lag_ms="9")
        before = served.log("orders").config
        code, text = await alter(served, (SET, *change))
        assert (code, message in (text or "")) == (ErrorCode.INVALID_REQUEST, True)
        assert served.log("orders").config == before


async def test_idle_producers_are_forgotten_sooner_from_the_change_on(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_roll_check_interval_ms="20") as served:
        await served.create("orders")
        await served.produce(
            "orders", batch_of(1, producer_id=7, producer_epoch=0, base_sequence=0)
        )
        await served.produce("orders")
        await asyncio.sleep(0.1)
        assert served.log("orders").producers.get(ProducerId(7)) is not None

        await alter(served, (SET, "producer.id.expiration.ms", "1"))

        async with asyncio.timeout(20):
            while served.log("orders").producers.get(ProducerId(7)) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_the_limit_of_connections_can_be_raised_and_lowered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, max_connections="2") as served:
        first, _ = await served.connect(), await served.connect()
        assert await (await served.connect()).is_closed()

        await alter_over(first, "max.connections", "3")
        third = await served.connect()
        await alter_over(third, "max.connections.per.ip", "1")

        assert await (await served.connect()).is_closed()
        await alter_over(first, "max.connections", "9")


async def alter_over(client: RawClient, name: str, value: str) -> None:
    """Uses an existing connection, because the broker accepts no other."""
    asked = AlterConfigsResource(
        resource_type=BROKER,
        resource_name=NODE,
        configs=(AlterableConfig(config_operation=SET, name=name, value=value),),
    )
    request = IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False)
    (answer,) = (await client.call(request, 1, IncrementalAlterConfigsResponse)).responses
    assert answer.error_code == ErrorCode.NONE, answer
