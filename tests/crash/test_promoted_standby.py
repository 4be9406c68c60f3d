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


def test_the_old_primary_rejoins_and_takes_over_again_with_its_own_records_put_aside(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as source:
        create_topic(source.bootstrap_servers, "orders")
        produce(source.bootstrap_servers, "orders", range(100))
        commit(source.bootstrap_servers, "billing", "orders", 60)
        with WholeStandby(tmp_path / "standby", source.bootstrap_servers, SETTINGS) as standby:
            standby.wait_until_ready()
            standby.wait_until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
            standby.kill()
            produce(source.bootstrap_servers, "orders", range(100, 130))
            create_topic(source.bootstrap_servers, "late")
            produce(source.bootstrap_servers, "late", range(5))
            source.kill()
            standby.start()
            status, report = standby.promote(force=True)
            assert status == 200, report
            produce(standby.bootstrap_servers, "orders", range(200, 250))
            commit(standby.bootstrap_servers, "billing", "orders", 140)
            old = WholeStandby(
                tmp_path / "rejoined",
                standby.bootstrap_servers,
                SETTINGS,
                rejoins=source.data_dir,
            )
            with old:
                old.wait_until(lambda it: it["mirrors"] and it["mirrors"]["lag"] == 0)
                expected = [*range(100), *range(200, 250)]
                old.wait_until(lambda it: it["mirrors"]["by_state"].get("copying") == 1)
                standby.kill()
                status, report = old.promote(force=True)
                assert status == 200, report
                assert values(old.bootstrap_servers, "orders", 150) == expected
                assert values(old.bootstrap_servers, "late", 5) == list(range(5))
                assert committed(old.bootstrap_servers, "billing", "orders") == 140
            assert list(source.data_dir.glob("orders.*/*.aside.130"))
