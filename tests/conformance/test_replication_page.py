"""docs/replication.md, typed from its first command to its last, with Apache Kafka as the source.

What Kafka has is compared with the mirror record for record: five codecs, transactions that were
committed, aborted and left open, tombstones, and gaps that Kafka's own cleaner has made.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.base.processes import free_port
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.clients import high_watermarks
from tests.harness.group_run import until
from tests.harness.kafka_source import running_kafka
from tests.harness.typed_commands import TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "replication.md"
TOPIC, KEYS = "users", 40
RETENTION_MS = 10_000
"""Of tombstones, where a mirror has to lag for longer."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[int, bytes | None, bytes | None, tuple[int, int], Any]


@dataclass(frozen=True)
class Peers:
    """Apache Kafka, and the broker that mirrors it."""

    kafka: str
    broker: BrokerProcess
    typed: TypedCommands

    def kompakt(self, line: str) -> str:
        """Type a line of the page."""
        program, *arguments = shlex.split(line.removeprefix("$ "))
        assert program == "kompakt"
        own = [self.kafka if each == "127.0.0.1:9092" else each for each in arguments]
        return self.typed.told(*own)

    def status(self) -> dict[str, Any]:
        """Returns the link as JSON."""
        found: dict[str, Any] = self.typed.shown("replica", "status", "dr")
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_kafka(tmp_path_factory.mktemp("kafka") / "kafka", free_port()) as bootstrap:
        yield bootstrap


@pytest.fixture
def peers(kafka: str, tmp_path: Path) -> Iterator[Peers]:
    with BrokerProcess(tmp_path) as broker:
        yield Peers(kafka, broker, TypedCommands(broker))


def produce(bootstrap: str, codec: str, first: int, *, deletes: bool = False) -> None:
    """Write each key a few times; in the first run some keys that are never written again."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(first, first + 5 * KEYS):
        value = None if deletes and number % 7 == 0 else b"%s %d" % (codec.encode(), number)
        is_cold = first == 0 and number % 10 == 0
        key = b"cold %d" % number if is_cold else b"k%d" % (number % KEYS)
        headers = [("n", b"%d" % number)]
        producer.produce(TOPIC, value, key, headers=headers)
    assert producer.flush(60) == 0


def transact(bootstrap: str, name: str, *, commits: bool | None) -> Producer:
    """Write in a transaction, and commit, abort, or leave it open (None)."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(TOPIC, name.encode(), b"t%d" % number)
    assert producer.flush(60) == 0
    if commits:
        producer.commit_transaction(60)
    elif commits is False:
        producer.abort_transaction(60)
    return producer


