"""Backups of a real broker that is written to, cleaned and killed meanwhile.

A writer numbers the records of each partition. A backup must have every record that was acknowledged
before it was asked for, up to some number and without a gap: each partition ends where it was at one
moment. A compacted topic must have the last value of each key as of such a moment.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands

PARTITIONS = 3
KEYS = 20
ROUNDS = 3
SETTINGS = {"log.segment.bytes": 1 << 20, "log.cleaner.min.cleanable.ratio": 0.01}


class Writer:
    """Writes rising numbers to every partition of two topics until it ends, also across restarts."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[str, int], int] = {}
        """The last number of each partition that the broker has acknowledged."""
        self.errors: list[str] = []
        self._is_stopped = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()
        assert self.errors == []

    def wait_beyond(self, before: dict[tuple[str, int], int], count: int) -> None:
        """Wait until so many more records of each partition are acknowledged."""
        while any(
            self.acknowledged.get(each, -1) < before.get(each, -1) + count for each in _all()
        ):
            assert self._thread.is_alive()
            self._is_stopped.wait(0.01)

    def _run(self) -> None:
        for number in itertools.count():
            for topic, partition in _all():
                key = b"%d" % (number % KEYS)
                self._producer.produce(
                    topic, b"%d" % number, key, partition, on_delivery=self._delivered
                )
            self._producer.poll(0)
            if number % 50 == 0:
                self._producer.flush()
            if self._is_stopped.is_set():
                break
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        place = (str(message.topic()), int(message.partition() or 0))
        self.acknowledged[place] = int(message.value() or b"")


def _all() -> Iterator[tuple[str, int]]:
    return itertools.product(("events", "table"), range(PARTITIONS))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as broker:
        for topic, policy in (("events", "delete"), ("table", "compact")):
            create_topic(
                broker.bootstrap_servers,
                topic,
                partitions=PARTITIONS,
                config={"cleanup.policy": policy},
            )
        yield broker


def check_restored(
    tmp_path: Path, place: str, backup_id: str, acknowledged: dict[tuple[str, int], int]
) -> None:
    """Restore a backup, and compare what a consumer reads there with what was acknowledged."""
    target = tmp_path / f"restored-{backup_id}"
    environment = BrokerProcess(tmp_path / f"broker-{backup_id}", {"log.dirs": target})
    typed = TypedCommands(environment)
    typed.told("backup", "restore", "--from", place, "--to", str(target), "--backup", backup_id)
    with environment:
        assert "recovered" not in environment.log_path.read_text()
        for topic, partition in _all():
            text = typed.told("consume", topic, "--partition", str(partition), "-K", ":")
            pairs = (line.split(":") for line in text.splitlines())
            read = [(int(key), int(value)) for key, value in pairs]
            last = max(number for _, number in read)
            assert last >= acknowledged[topic, partition], (topic, partition)
            if topic == "events":
                assert [number for _, number in read] == list(range(last + 1))
            else:
                values = dict(read)
                expected = {number % KEYS: number for number in range(last - KEYS + 1, last + 1)}
                assert values == expected


def test_backups_have_all_that_was_acknowledged_before_at_one_moment(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    typed, place = TypedCommands(broker), str(tmp_path / "backups")
    made: dict[str, dict[tuple[str, int], int]] = {}
    with Writer(broker.bootstrap_servers) as writer:
        for _ in range(ROUNDS):
            writer.wait_beyond(dict(writer.acknowledged), 2000)
            typed.told("compact", "now", "table")
            before = dict(writer.acknowledged)
            made[typed.json("backup", "create", "--to", place)["id"]] = before
        # The machine keeps what the broker wrote; the snapshot that a kill has left is no backup.
        broker.kill()
        broker.start()
        before = dict(writer.acknowledged)
        made[typed.json("backup", "create", "--to", place)["id"]] = before

    verified = typed.json("backup", "verify", "--to", place, "--records")
    assert (verified["problems"], verified["backups"]) == ([], ROUNDS + 1)
    for backup_id, before in made.items():
        check_restored(tmp_path, place, backup_id, before)
    assert typed.shown("backup", "list", "--to", place)["unreadable"] == []
