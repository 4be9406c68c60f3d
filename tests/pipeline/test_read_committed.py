"""Spark's Kafka source reads transactions as `read_committed`: from a topic, from the view of its last
values and from a snapshot, whole and in steps, before and after a cleaning, to the end of logs whose
last records are markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from pipeline.offsets.kafka_source import KafkaSource
from pipeline.tables.payload_options import Payload
from tests.harness.asked_broker import make_snapshot
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}

Pairs: TypeAlias = Sequence[tuple[bytes, bytes | None]]
Table: TypeAlias = dict[bytes, bytes]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("broker"), {"log.cleaner.backoff.ms": 20}
    ) as started:
        yield started


class Transactions:
    """One producer's, one after the other, each over both partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"to-{topic}", "linger.ms": 5}
        )
        self._producer.init_transactions(30)
        self.committed: dict[bytes, bytes | None] = {}

    def commit(self, pairs: Pairs) -> None:
        self._send(pairs)
        self._producer.commit_transaction(30)
        self.committed.update(pairs)

    def abort(self, pairs: Pairs) -> None:
        self._send(pairs)
        self._producer.flush(30)
        self._producer.abort_transaction(30)

    def table(self) -> Table:
        """What the topic says of its keys."""
        return {key: value for key, value in self.committed.items() if value is not None}

    def _send(self, pairs: Pairs) -> None:
        self._producer.begin_transaction()
        for key, value in pairs:
            self._producer.produce(self._topic, key=key, value=value, partition=key[-1] % 2)


@pytest.mark.parametrize(("topic", "read"), [("orders", "orders"), ("prices", "prices.latest")])
def test_batch_and_stream_read_what_is_committed_to_the_end_and_continue(
    topic: str, read: str, session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic, partitions=2, config=CONFIG)
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=(read,))
    streamed = tmp_path / "stream"
    transactions = Transactions(broker.bootstrap_servers, topic)
    write(transactions, b"first")
    assert in_steps(session, source, streamed) == transactions.table()
    assert whole(session, source, tmp_path / "before") == transactions.table()

    write(transactions, b"second")
    wait_until_clean(f"127.0.0.1:{broker.http_port}", topic)
    assert whole(session, source, tmp_path / "after") == transactions.table()
    assert in_steps(session, source, streamed) == transactions.table()


def test_batch_and_stream_read_a_snapshot_after_what_it_has_was_cleaned_away(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "kept", partitions=2, config=CONFIG)
    transactions = Transactions(broker.bootstrap_servers, "kept")
    write(transactions, b"first")
    then = transactions.table()
    snapshot_id = make_snapshot(broker, "kept")
    write(transactions, b"second")
    wait_until_clean(f"127.0.0.1:{broker.http_port}", "kept")

    topics = (f"kept.snapshot-{snapshot_id}",)
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topics)
    assert transactions.table() != then
    assert whole(session, source, tmp_path / "whole") == then
    assert in_steps(session, source, tmp_path / "stream") == then


def write(transactions: Transactions, word: bytes) -> None:
    """Commits between aborts; last in each partition is the marker of an abort."""
    for number in range(20):
        pairs = [(b"key-%d" % key, b"%s %d" % (word, number)) for key in range(number, number + 6)]
        if number % 3 == 0:
            transactions.abort([(key, b"never committed") for key, _ in pairs])
        else:
            transactions.commit(pairs)
    transactions.commit([(b"key-1", None), (b"key-2", None)])
    transactions.abort([(b"key-%d" % key, b"never committed") for key in range(40)])


def whole(session: SparkSession, source: KafkaSource, path: Path) -> Table:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import write_whole

    table = ParquetTable(session, str(path))
    write_whole(session, source, table, Payload())
    return content(table.current)


def in_steps(session: SparkSession, source: KafkaSource, path: Path) -> Table:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import Pace, follow

    table = ParquetTable(session, str(path))
    follow(session, source, table, Payload(), Pace(offsets_per_batch=50))
    return content(table.current)


def content(folder: Path) -> Table:
    rows = pq.read_table(folder.resolve()).to_pylist()
    return {row["key"]: row["value"] for row in rows}
