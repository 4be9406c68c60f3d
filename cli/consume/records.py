"""Reads ranges of a topic's partitions with kafka-python, without a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from cli.base.access import current
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed
from cli.base.record_text import ReadRecord
from cli.consume.range import Range
from protocol.wire.error_codes import ErrorCode

POLL_MS = 500
JOIN_MS = 5_000
"""How long a poll of a member without partitions may take. kafka-python 3.0.12 may join before it knows
the topic, gets no partitions and joins again. If a poll ends within the second join, no later poll
completes it (`ConsumerCoordinator.need_rejoin`)."""
POLL_RECORDS_MAX = 5000
FETCH_BYTES = 16 << 20
PARTITION_FETCH_BYTES = 4 << 20

logging.getLogger("kafka").addHandler(logging.NullHandler())


class Reader(Protocol):
    """Reads a topic for `kompakt consume`."""

    @property
    def planned(self) -> int | None:
        """The amount to read up to the end, for the progress bar. None: unknown."""

    @property
    def passed(self) -> int:
        """The amount read so far."""

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """Yield the records up to the end."""

    def follow(self) -> Iterator[list[ReadRecord]]:
        """Yield the records after the end as they arrive."""

    def commit(self, unread: Sequence[ReadRecord]) -> None:
        """Commit all records read except `unread`, the last ones."""


class TopicReader:
    """Reads a topic's partitions from the start of their ranges. Use it in a `with` statement."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ranges: Mapping[int, Range],
        *,
        is_committed: bool,
        stall_seconds_max: float,
    ) -> None:
        # Constant after construction.
        self._topic = topic
        self._ranges = ranges
        self._stall_seconds_max = stall_seconds_max
        self._consumer = open_consumer(
            bootstrap, is_committed=is_committed, auto_offset_reset="earliest"
        )
        self._consumer.assign([TopicPartition(topic, number) for number in ranges])
        # State.
        self._positions = {number: each.begin for number, each in ranges.items()}
        for number, each in ranges.items():
            self._consumer.seek(TopicPartition(topic, number), each.begin)

    @property
    def planned(self) -> int:
        """The number of offsets in the ranges."""
        return sum(each.end - each.begin for each in self._ranges.values())

    @property
    def passed(self) -> int:
        """The number of these offsets already read."""
        return sum(
            min(self._positions[number], each.end) - each.begin
            for number, each in self._ranges.items()
        )

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """Yield the records of the ranges, in order within a partition. A list may be empty.

        Raises:
            CommandFailed: the broker refuses, or there is no progress before the end.
        """
        left = {number for number, each in self._ranges.items() if each.begin < each.end}
        self._pause(self._ranges.keys() - left)
        progressed_at, passed = time.monotonic(), self.passed
        while left:
            yield [
                record
                for record in poll_records(self._consumer, self._topic)
                if record.offset < self._ranges[record.partition].end
            ]
            done = {number for number in left if self._position(number) >= self._ranges[number].end}
            self._pause(done)
            left -= done
            if self.passed > passed:
                progressed_at, passed = time.monotonic(), self.passed
            elif time.monotonic() > progressed_at + self._stall_seconds_max:
                raise CommandFailed(EXIT_UNREACHABLE, self._stall_error(min(left)))

    def follow(self) -> Iterator[list[ReadRecord]]:
        """Yield the records after the ranges, existing and new, until the reader is closed."""
        for number, each in self._ranges.items():
            part = TopicPartition(self._topic, number)
            self._consumer.seek(part, each.end)
            self._consumer.resume(part)
        while True:
            yield poll_records(self._consumer, self._topic)

    def commit(self, unread: Sequence[ReadRecord]) -> None:
        """Do nothing: there is no group to commit offsets for."""

    def _stall_error(self, number: int) -> str:
        return (
            f"no records arrived from {self._topic}-{number} at offset {self._positions[number]} for"
            f" {self._stall_seconds_max:g} s: is the broker still running?"
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


def open_consumer(bootstrap: str, *, is_committed: bool, **settings: object) -> Any:
    """Create a consumer without automatic commits. Raises CommandFailed."""
    try:
        return KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            exclude_internal_topics=False,
            isolation_level="read_committed" if is_committed else "read_uncommitted",
            max_poll_records=POLL_RECORDS_MAX,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            **{"group_id": None, **current().kafka_python_settings(), **settings},
        )
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, reason(error)) from error


def poll_records(consumer: Any, topic: str) -> list[ReadRecord]:
    """Poll once and return the records, in order within a partition. Raises CommandFailed."""
    timeout_ms = POLL_MS if consumer.assignment() else JOIN_MS
    try:
        found = consumer.poll(timeout_ms=timeout_ms, max_records=POLL_RECORDS_MAX)
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, f"{topic}: {reason(error)}") from error
    return [record for records in found.values() for record in records]


def reason(error: BaseException) -> str:
    """Returns Kafka's message for an error code, or the client library's text."""
    code = getattr(error, "errno", None)
    known = {each.value: each for each in ErrorCode}
    return known[code].message if code in known and code else str(error)
