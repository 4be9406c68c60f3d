"""Quotas with real clients and Kafka's tools: clients pause, the others do not, and the tools agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.kafka_tools import KafkaTools
from tests.harness.typed_commands import TypedCommands

RATE = 50_000
SENT_BYTES = 800_000
"""At this rate, eleven windows allow 500,000 bytes at once; the rest takes some seconds."""


@pytest.fixture
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas")) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "t")
        yield typed


def throttled(kompakt: TypedCommands, quota: str) -> float:
    found = samples(kompakt.broker.metrics(), "kompakt_throttles_total", quota=quota)
    return sum(found)


def test_a_confluent_producer_is_throttled_and_another_is_not(kompakt: TypedCommands) -> None:
    kompakt.told("quotas", "set", "--of-client-id", "slow", f"producer_byte_rate={RATE}")
    events: list[Any] = []
    settings = {"bootstrap.servers": kompakt.broker.bootstrap_servers, "linger.ms": 0}
    slow = Producer({**settings, "client.id": "slow", "throttle_cb": events.append})
    quick = Producer({**settings, "client.id": "quick"})
    began_s = time.monotonic()
    for _ in range(SENT_BYTES // 20_000):
        slow.produce("t", b"x" * 20_000)
        slow.flush()
    slow_s = time.monotonic() - began_s
    slow.poll(1)
    for _ in range(SENT_BYTES // 20_000):
        quick.produce("t", b"x" * 20_000)
        quick.flush()
    quick_s = time.monotonic() - began_s - slow_s

    assert throttled(kompakt, "producer_byte_rate") > 0
    assert any(event.throttle_time > 0 for event in events)
    # 300,000 bytes beyond the burst.
    assert slow_s > 3
    assert quick_s < slow_s


def test_kafka_python_names_the_pauses_in_its_metrics(kompakt: TypedCommands) -> None:
    kompakt.told(
        "quotas", "set", "--default", "user", f"producer_byte_rate={RATE}",
        f"consumer_byte_rate={RATE}",
    )  # fmt: skip
    bootstrap = kompakt.broker.bootstrap_servers
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for _ in range(SENT_BYTES // 20_000):
            producer.send("t", b"x" * 20_000).get(timeout=60)
        assert longest_pause_ms(producer.metrics()) > 0
    assert throttled(kompakt, "producer_byte_rate") > 0

    settings = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "group_id": None}
    with closing(KafkaConsumer("t", consumer_timeout_ms=30_000, **settings)) as consumer:
        received = 0
        for record in consumer:
            received += len(record.value)
            if received >= SENT_BYTES:
                break
        assert received == SENT_BYTES
        assert longest_pause_ms(consumer.metrics()) > 0
    assert throttled(kompakt, "consumer_byte_rate") > 0


def longest_pause_ms(metrics: Mapping[str, Mapping[str, float]]) -> float:
    groups = metrics.values()
    return max(group["throttle-time-max"] for group in groups if "throttle-time-max" in group)


def test_the_command_lists_what_it_sets(kompakt: TypedCommands) -> None:
    told = kompakt.told(
        "quotas", "set", "--of-user", "alice", "--default", "client-id",
        "producer_byte_rate=1024", "request_percentage=12.5",
    )  # fmt: skip
    assert told == (
        "user alice, default client-id: producer_byte_rate=1024, request_percentage=12.5\n"
    )
    kompakt.told("quotas", "set", "--of-ip", "10.0.0.7", "connection_creation_rate=5")
    assert kompakt.told("quotas", "list").splitlines()[1:] == [
        "ip 10.0.0.7                    connection_creation_rate      5",
        "user alice, default client-id  producer_byte_rate         1024",
        "user alice, default client-id  request_percentage         12.5",
    ]
    assert kompakt.json("quotas", "list", "--of-ip", "10.0.0.7")["quotas"] == [
        {"entity": {"ip": "10.0.0.7"}, "quotas": {"connection_creation_rate": 5.0}}
    ]
    kompakt.told("quotas", "remove", "--of-ip", "10.0.0.7", "connection_creation_rate")
    kompakt.broker.restart()
    assert len(kompakt.json("quotas", "list")["quotas"]) == 1


def test_kafka_s_tool_sets_and_describes_quotas(kompakt: TypedCommands) -> None:
    try:
        running = KafkaTools(kompakt.broker.bootstrap_servers)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running as tools:
        added = tools.run(
            "kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "alice",
            "--entity-type", "clients", "--entity-default",
            "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048",
        )  # fmt: skip
        assert added.code == 0, added
        described = tools.run(
            "kafka-configs", "--describe", "--entity-type", "users", "--entity-name", "alice",
            "--entity-type", "clients", "--entity-default",
        ).output  # fmt: skip
        assert described == (
            "Quota configs for user-principal 'alice', the default client-id are"
            " consumer_byte_rate=2048.0, producer_byte_rate=1024.0\n"
        )
        tools.run(
            "kafka-configs", "--alter", "--entity-type", "ips", "--entity-default",
            "--add-config", "connection_creation_rate=100",
        )  # fmt: skip
        assert kompakt.json("quotas", "list", "--default", "ip")["quotas"] == [
            {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 100.0}}
        ]
        tools.run(
            "kafka-configs", "--alter", "--entity-type", "ips", "--entity-default",
            "--delete-config", "connection_creation_rate",
        )  # fmt: skip
        assert kompakt.json("quotas", "list", "--default", "ip")["quotas"] == []
        refused = tools.run(
            "kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "alice",
            "--add-config", "producer_byte_rate=-5",
        )  # fmt: skip
        assert "Quota producer_byte_rate must be greater than 0" in refused.errors + refused.output


def test_a_client_of_an_old_version_pauses_after_creations_beyond_the_quota(
    kompakt: TypedCommands,
) -> None:
    """librdkafka creates topics with version 4, which does not know THROTTLING_QUOTA_EXCEEDED."""
    kompakt.told("quotas", "set", "--default", "user", "controller_mutation_rate=5")
    admin = AdminClient({"bootstrap.servers": kompakt.broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic("a", 60)]).values():
        made.result()
    began_s = time.monotonic()
    for made in admin.create_topics([NewTopic("b", 1)]).values():
        made.result()
    assert time.monotonic() - began_s > 0.5
    assert throttled(kompakt, "controller_mutation_rate") > 0
