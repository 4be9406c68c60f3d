"""Kafka's own tools fence a broker, read from it and lift the fence, over its internal listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.kafka_tools import KafkaTools, Ran
from tests.server.test_fenced_process import Operated, wait_for

BROKER_ONE = ("--entity-type", "brokers", "--entity-name", "1")


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    operated = Operated(tmp_path)
    with operated.process:
        yield operated


def configs(tools: KafkaTools, *change: str) -> Ran:
    return tools.run("kafka-configs", *BROKER_ONE, "--alter", *change)


def test_kafkas_tools_fence_a_broker_read_from_it_and_lift_the_fence(operated: Operated) -> None:
    try:
        tools = KafkaTools(f"127.0.0.1:{operated.internal}")
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    process = operated.process
    create_topic(process.bootstrap_servers, "orders")
    ConfluentClient().produce(process.bootstrap_servers, {"orders": "none"}, [(b"k", b"value")])
    with tools:
        assert configs(tools, "--add-config", "broker.fenced.by=b").code == 0
        wait_for("the fenced broker", lambda: "fenced" in operated.ready()[1])

        shown = tools.run("kafka-configs", *BROKER_ONE, "--describe")
        assert "broker.fenced.by=b sensitive=false" in shown.output
        ends = tools.run("kafka-get-offsets", "--topic", "orders")
        assert ends.output.splitlines() == ["orders:0:1"]
        read = ("--topic", "orders", "--partition", "0", "--offset", "0", "--max-messages", "1")
        assert "value" in tools.run("kafka-console-consumer", *read).output

        assert configs(tools, "--delete-config", "broker.fenced.by").code == 0
        wait_for("the broker that serves", lambda: operated.ready()[0] == 200)
