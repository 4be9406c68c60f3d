"""SIGKILL a broker that has made checkpoints: groups and transactions are right after the restart."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic

PARTITIONS = 1000
ROUNDS = 12
SETTINGS = {
    "replog.replay.ms": 1,
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def places(offset: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number, offset) for number in range(PARTITIONS)]


def consumer(port: int, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group})


def producer(port: int) -> Producer:
    found = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": "t"})
    found.init_transactions(30)
    return found


def committed(port: int, group: str) -> set[int]:
    """Returns the offsets of a group, over all partitions."""
    reader = consumer(port, group)
    try:
        return {each.offset for each in reader.committed(places(0), timeout=30)}
    finally:
        reader.close()


def test_groups_and_transactions_are_right_after_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, "orders", partitions=PARTITIONS)
        reader = consumer(broker.port, "plain")
        for number in range(1, ROUNDS):
            reader.commit(offsets=places(number), asynchronous=False)
        reader.close()
        transactions = producer(broker.port)
        group = consumer(broker.port, "in transactions")
        commit_in_transaction(transactions, group, 1)
        transactions.begin_transaction()
        transactions.send_offsets_to_transaction(places(2), group.consumer_group_metadata(), 30)
        checkpoint = wait_for_checkpoint(broker.data_dir)
        transactions.abort_transaction(30)
        commit_in_transaction(transactions, group, 3)
        group.close()
        broker.kill()
        for _ in range(2):
            broker.start()
            assert committed(broker.port, "plain") == {ROUNDS - 1}
            assert committed(broker.port, "in transactions") == {3}
            assert checkpoint.exists(), "the load has refused it"
            assert "kompakt_coordinator_checkpoint_end_offset{" in broker.metrics()
            # The transactional id continues: its state was loaded too.
            transactions = producer(broker.port)
            transactions.begin_transaction()
            transactions.abort_transaction(30)
            broker.kill()


def commit_in_transaction(transactions: Producer, group: Consumer, offset: int) -> None:
    transactions.begin_transaction()
    transactions.send_offsets_to_transaction(places(offset), group.consumer_group_metadata(), 30)
    transactions.commit_transaction(30)


def wait_for_checkpoint(data: Path) -> Path:
    """Returns the checkpoint of `__consumer_offsets` once the broker has made it."""
    while not (found := list(data.glob("__consumer_offsets.*/0.checkpoint"))):
        time.sleep(0.1)
    return found[0]
