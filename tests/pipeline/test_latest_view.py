"""Spark's Kafka source reads the view of a topic's last values, whole and in steps, while passes run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.kafka_source import KafkaSource
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import create_topic
from tests.pipeline.test_read_committed import CONFIG, TOPIC, Transactions, in_steps, whole, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("broker"), {"log.cleaner.backoff.ms": 20}
    ) as started:
        yield started


def test_batch_and_stream_read_a_view_to_its_end_and_continue(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, TOPIC, partitions=2, config=CONFIG)
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=(f"{TOPIC}.latest",))
    streamed = tmp_path / "stream"
    transactions = Transactions(broker.bootstrap_servers)
    write(transactions, b"first")
    assert in_steps(session, source, streamed) == transactions.table()
    assert whole(session, source, tmp_path / "before") == transactions.table()

    write(transactions, b"second")
    wait_until_clean(f"127.0.0.1:{broker.http_port}", TOPIC)
    assert whole(session, source, tmp_path / "after") == transactions.table()
    assert in_steps(session, source, streamed) == transactions.table()
