"""Reads ranges of a topic's partitions, by kafka-python's consumer, as nobody's member."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from protocol.error_codes import ErrorCode
from server.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed
from server.consume_range import Range
from server.record_text import ReadRecord

POLL_MS = 500
RECORDS_A_POLL = 5000
FETCH_BYTES = 16 << 20
PARTITION_FETCH_BYTES = 4 << 20

logging.getLogger("kafka").addHandler(logging.NullHandler())


class Reader(Protocol):
    """What reads a topic for `kompakt consume`."""

    @property
    def planned(self) -> int | None:
        """How much there is to read up to the end; None: unknown."""

    @property
    def passed(self) -> int:
        """How much of that is behind us."""

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """The records up to the end."""

    def follow(self) -> Iterator[list[ReadRecord]]:
        """What comes then."""

    def commit(self, rest: Sequence[ReadRecord]) -> None:
        """All that came has been handled, but for `rest`, the end of it."""


class TopicReader:
    """Reads a topic's partitions from where their ranges begin. Close it, or use it in a `with`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ranges: Mapping[int, Range],
        *,
        is_committed: bool,
        patience_seconds: float,
    ) -> None:
        # Constant after construction.
        self._topic = topic
        self._ranges = ranges
        self._patience_seconds = patience_seconds
        self._consumer = opened(bootstrap, is_committed=is_committed, auto_offset_reset="earliest")
        self._consumer.assign([TopicPartition(topic, number) for number in ranges])
        # State.
        self._positions = {number: each.begin for number, each in ranges.items()}
        for number, each in ranges.items():
            self._consumer.seek(TopicPartition(topic, number), each.begin)

    @property
    def planned(self) -> int:
        """How many offsets the ranges span."""
        return sum(each.end - each.begin for each in self._ranges.values())

    @property
    def passed(self) -> int:
        """How many of them are behind us."""
        return sum(
            min(self._positions[number], each.end) - each.begin
            for number, each in self._ranges.items()
        )

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """The records of the ranges, in order within a partition; at times an empty list.

        Raises:
            CommandFailed: the broker refuses, or nothing comes though there is more.
        """
        left = {number for number, each in self._ranges.items() if each.begin < each.end}
        self._pause(self._ranges.keys() - left)
        moved, passed = time.monotonic(), self.passed
        while left:
            yield [
                record
                for record in polled(self._consumer, self._topic)
                if record.offset < self._ranges[record.partition].end
            ]
            done = {number for number in left if self._position(number) >= self._ranges[number].end}
            self._pause(done)
            left -= done
            if self.passed > passed:
                moved, passed = time.monotonic(), self.passed
            elif time.monotonic() > moved + self._patience_seconds:
                raise CommandFailed(EXIT_UNREACHABLE, self._stall(min(left)))

    def follow(self) -> Iterator[list[ReadRecord]]:
        """Everything behind the ranges, and what is still to come, until it is closed."""
        for number, each in self._ranges.items():
            part = TopicPartition(self._topic, number)
            self._consumer.seek(part, each.end)
            self._consumer.resume(part)
        while True:
            yield polled(self._consumer, self._topic)

    def commit(self, rest: Sequence[ReadRecord]) -> None:
        """Without a group nothing is committed."""

    def _stall(self, number: int) -> str:
        return (
            f"nothing came from {self._topic}-{number} at offset {self._positions[number]} for"
            f" {self._patience_seconds:g} s: is the broker still there?"
        )

    def _position(self, number: int) -> int:
        position = self._consumer.position(TopicPartition(self._topic, number))
        self._positions[number] = max(self._positions[number], position or 0)
        return self._positions[number]

    def _pause(self, numbers: Any) -> None:
        self._consumer.pause(*(TopicPartition(self._topic, number) for number in numbers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def opened(bootstrap: str, *, is_committed: bool, **settings: object) -> Any:
    """A consumer that commits nothing by itself. Raises CommandFailed."""
    try:
        return KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            exclude_internal_topics=False,
            isolation_level="read_committed" if is_committed else "read_uncommitted",
            max_poll_records=RECORDS_A_POLL,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            **{"group_id": None, **settings},
        )
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, reason(error)) from error


def polled(consumer: Any, topic: str) -> list[ReadRecord]:
    """What has come, in order within a partition; maybe nothing. Raises CommandFailed."""
    try:
        found = consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_A_POLL)
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, f"{topic}: {reason(error)}") from error
    return [record for records in found.values() for record in records]


def reason(error: BaseException) -> str:
    """Kafka's words for an error of the broker, or the client's own."""
    code = getattr(error, "errno", None)
    known = {each.value: each for each in ErrorCode}
    return known[code].message if code in known and code else str(error)
