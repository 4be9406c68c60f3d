"""IncrementalAlterConfigs: a topic's configuration changes while it is used, and for good."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from protocol.messages.alter_configs import AlterConfigsResourceResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as PyConfigResource
    from kafka.admin import ConfigResourceType as PyConfigResourceType

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8

Change = tuple[int, str, str | None]


def resource(name: str, *changes: Change, resource_type: int = TOPIC) -> AlterConfigsResource:
    configs = tuple(
        AlterableConfig(config_operation=operation, name=key, value=value)
        for operation, key, value in changes
    )
    return AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)


async def alter(
    served: ServedBroker,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int = 1,
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    answers = (await served.call(request, version, IncrementalAlterConfigsResponse)).responses
    assert [(a.resource_type, a.resource_name) for a in answers] == [
        (asked.resource_type, asked.resource_name) for asked in resources
    ]
    return list(answers)


def overrides(served: ServedBroker, name: str) -> dict[str, str]:
    topic = served.broker.topics.get(name)
    assert topic is not None
    return dict(topic.overrides)


@pytest.mark.parametrize("version", range(2))
async def test_a_change_reaches_the_logs_and_what_is_not_named_stays(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2, segment_ms="5000", retention_ms="7000")
        (answer,) = await alter(
            served,
            resource(
                "orders",
                (SET, "retention.bytes", "1000"),
                (DELETE, "segment.ms", None),
                (APPEND, "cleanup.policy", "compact"),
            ),
            version=version,
        )
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert overrides(served, "orders") == {
            "retention.ms": "7000",
            "retention.bytes": "1000",
            "cleanup.policy": "delete,compact",
        }
        for partition in range(2):
            config = served.log("orders", partition).config
            assert (config.retention_bytes, config.retention_ms) == (1000, 7000)
            assert config.segment_ms == 7 * 24 * 3600 * 1000
            assert config.is_compacted


async def test_a_change_of_policy_ends_passes_planned_before_and_others_do_not(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        generation = served.log("orders").generation
        await alter(served, resource("orders", (SET, "retention.ms", "1")))
        assert served.log("orders").generation == generation
        await alter(served, resource("orders", (SET, "cleanup.policy", "compact")))
        assert served.log("orders").generation == generation + 1


async def test_a_change_outlives_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        await alter(served, resource("orders", (SET, "cleanup.policy", "compact")))
    async with serving_broker(tmp_path) as served:
        assert overrides(served, "orders") == {"cleanup.policy": "compact"}
        log = served.log("orders")
        assert log.config.is_compacted
        assert log.log_end_offset == 3


async def test_validate_only_says_what_is_wrong_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", segment_ms="5000")
        good, bad = await alter(
            served,
            resource("orders", (DELETE, "segment.ms", None)),
            resource("nowhere", (SET, "segment.ms", "1")),
            validate_only=True,
        )
        assert good.error_code == ErrorCode.NONE
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert overrides(served, "orders") == {"segment.ms": "5000"}
        assert served.log("orders").config.segment_ms == 5000


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        pytest.param(
            [(SET, "segment.mss", "1")], ErrorCode.INVALID_CONFIG, "segment.mss", id="name"
        ),
        pytest.param(
            [(SET, "segment.ms", "x")],
            ErrorCode.INVALID_CONFIG,
            "x for configuration segment.ms",
            id="type",
        ),
        pytest.param(
            [(SET, "retention.ms", "-2")], ErrorCode.INVALID_CONFIG, "retention.ms", id="range"
        ),
        pytest.param(
            [(SET, "cleanup.policy", "burn")], ErrorCode.INVALID_CONFIG, "burn", id="choice"
        ),
        pytest.param(
            [(SET, "min.compaction.lag.ms", "9"), (SET, "max.compaction.lag.ms", "8")],
            ErrorCode.INVALID_CONFIG,
            "max.compaction.lag.ms",
            id="combination",
        ),
        pytest.param(
            [(APPEND, "segment.ms", "1")], ErrorCode.INVALID_CONFIG, "segment.ms", id="no_list"
        ),
        pytest.param(
            [(APPEND, "cleanup.policy", "burn")], ErrorCode.INVALID_CONFIG, "burn", id="element"
        ),
        pytest.param(
            [(SET, "segment.ms", None)], ErrorCode.INVALID_REQUEST, "segment.ms", id="null"
        ),
        pytest.param([(9, "segment.ms", "1")], ErrorCode.INVALID_REQUEST, "9", id="operation"),
        pytest.param(
            [(SET, "segment.ms", "1"), (DELETE, "segment.ms", None)],
            ErrorCode.INVALID_REQUEST,
            "segment.ms",
            id="twice",
        ),
    ],
)
async def test_one_bad_change_refuses_all_of_its_topic_with_a_reason(
    tmp_path: Path, changes: list[Change], code: ErrorCode, named: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.create("users")
        bad, good = await alter(
            served,
            resource("orders", (SET, "retention.bytes", "5"), *changes),
            resource("users", (SET, "retention.bytes", "5")),
        )
        assert bad.error_code == code
        assert named in (bad.error_message or "")
        assert overrides(served, "orders") == {}
        assert good.error_code == ErrorCode.NONE
        assert overrides(served, "users") == {"retention.bytes": "5"}


@pytest.mark.parametrize(
    ("name", "resource_type", "code"),
    [
        pytest.param("", TOPIC, ErrorCode.INVALID_REQUEST, id="all_topics"),
        pytest.param("a b", TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION, id="invalid_topic"),
        pytest.param("nowhere", TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown_topic"),
        pytest.param("1", BROKER, ErrorCode.INVALID_REQUEST, id="broker"),
        pytest.param("", BROKER, ErrorCode.INVALID_REQUEST, id="all_brokers"),
        pytest.param("7", BROKER, ErrorCode.INVALID_REQUEST, id="other_broker"),
        pytest.param("7", BROKER_LOGGER, ErrorCode.INVALID_REQUEST, id="broker_logger"),
        pytest.param("1", 77, ErrorCode.INVALID_REQUEST, id="unknown_type"),
    ],
)
async def test_what_cannot_be_configured_is_refused_with_a_reason(
    tmp_path: Path, name: str, resource_type: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        change = (SET, "num.partitions", "2")
        (answer,) = await alter(served, resource(name, change, resource_type=resource_type))
    assert answer.error_code == code
    assert answer.error_message


async def test_a_resource_named_twice_is_not_changed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        answers = await alter(
            served,
            resource("orders", (SET, "segment.ms", "1")),
            resource("orders", (SET, "segment.bytes", "1")),
        )
        assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
        assert overrides(served, "orders") == {}


@pytest.mark.parametrize("name", ["1", ""], ids=["own", "all_brokers"])
async def test_broker_properties_without_effect_are_accepted_with_a_warning(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 4.3.1 answers NONE for these; its tools throttle reassignments with some of them."""
    without_effect = [
        "leader.replication.throttled.rate", "background.threads", "no.such", "a\nb", "x" * 30_000,
    ]  # fmt: skip
    backoff = "log.cleaner.backoff.ms"
    async with serving_broker(tmp_path) as served:
        changes: list[Change] = [(SET, each, "9") for each in [*without_effect, backoff]]
        (answer,) = await alter(served, resource(name, *changes, resource_type=BROKER))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        configs = served.broker.configs
        assert {**configs.cluster, **configs.own} == {backoff: "9"}

        changes = [(DELETE, each, None) for each in [*without_effect, backoff]]
        (answer,) = await alter(served, resource(name, *changes, resource_type=BROKER))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert {**configs.cluster, **configs.own} == {}
    (told,) = [each.message for each in caplog.records if "does not use" in each.message]
    assert "leader.replication.throttled.rate, background.threads, no.such, 'a\\nb', xxx" in told
    assert len(told) < 400


