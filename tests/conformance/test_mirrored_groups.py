"""A consumer group continues at the mirror, from where it has committed at the source: two brokers, real
clients, and no translation of offsets."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.typed_commands import TypedCommands

TOPIC, PARTITIONS, GROUP = "orders", 2, "billing"
RECORDS, CONSUMED = 60, 25


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> list[tuple[int, int, int]]:
    """Returns partition, offset and value of so many records that a member of the group reads, and
    commits what it has read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[tuple[int, int, int]] = []
    try:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"only {len(found)} of {count} records"
            assert message.error() is None, message.error()
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert isinstance(value, bytes)
            assert partition is not None
            assert offset is not None
            found.append((partition, offset, int(value)))
            consumer.store_offsets(message)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def start_at_zero(bootstrap: str) -> None:
    """Let the group start: it resets its offsets nowhere."""
    tool = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    offsets = [TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
    tool.commit(offsets=offsets, asynchronous=False)
    tool.close()


def test_a_group_continues_at_the_mirror_from_its_committed_offset(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "source") as source,
        BrokerProcess(tmp_path / "target") as target,
    ):
        create_topic(source.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        produce(source.bootstrap_servers, 0, RECORDS)
        start_at_zero(source.bootstrap_servers)
        typed = TypedCommands(target)
        create = ("replica", "create", "dr", "--source", source.bootstrap_servers)
        typed.told(*create, "--topic", TOPIC, "--group", "bill.*")
        before = consume(source.bootstrap_servers, CONSUMED)
        until(
            "the mirror has all records",
            lambda: is_level(typed),
            lambda: str(typed.shown("replica", "status", "dr")),
        )

        assert "ordinary topic" in typed.told("replica", "promote", TOPIC)
        promoted = typed.run("replica", "status", "dr")
        assert "committed offsets of 1 group" in promoted.stdout
        assert promoted.returncode == 1, "the link has nothing to copy now"
        produce(target.bootstrap_servers, RECORDS, RECORDS)
        after = consume(target.bootstrap_servers, 2 * RECORDS - CONSUMED)

    read = [*before, *after]
    assert len(set(read)) == len(read), "no record twice"
    assert sorted(value for _, _, value in read) == list(range(2 * RECORDS)), "and none missing"


def is_level(typed: TypedCommands) -> bool:
    partitions = typed.shown("replica", "status", "dr")["partitions"]
    return len(partitions) == PARTITIONS and all(
        each["synced_end"] == RECORDS // PARTITIONS for each in partitions
    )
