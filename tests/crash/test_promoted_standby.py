"""A standby of a whole broker takes over: what the source has acknowledged is there; clients go on."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.crash.test_standby_kills import INTERNAL
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.standby_process import WholeStandby

SETTINGS = INTERNAL | {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
}


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, key=f"k{number % 10}", value=str(number))
    assert producer.flush(60) == 0


def values(servers: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [int(each.value()) for each in consumer.consume(count, timeout=60)]
    consumer.close()
    return found


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def test_after_the_source_was_killed_a_forced_promotion_serves_what_was_copied(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as source:
        create_topic(source.bootstrap_servers, "orders")
        produce(source.bootstrap_servers, "orders", range(100))
        commit(source.bootstrap_servers, "billing", "orders", 60)
        with WholeStandby(tmp_path / "standby", source.bootstrap_servers, SETTINGS) as standby:
            standby.wait_until_ready()
            standby.wait_until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
            source.kill()
            status, answer = standby.promote()
            assert status == 409, answer
            status, report = standby.promote(force=True)
            assert status == 200, report
            assert values(standby.bootstrap_servers, "orders", 100) == list(range(100))
            assert committed(standby.bootstrap_servers, "billing", "orders") == 60
            produce(standby.bootstrap_servers, "orders", range(100, 120))
            assert values(standby.bootstrap_servers, "orders", 120) == list(range(120))
        source.start()
