"""The configuration of single groups. Codes and messages are Kafka 4.3.1's."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

GROUP = 32
SET, DELETE, APPEND = range(3)
FROM_DEFAULT, FROM_STATIC, FROM_GROUP = 5, 4, 8
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DONE = (ErrorCode.NONE, None)


async def alter(
    served: ServedBroker,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = tuple(
        IncrementalConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    resource = IncrementalResource(resource_type=GROUP, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (answer,) = (await served.call(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message


async def described(served: ServedBroker, name: str) -> dict[str, tuple[str | None, int]]:
    """Returns the value and its source, by property."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    (result,) = (await served.call(request, 4, DescribeConfigsResponse)).results
    assert result.error_code == ErrorCode.NONE
    assert not any(config.read_only for config in result.configs)
    return {config.name: (config.value, config.config_source) for config in result.configs}


async def listed(served: ServedBroker) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=(GROUP,))
    response = await served.call(request, 1, ListConfigResourcesResponse)
    return [each.resource_name for each in response.config_resources]


async def told_interval(served: ServedBroker, group: str) -> int:
    """Returns the heartbeat interval that a new member of a group receives."""
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    while True:
        response = await served.call(beat, 1, ConsumerGroupHeartbeatResponse)
        if response.error_code == ErrorCode.NONE:
            return response.heartbeat_interval_ms
        assert response.error_code in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )  # fmt: skip


async def test_a_group_has_the_brokers_configuration_until_it_has_its_own(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, group_consumer_session_timeout_ms="50000") as served:
        assert await described(served, "g") == {
            SESSION: ("50000", FROM_STATIC),
            INTERVAL: ("5000", FROM_DEFAULT),
        }
        assert await listed(served) == []

        assert await alter(served, "g", (INTERVAL, SET, "6000")) == DONE
        assert await described(served, "g") == {
            SESSION: ("50000", FROM_STATIC),
            INTERVAL: ("6000", FROM_GROUP),
        }
        assert await listed(served) == ["g"]
        assert (await described(served, "other"))[INTERVAL] == ("5000", FROM_DEFAULT)

        assert await alter(served, "g", (INTERVAL, DELETE, None), ("no.such", DELETE, None)) == DONE
        assert (await described(served, "g"))[INTERVAL] == ("5000", FROM_DEFAULT)
        assert await listed(served) == []


async def test_members_are_told_the_groups_own_interval_over_restarts_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, offsets_topic_num_partitions="1") as served:
        await served.create("orders")
        assert await told_interval(served, "g") == 5000
        assert await alter(served, "g", (INTERVAL, SET, "7000"), (SESSION, SET, "55000")) == DONE
        assert await told_interval(served, "g") == 7000
        assert await told_interval(served, "other") == 5000
    async with serving_broker(tmp_path, offsets_topic_num_partitions="1") as served:
        assert await told_interval(served, "g") == 7000
        assert (await described(served, "g"))[SESSION] == ("55000", FROM_GROUP)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [(SESSION, SET, "1")],
            40,
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            [(SESSION, SET, "1000000")],
            40,
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            [(INTERVAL, SET, "1")],
            40,
            f"{INTERVAL} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            [(INTERVAL, SET, "100000")],
            40,
            f"{INTERVAL} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            [(SESSION, SET, "x")],
            40,
            f"Invalid value x for configuration {SESSION}: Not a number of type INT",
        ),
        ([("no.such", SET, "1")], 40, "Unknown group config name: no.such"),
        (
            [(SESSION, APPEND, "50000")],
            40,
            f"Can't APPEND to key {SESSION} because its type is not LIST.",
        ),
        ([(SESSION, SET, None)], 42, f"Null value not supported for : {SESSION}"),
    ],
)
async def test_what_a_group_cannot_have_is_refused_and_changes_nothing(
    tmp_path: Path, changes: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    async with serving_broker(tmp_path) as served:
        assert await alter(served, "g", *changes) == (code, message)
        assert await alter(served, "g", (SESSION, SET, "50000"), validate_only=True) == DONE
        assert await listed(served) == []


async def test_there_is_no_default_group(tmp_path: Path) -> None:
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name="", configuration_keys=None
    )
    async with serving_broker(tmp_path) as served:
        change = (SESSION, SET, "50000")
        refused = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        assert await alter(served, "", change) == refused
        request = DescribeConfigsRequest(resources=(resource,))
        (result,) = (await served.call(request, 4, DescribeConfigsResponse)).results
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST, "Group name must not be empty",
    )  # fmt: skip


async def test_alter_configs_replaces_what_a_group_has(tmp_path: Path) -> None:
    configs = (AlterableConfig(name=INTERVAL, value="6000"),)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=configs)
    async with serving_broker(tmp_path) as served:
        await alter(served, "g", (SESSION, SET, "50000"))
        request = AlterConfigsRequest(resources=(resource,), validate_only=False)
        (answer,) = (await served.call(request, 2, AlterConfigsResponse)).responses
        assert (answer.error_code, answer.error_message) == DONE
        assert served.broker.group_overrides.of("g") == {INTERVAL: "6000"}