# Real clients.


def bootstrap(served: ServedBroker) -> str:
    host, port = served.broker.addresses["PLAINTEXT"]
    return f"{host}:{port}"


async def test_librdkafka_changes_a_topic_and_reads_back_value_and_source(tmp_path: Path) -> None:
    def run(servers: str) -> list[tuple[str, str, bool]]:
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = ConfigResource(
            ResourceType.TOPIC,
            "orders",
            incremental_configs=[
                ConfigEntry(
                    "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
                ),
                ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET),
                ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ],
        )
        for future in admin.incremental_alter_configs([wanted]).values():
            future.result(10)
        (described,) = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, "orders")]
        ).values()
        entries = described.result(10)
        names = ("cleanup.policy", "retention.ms", "segment.ms")
        return [(n, entries[n].value, entries[n].source == 1) for n in names]

    async with serving_broker(tmp_path) as served:
        await served.create("orders", segment_ms="5000")
        assert await asyncio.to_thread(run, bootstrap(served)) == [
            ("cleanup.policy", "delete,compact", True),
            ("retention.ms", "1234", True),
            ("segment.ms", "604800000", False),
        ]


async def test_kafka_python_changes_a_topic(tmp_path: Path) -> None:
    def run(servers: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        try:
            admin.alter_configs(
                [PyConfigResource(PyConfigResourceType.TOPIC, "orders", {"retention.ms": "77"})]
            )
        finally:
            admin.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await asyncio.to_thread(run, bootstrap(served))
        assert served.log("orders").config.retention_ms == 77