def read(bootstrap: str, isolation: str) -> list[Row]:
    """Returns what a consumer of the partition reads, up to the end that it may read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "nothing more to read, before the end"
            if message.error() is not None:
                return rows
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            rows.append((offset, key, value, message.timestamp(), message.headers()))
    finally:
        consumer.close()


def test_the_page_mirrors_apache_kafka_and_promotes(peers: Peers) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "300"}
    admin = AdminClient({"bootstrap.servers": peers.kafka})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
    for number, codec in enumerate(CODECS):
        produce(peers.kafka, codec, 5 * KEYS * number, deletes=number == 2)
    wait_for_gaps(peers.kafka)
    transact(peers.kafka, "committed", commits=True)
    transact(peers.kafka, "aborted", commits=False)
    still_open = transact(peers.kafka, "open", commits=None)

    mirroring, _, _, verifying = page_blocks(PAGE, "console")
    create, status, consume, promote, delete = mirroring.splitlines()
    peers.kompakt(create)
    until(
        "the mirror is as long as its source", lambda: is_level(peers), lambda: str(peers.status())
    )
    assert "copying" in peers.kompakt(status)
    for isolation in ("read_uncommitted", "read_committed"):
        theirs = read(peers.kafka, isolation)
        ours = read(peers.broker.bootstrap_servers, isolation)
        compare(theirs, ours)
    assert "committed" in peers.kompakt(consume)

    produce(peers.kafka, "none", 10_000)
    told = peers.kompakt(verifying.strip())
    assert "users-0" in told
    assert "equal" in told
    until("what came later is copied", lambda: is_level(peers), lambda: str(peers.status()))
    found = peers.typed.shown("replica", "verify", "dr")
    (part,) = found["topics"][0]["partitions"]
    assert (found["verdict"], part["compares"]) == ("equal", "last values")
    assert part["source"]["digest"] == part["mirror"]["digest"]
    assert part["source"]["count"] == part["mirror"]["count"] > KEYS
    assert found["topics"][0]["cost_bytes"] > 0
    refused = peers.typed.refused("topics", "delete", TOPIC, "--yes")
    assert "only its link" in refused or "mirror" in refused
    assert "an ordinary topic now" in peers.kompakt(promote)
    assert "deleted link dr" in peers.kompakt(delete)
    # The open transaction was aborted here; the source has it still.
    last = read(peers.broker.bootstrap_servers, "read_committed")
    assert not [row for row in last if row[2] == b"open"]
    still_open.abort_transaction(60)
    produce(peers.broker.bootstrap_servers, "zstd", 20_000)


def test_the_page_takes_a_group_along_and_limits_the_link(peers: Peers) -> None:
    admin = AdminClient({"bootstrap.servers": peers.kafka})
    with suppress(KafkaException):
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    produce(peers.kafka, "none", 0)
    commit(peers.kafka, "app", 3, "by hand")
    commit(peers.kafka, "other", 3, "")

    create, status, alter = page_blocks(PAGE, "console")[2].splitlines()
    peers.kompakt(create)
    until(
        "the group's offset is here",
        lambda: committed(peers.broker.bootstrap_servers, "app") == (3, "by hand"),
        lambda: str(peers.status()),
    )
    shown = peers.kompakt(status)
    assert "at most 10,000,000 bytes a second" in shown
    assert "committed offsets of 1 group, last synced" in shown
    peers.kompakt(alter)
    assert peers.status()["bytes_per_second"] is None
    assert committed(peers.broker.bootstrap_servers, "other")[0] < 0


def test_the_page_copies_a_partition_once_more_that_may_lack_tombstones(peers: Peers) -> None:
    admin = AdminClient({"bootstrap.servers": peers.kafka})
    with suppress(KafkaException):
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    retention = ConfigEntry(
        "delete.retention.ms", str(RETENTION_MS), incremental_operation=AlterConfigOpType.SET
    )
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[retention, policy]
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    produce(peers.kafka, "none", 0)
    create = page_blocks(PAGE, "console")[0].splitlines()[0]
    status, resync, alter = page_blocks(PAGE, "console")[1].splitlines()
    peers.kompakt(create)
    until("it is copied", lambda: is_level(peers), lambda: str(peers.status()))
    peers.kompakt("kompakt replica pause dr")
    produce(peers.kafka, "none", 0, deletes=True)
    time.sleep(1.1 * RETENTION_MS / 1000)  # The source has to forget, and only time makes it.
    peers.kompakt("kompakt replica resume dr")

    until(
        "it has failed",
        lambda: peers.status()["partitions"][0]["state"] == "failed",
        lambda: str(peers.status()),
    )
    told = peers.typed.run(*shlex.split(status.removeprefix("$ kompakt "))).stdout
    assert "kompakt replica resync" in told
    assert "copying users-0 once more" in peers.kompakt(resync)
    until("it is copied again", lambda: is_level(peers), lambda: str(peers.status()))
    compare(
        read(peers.kafka, "read_committed"),
        read(peers.broker.bootstrap_servers, "read_committed"),
    )
    assert "removing it frees that space" in peers.kompakt(status)
    peers.kompakt(alter)
    assert peers.status()["resync"] == "auto"


def commit(bootstrap: str, group: str, offset: int, metadata: str) -> None:
    """Commit as a tool does. Kafka's first commit creates its topic, whose leader is elected later."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})

    def is_committed() -> bool:
        try:
            offsets = [TopicPartition(TOPIC, 0, offset, metadata)]
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        return True

    until("the tool has committed", is_committed, str)
    consumer.close()


def committed(bootstrap: str, group: str) -> tuple[int, str]:
    """Returns what a group has committed, with its metadata."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], 60)
    finally:
        consumer.close()
    return found.offset, found.metadata or ""


def wait_for_gaps(bootstrap: str) -> None:
    """Write until Kafka's cleaner has removed something between two records."""
    firsts = iter(range(1_000, 1_000_000, 5 * KEYS))

    def has_gap() -> bool:
        produce(bootstrap, "none", next(firsts))
        offsets = [row[0] for row in read(bootstrap, "read_uncommitted")]
        return len(offsets) < offsets[-1] - offsets[0] + 1

    until("Kafka's cleaner has removed something", has_gap, str)


def is_level(peers: Peers) -> bool:
    found = peers.status()["partitions"]
    ends = high_watermarks(peers.kafka, TOPIC, 1)
    return bool(found) and all(
        each["state"] == "copying"
        and each["synced_end"] == each["end"] == each["source_end"] == ends[0]
        for each in found
    )


def compare(theirs: list[Row], ours: list[Row]) -> None:
    """The mirror has every record of the source, unchanged, and those that the source has since
    removed."""
    here = {row[0]: row for row in ours}
    assert [here.get(row[0]) for row in theirs] == theirs
    newest_there = {row[1]: row for row in theirs}
    newest_here = {row[1]: row for row in ours}
    assert newest_here == newest_there
