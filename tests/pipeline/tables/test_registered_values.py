"""A table follows a topic whose writers change their schema; a registry knows all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from pipeline.tables.writer_schemas import registered
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.fake_registry import FakeRegistry
from tests.pipeline.tables.test_payload import AGED, AVRO, ORDER, WITH_AGE, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as started:
        create_topic(started.bootstrap_servers, TOPIC, config={"cleanup.policy": "compact"})
        yield started


def send(broker: BrokerProcess, **values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in values.items():
        producer.produce(TOPIC, key=key, value=value, partition=0)
    assert producer.flush(30) == 0


def notes(table: Table) -> dict[bytes, str]:
    return {bytes(row["key"]): row["note"] for row in table.read().collect()}


def test_a_stream_reads_each_value_by_its_own_schema_and_stops_at_one_that_it_cannot_have(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    from pipeline.offsets.kafka_source import KafkaSource
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.job import Pace, follow

    registry = FakeRegistry()
    first = registry.add(AVRO)
    table = DeltaTable(session, str(tmp_path / "table"))
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=(TOPIC,))
    with registry.served():
        payload = Payload(
            value_format=PayloadFormat.AVRO,
            value_schema=AVRO,
            registry=registry_access([registry.url], None),
        )
        send(broker, a=named(first, ORDER), b=named(first, ORDER))
        follow(session, source, table, payload, Pace())
        assert notes(table) == {b"a": "hi", b"b": "hi"}

        second = registry.add(AGED)
        send(broker, a=named(second, WITH_AGE), b=None)
        follow(session, source, table, payload, Pace())
        assert notes(table) == {b"a": "yo"}

        held = table.held()
        send(broker, c=named(second, WITH_AGE), d=named(99, ORDER))
        with pytest.raises(TableRefused) as refused:
            follow(session, source, table, payload, Pace())
        assert "orders-0, offset 5: the value has the schema with id 99: " in str(refused.value)
        # Nothing of the micro-batch was written.
        assert (table.held(), notes(table)) == (held, {b"a": "yo"})

        # The next job is another process, and the schema is there now.
        registered.cache_clear()
        registry.answers["/schemas/ids/99"] = registry.answers[f"/schemas/ids/{first}"]
        follow(session, source, table, payload, Pace())
        assert notes(table) == {b"a": "yo", b"c": "yo", b"d": "hi"}
