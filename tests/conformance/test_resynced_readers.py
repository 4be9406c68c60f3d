"""Readers of a mirror stay on it while it is copied once more and the copies take its place: offsets
only grow, no error is seen, and no aborted record."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic, high_watermarks
from tests.harness.failed_mirrors import SOURCE, fail_mirrors, mirrored, states
from tests.harness.group_run import until
from tests.harness.typed_commands import TypedCommands

TOPIC, KEYS, RESYNCS = "users", 50, 3
CONFIG = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0"}
Row = tuple[int, bytes | None, bytes | None]


class Writer:
    """Writes transactions, of which every second one is aborted."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
        self._producer.init_transactions(60)
        self._number = 0

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            self._number += 1
            commits = self._number % 2 == 0
            self._producer.begin_transaction()
            for number in range(5):
                key = b"k%d" % ((5 * self._number + number) % KEYS)
                value = b"%s %d" % (b"committed" if commits else b"aborted", self._number)
                self._producer.produce(TOPIC, None if self._number % 10 == 0 else value, key)
            self._producer.flush(60)
            if commits:
                self._producer.commit_transaction(60)
            else:
                self._producer.abort_transaction(60)


def read(bootstrap: str, isolation: str) -> list[Row]:
    """Returns what a reader finds from the start to the end. Fails if offsets do not grow."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.max.bytes": 2_000,
            "message.max.bytes": 1_000,
            "fetch.message.max.bytes": 1_000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "nothing more to read, before the end"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return rows
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert not rows or offset > rows[-1][0], (offset, rows[-1])
            assert key is None or isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            rows.append((offset, key, value))
    finally:
        consumer.close()


def read_until(stopped: threading.Event, bootstrap: str, isolation: str) -> int:
    """Read from the start again and again. Returns how often."""
    rounds = 0
    while not stopped.is_set():
        rows = read(bootstrap, isolation)
        rounds += 1
        assert rows, "the mirror is never empty"
        if isolation == "read_committed":
            assert not [row for row in rows if row[2] and row[2].startswith(b"aborted")]
    return rounds


@pytest.mark.parametrize("compaction", ["off", "on"])
def test_readers_of_both_isolation_levels_go_on_over_resyncs(
    tmp_path: Path, compaction: str
) -> None:
    with (
        BrokerProcess(tmp_path / "source", SOURCE | {"log.cleaner.backoff.ms": "100"}) as source,
        BrokerProcess(tmp_path / "target", {"log.cleaner.backoff.ms": "100"}) as target,
        ThreadPoolExecutor(2) as threads,
    ):
        create_topic(source.bootstrap_servers, TOPIC, partitions=1, config=CONFIG)
        writer, typed = Writer(source.bootstrap_servers), TypedCommands(target)
        writer.write(40)
        create = ["replica", "create", "dr", "--source", source.bootstrap_servers]
        typed.told(*create, "--topic", TOPIC, "--compaction", compaction)
        wait_until_level(source, typed)
        stopped = threading.Event()
        readers = [
            threads.submit(read_until, stopped, target.bootstrap_servers, isolation)
            for isolation in ("read_uncommitted", "read_committed")
        ]
        try:
            for _ in range(RESYNCS):
                writer.write(20)
                wait_until_level(source, typed)
                resync(source, target, writer)
                wait_until_level(source, typed)
        finally:
            stopped.set()
        assert all(each.result() > RESYNCS for each in readers)
        completed = f'kompakt_mirror_resyncs_completed_total{{link="dr"}} {RESYNCS}.0'
        assert completed in target.metrics()
        theirs = read(source.bootstrap_servers, "read_committed")
        ours = read(target.bootstrap_servers, "read_committed")
        assert {key: value for _, key, value in ours} == {key: value for _, key, value in theirs}


def resync(source: BrokerProcess, target: BrokerProcess, writer: Writer) -> None:
    typed = TypedCommands(target)
    fail_mirrors(source, target, TOPIC, 1, meanwhile=lambda: writer.write(2))
    typed.told("replica", "resync", "dr")
    until("it is copied again", lambda: states(typed) == ["copying"], lambda: str(mirrored(typed)))


def wait_until_level(source: BrokerProcess, typed: TypedCommands) -> None:
    until(
        "the mirror is as long as its source",
        lambda: (
            [each["synced_end"] for each in mirrored(typed)]
            == [high_watermarks(source.bootstrap_servers, TOPIC, 1)[0]]
        ),
        lambda: str(mirrored(typed)),
    )
