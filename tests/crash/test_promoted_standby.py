"""A standby of a whole broker takes over: what the source has acknowledged is there, and clients
continue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.crash.test_standby_kills import INTERNAL
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.on_disk_reader import read_log
from tests.harness.standby_process import WholeStandby

SETTINGS: dict[str, object] = INTERNAL | {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
}


def produce(servers: str, topic: str, numbers: range, *, seconds: float = 60) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, key=f"k{number % 10}", value=str(number))
    assert producer.flush(seconds) == 0


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


@contextmanager
def followed(tmp_path: Path) -> Iterator[tuple[BrokerProcess, WholeStandby]]:
    """Run a broker with 100 records and a committed offset, and a standby that has them."""
    with BrokerProcess(tmp_path / "broker", SETTINGS) as source:
        create_topic(source.bootstrap_servers, "orders")
        produce(source.bootstrap_servers, "orders", range(100))
        commit(source.bootstrap_servers, "billing", "orders", 60)
        with WholeStandby(tmp_path / "standby", source.bootstrap_servers, SETTINGS) as standby:
            standby.wait_until_level(copying=1)
            yield source, standby


class Writer:
    """Produces to one topic from a thread, and counts what was acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 5_000,
                "linger.ms": 1,
            }
        )
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = list[int]()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        number = 0
        while not self._is_ending.is_set():
            with suppress(BufferError):
                self._producer.produce(
                    self._topic, str(number), f"k{number % 10}", on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0.001)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            self.acknowledged.append(int(value))


def test_a_source_that_runs_is_fenced_and_nothing_that_it_has_acknowledged_is_missing(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as source:
        create_topic(source.bootstrap_servers, "orders")
        commit(source.bootstrap_servers, "billing", "orders", 0)
        still_open = begun_transaction(source.bootstrap_servers, "payments", "orders")
        with WholeStandby(tmp_path / "standby", source.bootstrap_servers, SETTINGS) as standby:
            standby.wait_until_level(copying=1)
            with Writer(source.bootstrap_servers, "orders") as writer:
                until(
                    "records were acknowledged",
                    lambda: len(writer.acknowledged) > 100,
                    lambda: str(len(writer.acknowledged)),
                )
                status, report = standby.promote()
                assert status == 200, report
            assert (report["missing"], report["lowered"]) == ([], [])
            assert report["aborted"] == ["payments"]
            assert len(writer.acknowledged) > 100
            servers = standby.bootstrap_servers
            found = committed_values(servers, "orders")
            assert set(writer.acknowledged) <= set(found)
            assert len(found) == len(set(found))
            # Its transactional producer continues, fenced as after a timeout; others are new.
            with pytest.raises(KafkaException):
                still_open.commit_transaction(10)
            begun_transaction(servers, "payments", "orders").commit_transaction(30)
            assert committed(servers, "billing", "orders") == 0
            # Also after another start the source writes nothing.
            source.restart()
            with pytest.raises(AssertionError):
                produce(source.bootstrap_servers, "orders", range(1), seconds=5)


def begun_transaction(servers: str, transactional_id: str, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "-1", "t")
    producer.flush(60)
    return producer


def committed_values(servers: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = list[int]()
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        value = message.value()
        assert value is not None
        if int(value) >= 0:
            found.append(int(value))


def test_after_the_source_was_killed_a_forced_promotion_serves_what_was_copied(
    tmp_path: Path,
) -> None:
    with followed(tmp_path) as (source, standby):
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
    with followed(tmp_path) as (source, standby):
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
        with WholeStandby(
            tmp_path / "rejoined", standby.bootstrap_servers, SETTINGS, rejoins=source.data_dir
        ) as old:
            old.wait_until_level(copying=1)
            standby.kill()
            status, report = old.promote(force=True)
            assert status == 200, report
            expected = [*range(100), *range(200, 250)]
            assert values(old.bootstrap_servers, "orders", 150) == expected
            assert committed(old.bootstrap_servers, "billing", "orders") == 140
        assert list(source.data_dir.glob("orders.*/*.aside.130"))
        # Only the old primary had it: a directory that no broker reads, with its records.
        (late,) = source.data_dir.glob("late.*.before")
        assert [int(value or b"") for _, _, _, value, _ in read_log(late / "0").records()] == [
            *range(5)
        ]
