"""A group holds the state of a view while its topic is written and cleaned, and its members change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self, TypeAlias

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from cli.consume.records import JOIN_MS
from metrics import cleaner_names
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.keyed_writer import KeyedWriter, Written

TOPIC, VIEW, GROUP = "accounts", "accounts.latest", "followers"
PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
PROPERTIES = {
    "log.cleaner.backoff.ms": 20,
    "group.initial.rebalance.delay.ms": 0,
    "view.list": "true",  # kafka-python looks for a topic in the list of all.
}
SESSION_MS = 10_000
POLL_INTERVAL_MS_MAX = 30_000
"""A member that has died cannot hold up a rebalance for longer."""
PASSES_BETWEEN = 3

Place: TypeAlias = tuple[int, bytes]
"""A partition and a key: the writer sends keys to any partition."""
Read: TypeAlias = tuple[int, int, bytes, bytes | None]
"""Partition, offset, key, value."""


class State:
    """What a group holds: the last record of each key that one of its members has read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[Place, tuple[int, bytes | None]] = {}

    def apply(self, records: Sequence[Read]) -> None:
        with self._lock:
            for partition, offset, key, value in records:
                # After a rebalance a member reads what the one before had not committed.
                if offset >= self._last.get((partition, key), (-1, None))[0]:
                    self._last[partition, key] = offset, value

    def values(self) -> Mapping[Place, bytes]:
        with self._lock:
            return {place: value for place, (_, value) in self._last.items() if value is not None}


def by_librdkafka(bootstrap: str) -> Iterator[Sequence[Read]]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "max.poll.interval.ms": POLL_INTERVAL_MS_MAX,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([VIEW])
        while True:
            found = [each for each in consumer.consume(200, 0.1) if each.error() is None]
            yield [(m.partition(), m.offset(), m.key(), m.value()) for m in found]
            if found:
                consumer.commit(asynchronous=False)


def by_kafka_python(bootstrap: str) -> Iterator[Sequence[Read]]:
    consumer = KafkaConsumer(
        VIEW,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
    )
    with closing(consumer):
        while True:
            polled = consumer.poll(100 if consumer.assignment() else JOIN_MS)
            found = [each for some in polled.values() for each in some]
            yield [(each.partition, each.offset, each.key, each.value) for each in found]
            if found:
                consumer.commit()


CLIENTS: Mapping[str, Callable[[str], Iterator[Sequence[Read]]]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
}


class Member:
    """One member of the group, in a thread of its own."""

    def __init__(self, client: str, bootstrap: str, state: State) -> None:
        self.read = 0
        self._has_to_leave = threading.Event()
        self._thread = ThreadPoolExecutor(1, client)
        self._run: Future[None] = self._thread.submit(
            self._follow, CLIENTS[client], bootstrap, state
        )

    def _follow(
        self, client: Callable[[str], Iterator[Sequence[Read]]], bootstrap: str, state: State
    ) -> None:
        with closing(client(bootstrap)) as reads:  # type: ignore[type-var]
            for records in reads:
                state.apply(records)
                self.read += len(records)
                if self._has_to_leave.is_set():
                    return

    def has_records(self) -> bool:
        """Returns whether it has read any. Raises the thread's error if it has ended."""
        if self._run.done():
            self._run.result()
        return self.read > 0

    def leave(self) -> None:
        """Leave the group. Raises the thread's error, if any."""
        self._has_to_leave.set()
        self._run.result(60)
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let the thread end even if the test has failed: it would look for the broker for ever, and its
        sockets would be warnings of later tests."""
        self._has_to_leave.set()
        self._thread.shutdown()


def passes(broker: BrokerProcess) -> float:
    return sum(samples(broker.metrics(), cleaner_names.PASSES.name, result="completed"))


def last_values(records: Sequence[Written]) -> Mapping[Place, bytes]:
    last: dict[Place, tuple[int, bytes | None]] = {}
    for _, partition, offset, _, key, value in records:
        assert key is not None
        if offset >= last.get((partition, key), (-1, None))[0]:
            last[partition, key] = offset, value
    return {place: value for place, (_, value) in last.items() if value is not None}


@pytest.mark.conformance
@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_holds_the_state_while_the_cleaner_works_and_members_come_and_go(
    client: str, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path, PROPERTIES) as broker, ExitStack() as members:
        bootstrap, state = broker.bootstrap_servers, State()
        create_topic(bootstrap, TOPIC, partitions=PARTITIONS, config=COMPACTED)

        def more_passes() -> None:
            before = passes(broker)
            until(
                "the cleaner works",
                lambda: passes(broker) >= before + PASSES_BETWEEN,
                broker.tail,
            )

        def joined() -> Member:
            member = members.enter_context(Member(client, bootstrap, state))
            until("a member has records", member.has_records, broker.tail)
            more_passes()
            return member

        with KeyedWriter(bootstrap, TOPIC, partitions=PARTITIONS, seed=1) as writer:
            first = joined()
            second = joined()
            first.leave()
            more_passes()
            third = joined()
            second.leave()
            writer.stop()
        expected = last_values(writer.records)
        until(
            "the group has what was written",
            lambda: state.values() == expected,
            lambda: str(state.values().items() ^ expected.items()),
        )
        third.leave()
        # The next member begins where the group was, and holds the state by what it reads from there.
        fourth = members.enter_context(Member(client, bootstrap, state))
        with KeyedWriter(bootstrap, TOPIC, partitions=PARTITIONS, seed=2) as again:
            until("a member has records", fourth.has_records, broker.tail)
            more_passes()
            again.stop()
        expected = last_values([*writer.records, *again.records])
        until(
            "the group has what was written",
            lambda: state.values() == expected,
            lambda: str(state.values().items() ^ expected.items()),
        )
        fourth.leave()
