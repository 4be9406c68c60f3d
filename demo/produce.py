"""Produces the changelog with confluent-kafka and its defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from cleaner.rules.text import count_text

Advance = Callable[[int], None]
DELIVERY_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Delivered:
    """The broker's answers for the records of one producer; filled by its callbacks."""

    acknowledged: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """Number of refused records by error code."""
    reason: str = ""
    """The broker's message for the first refused record."""

    def on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
            return
        self.refused[error.code()] += 1
        self.reason = self.reason or str(error)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    advance: Advance,
) -> Delivered:
    """Send all records with a new producer and wait for every answer."""
    producer = Producer({"bootstrap.servers": bootstrap})
    delivered = Delivered()
    for key, value in records:
        while not taken(producer, topic, key, value, delivered):
            producer.poll(0.1)
        producer.poll(0)
        advance(1)
    left = producer.flush(DELIVERY_SECONDS_MAX)
    if left:
        raise TimeoutError(
            f"{count_text(left, 'record')} not answered in {DELIVERY_SECONDS_MAX:.0f} s"
        )
    return delivered


def taken(
    producer: Producer, topic: str, key: bytes | None, value: bytes | None, delivered: Delivered
) -> bool:
    """Returns whether the producer's queue had room for the record."""
    try:
        producer.produce(topic, key=key, value=value, on_delivery=delivered.on_delivery)
    except BufferError:
        return False
    return True
