"""Writes the records of one task in one transaction, once, however often Spark repeats the task.

Runs on Spark's executors, and needs nothing of Spark. The commit of a transaction also commits an offset
of the group `kompakt-load.<topic>.<task>`, with this metadata:

    {"run": "<the run's id>", "new": 3, "changed": 0, "deleted": 1}
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from server.client.access import access_of

PENDING_BYTES_MAX = 16 << 20
"""Bound on unacknowledged records: kafka-python's producer does not bound its memory."""
BATCH_BYTES = 256 << 10
LINGER_MS = 20
REQUEST_BYTES_MAX = 1 << 30
"""So large that only the broker limits the size of a record."""
TIMEOUT_MS = 900_000
"""A broker's default of the longest that a transaction may have."""
ANSWER_SECONDS_MAX = 300.0
"""How long the broker may take for a call that has no timeout in kafka-python."""
CLOSE_SECONDS_MAX = 30

logging.getLogger("kafka").addHandler(logging.NullHandler())


class LoadFailed(Exception):
    """A task's records could not be written. The message is one sentence."""


class NoAnswer(LoadFailed):
    """The broker does not answer. Whether it has committed the transaction is not known."""


class LoadRecord(NamedTuple):
    """A record to write, and why."""

    key: bytes
    value: bytes | None
    partition: int | None
    """None: by the key's hash, as the Java client."""
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The topic, and the run that loads it. Executors get it by pickle."""

    bootstrap_servers: str
    topic: str
    run: str
    """An id of its own for each run."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties of the connection, with Kafka's names."""

    def task_id(self, number: int) -> str:
        """Returns a task's transactional id, which is also the name of its group."""
        return f"{task_prefix(self.topic)}{number}"


def task_prefix(topic: str) -> str:
    """Returns the beginning of the transactional ids of a topic's loads; a number follows."""
    return f"kompakt-load.{topic}."


def write_once(target: Target, number: int, records: Iterable[LoadRecord]) -> Counter[str]:
    """Write a task's records in one transaction, unless this run has committed it already.

    Returns the number of its records of each kind.

    Raises:
        LoadFailed: the broker refuses, does not answer, or a later run has fenced this one.
    """
    try:
        with open_producer(target, number) as producer:
            # Ends what an earlier attempt has begun: after this, its outcome is known.
            producer.init_transactions()
            done = committed(target, number)
            return done if done is not None else written(producer, target, number, records)
    except ProducerFencedError as error:
        raise LoadFailed(f"another load of {target.topic} has begun, and ended this one") from error
    except KafkaError as error:
        raise LoadFailed(f"{target.topic} at {target.bootstrap_servers}: {error}") from error


def written(
    producer: Any, target: Target, number: int, records: Iterable[LoadRecord]
) -> Counter[str]:
    producer.begin_transaction()
    with aborted_on_error(producer, target):
        counts = send(producer, target.topic, records)
        metadata = json.dumps({"run": target.run, **counts})
        positions = {
            TopicPartition(target.topic, 0): OffsetAndMetadata(counts.total(), metadata, -1)
        }
        group = target.task_id(number)
        answered(target, lambda: producer.send_offsets_to_transaction(positions, group))
    # An error here says nothing about the outcome: the next attempt asks.
    answered(target, producer.commit_transaction)
    return counts


@contextmanager
def aborted_on_error(producer: Any, target: Target) -> Iterator[None]:
    try:
        yield
    except (ProducerFencedError, NoAnswer):
        raise
    except BaseException:
        # The first error says more; the next attempt aborts what this one cannot.
        with suppress(KafkaError, NoAnswer):
            answered(target, producer.abort_transaction)
        raise


def answered(target: Target, call: Callable[[], None]) -> None:
    """Wait for a call of the producer's, which would wait for ever. Raises its errors, and NoAnswer."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=run, name="transaction", daemon=True).start()
    try:
        outcome.result(ANSWER_SECONDS_MAX)
    except TimeoutError as error:
        raise NoAnswer(
            f"{target.topic} at {target.bootstrap_servers}: the broker has not answered for"
            f" {ANSWER_SECONDS_MAX:.0f} s; load again: that finds out what is committed"
        ) from error


def send(producer: Any, topic: str, records: Iterable[LoadRecord]) -> Counter[str]:
    """Send all records, and wait until each is acknowledged. Raises the first one's error."""
    counts: Counter[str] = Counter()
    pending: list[Any] = []
    pending_bytes = 0
    for record in records:
        pending.append(
            producer.send(topic, key=record.key, value=record.value, partition=record.partition)
        )
        pending_bytes += len(record.key) + len(record.value or b"")
        counts[record.kind] += 1
        if pending_bytes >= PENDING_BYTES_MAX:
            settle(producer, pending)
            pending_bytes = 0
    settle(producer, pending)
    return counts


def settle(producer: Any, pending: list[Any]) -> None:
    """Wait for the pending records, and forget them."""
    producer.flush()
    for future in pending:
        future.get(timeout=0)
    pending.clear()


def committed(target: Target, number: int) -> Counter[str] | None:
    """Returns what this run has committed of a task; None if it has not."""
    settings = connection(target)
    with closing(KafkaConsumer(group_id=target.task_id(number), **settings)) as consumer:
        found = consumer.committed(TopicPartition(target.topic, 0), metadata=True)
    if found is None or not found.metadata:
        return None
    said = json.loads(found.metadata)
    return Counter(said) if said.pop("run") == target.run else None


@contextmanager
def open_producer(target: Target, number: int) -> Iterator[Any]:
    producer = producer_of(target, number)
    try:
        yield producer
    except BaseException:
        # No transaction will have what is not sent yet.
        with suppress(KafkaError):
            producer.close(timeout=0)
        raise
    producer.close(timeout=CLOSE_SECONDS_MAX)


def producer_of(target: Target, number: int) -> Any:
    return KafkaProducer(
        transactional_id=target.task_id(number),
        transaction_timeout_ms=TIMEOUT_MS,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        max_request_size=REQUEST_BYTES_MAX,
        allow_auto_create_topics=False,
        **connection(target),
    )


def connection(target: Target) -> dict[str, Any]:
    """Returns kafka-python's settings for the connection. Raises Misconfigured."""
    return {
        "bootstrap_servers": target.bootstrap_servers.split(","),
        **access_of(target.properties).kafka_python_settings(),
    }
