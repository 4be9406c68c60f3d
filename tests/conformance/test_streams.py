"""Kafka Streams, exactly once, with state on a compacted changelog: no kill changes what it counts."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from metrics import client_names
from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.group_run import until
from tests.harness.streams_application import (
    CHANGELOG,
    COUNTS,
    LINES,
    StreamsApplication,
    word_count,
)
from tests.harness.typed_commands import TypedCommands

KILLS = int(os.environ.get("KOMPAKT_STREAMS_KILLS", "2"))
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(200)]
KEPT = {"retention.ms": "-1", "cleanup.policy": "delete"}
PROPERTIES = {
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class Author:
    """Writes lines of words, each acknowledged once however often the broker dies, until the end."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self.words: Counter[str] = Counter()
        self._choices = choices
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._is_over = threading.Event()
        self._errors: list[object] = []
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def end(self) -> None:
        """Write no more, and wait until all that was written is stored."""
        self._is_over.set()
        self._writer.join()
        assert self._producer.flush(60) == 0
        assert not self._errors

    def _write(self) -> None:
        while not self._is_over.wait(0.01):
            words = self._choices.choices(WORDS, k=5)
            self.words.update(words)
            partition = self._choices.randrange(PARTITIONS)
            self._producer.produce(
                LINES, " ".join(words), partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(error)


class Reader:
    """Reads the committed counts as they arrive, across kills of the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = {}
        self.total = 0
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
             "isolation.level": "read_committed"}
        )  # fmt: skip
        self._consumer.assign([TopicPartition(COUNTS, part, 0) for part in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    word = message.key().decode()
                    self.counts.setdefault(word, []).append(int.from_bytes(message.value()))
                    self.total += 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", PROPERTIES) as process:
        for topic in (LINES, COUNTS):
            create_topic(process.bootstrap_servers, topic, partitions=PARTITIONS, config=KEPT)
        yield process


@pytest.fixture
def application(tmp_path: Path, broker: BrokerProcess) -> Iterator[StreamsApplication]:
    try:
        counting = word_count(tmp_path, broker.bootstrap_servers)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with counting:
        yield counting


def counts(application: StreamsApplication) -> dict[str, int]:
    return {word: int(count) for word, count in application.rows().items()}


def changelog(broker: BrokerProcess) -> tuple[int, dict[str, int]]:
    """How many committed records the changelog holds, and the last value of each word."""
    records = list(ConfluentClient().consume(broker.bootstrap_servers, [CHANGELOG]))
    last = {key.decode(): value for _, _, _, key, value in records if key is not None}
    return len(records), {word: int.from_bytes(value) for word, value in last.items() if value}


def clean(broker: BrokerProcess) -> None:
    """A pass over the changelog leaves fewer records, and no other last value."""
    typed = TypedCommands(broker)
    shown = typed.json("configs", "describe", "--topic", CHANGELOG, "cleanup.policy")
    assert [config["value"] for config in shown["configs"]] == ["compact"]
    count, before = changelog(broker)
    typed.told("compact", "now", CHANGELOG)
    cleaned_count, after = changelog(broker)
    assert after == before
    assert cleaned_count < count


def test_words_are_counted_once_over_kills_of_the_application_and_the_broker(
    broker: BrokerProcess, application: StreamsApplication
) -> None:
    choices = random.Random(int(os.environ.get("KOMPAKT_KILL_SEED", "1")))
    author = Author(broker.bootstrap_servers, choices)
    reader = Reader(broker.bootstrap_servers)

    def until_it_goes_on(more: int = 500) -> None:
        goal = reader.total + more
        until(
            "it counts on",
            lambda: application.check() and reader.total >= goal,
            lambda: f"{reader.total} of {goal}; {application.tail()}",
        )

    until_it_goes_on(2_000)
    for number in range(KILLS):
        if number % 2 == 0:
            broker.kill()
            broker.start()
        else:
            application.kill()
            if choices.random() < 0.5 or number == 1:
                broker.kill()
                broker.start()
            clean(broker)
            application.start(forgetful=choices.random() < 0.2)
        until_it_goes_on()
    author.end()
    until(
        "all is counted",
        lambda: application.check() and reader.total >= author.words.total(),
        lambda: f"{reader.total} of {author.words.total()}; {application.tail()}",
    )
    reader.end()

    # Each word's counts are 1, 2, 3, ...: none is missing, none came twice.
    assert reader.counts == {word: [*range(1, n + 1)] for word, n in author.words.items()}
    assert counts(application) == author.words
    application.stop()
    clean(broker)
    assert changelog(broker)[1] == author.words
    # What is restored from the cleaned changelog alone is all of it.
    application.start(forgetful=True)
    assert counts(application) == author.words
    application.stop()
    # And so is what is restored from its view, by a client supplier that renames it.
    assert not view_reads(broker)
    application.start(forgetful=True, restore_suffix=".latest")
    assert counts(application) == author.words
    assert view_reads(broker)
    application.stop()


def view_reads(broker: BrokerProcess) -> float:
    return sum(samples(broker.metrics(), client_names.VIEW_READS.name))
