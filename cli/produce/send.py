"""Sends records to a broker as fast as it accepts them, or at a given rate.

kafka-python's producer makes the batches, retries without duplicates, and chooses partitions as the
Java client does. Unacknowledged records have a bound in bytes. The first refused record ends the
sending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from cli.base.access import current
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, complain
from cli.produce.parse import BadLine, LineReader, NewRecord
from protocol.wire.error_codes import ErrorCode

SILENCE_SECONDS = 5.0
"""After this time without an answer a line says so."""
MEMORY_BYTES_MAX = 32 << 20
"""Bound on unacknowledged records: the producer itself does not bound its memory."""
BATCH_BYTES = 256 << 10
REQUEST_BYTES_MAX = 1 << 30
"""So large that only the broker limits the size of a record."""
LINGER_MS = 5

logging.getLogger("kafka").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where and how to send records."""

    bootstrap: str
    topic: str
    partition: int | None
    """None: choose it by key."""
    is_compacted: bool
    compression: str | None
    rate: float | None
    """Records per second. None: no limit."""
    stall_seconds_max: float
    """Give up after this time without an acknowledgement while records are pending."""


class Sent:
    """Counts records that are sent, acknowledged and refused. Safe for threads.

    The producer's thread reports acknowledgements, the sending thread waits for them.
    """

    __slots__ = (
        "_changed",
        "_complained_at",
        "_pending_bytes",
        "_pending_count",
        "_progressed_at",
        "_stall_seconds_max",
        "by_partition",
        "bytes_count",
        "failure",
        "sent_count",
    )

    def __init__(self, *, stall_seconds_max: float) -> None:
        # Constant after construction.
        self._stall_seconds_max = stall_seconds_max
        self._changed = threading.Condition()
        # State.
        self.sent_count = 0
        self.bytes_count = 0
        self.by_partition: Counter[int] = Counter()
        """Acknowledged records of each partition."""
        self.failure: CommandFailed | None = None
        """The error of the first refused record."""
        self._pending_count = 0
        self._pending_bytes = 0
        self._progressed_at = 0.0
        """Monotonic time of the last answer, or of the first pending record."""
        self._complained_at = 0.0
        # The value of `_progressed_at` when a line said that there was no answer.

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        with self._changed:
            return self.by_partition.total()

    def begin(self, size: int) -> None:
        """Wait for memory for one more record, and count it as pending.

        Raises:
            CommandFailed: the broker does not answer.
        """
        with self._changed:
            self._wait(lambda: self._pending_bytes < MEMORY_BYTES_MAX)
            if not self._pending_count:
                self._progressed_at = time.monotonic()
            self._pending_count += 1
            self._pending_bytes += size
            self.sent_count += 1
            self.bytes_count += size

    def acknowledge(self, partition: int, size: int) -> None:
        """Count a pending record as stored in `partition`."""
        with self._changed:
            self.by_partition[partition] += 1
            self._settle(size)

    def refuse(self, reason: str, size: int) -> None:
        """Record that a pending record was refused. The first reason becomes the failure."""
        with self._changed:
            self.failure = self.failure or CommandFailed(EXIT_FAILED, reason)
            self._settle(size)

    def wait_for_all(self) -> None:
        """Wait until no record is pending. Raises CommandFailed if the broker does not answer."""
        with self._changed:
            self._wait(lambda: not self._pending_count)

    def _settle(self, size: int) -> None:
        self._pending_count -= 1
        self._pending_bytes -= size
        self._progressed_at = time.monotonic()
        self._changed.notify_all()

    def _wait(self, is_met: Callable[[], bool]) -> None:
        # The producer's own timeout does not apply while it cannot reach a broker.
        while not is_met():
            silent = time.monotonic() - self._progressed_at
            left = self._stall_seconds_max - silent
            if left <= 0:
                raise CommandFailed(
                    EXIT_UNREACHABLE,
                    f"the broker acknowledged nothing for {self._stall_seconds_max:g} s: is it"
                    " still running?",
                )
            if silent < SILENCE_SECONDS:
                self._changed.wait(min(left, SILENCE_SECONDS - silent))
                continue
            if self._complained_at != self._progressed_at:
                self._complained_at = self._progressed_at
                complain(
                    f"no broker has acknowledged a record for {silent:.0f} s: waiting for"
                    f" {left:.0f} s more"
                )
            self._changed.wait(left)


def produce(lines: Iterable[bytes], read: LineReader, destination: Destination) -> Iterator[Sent]:
    """Send one record per line. Yields the counts after each line and again at the end.

    Raises:
        CommandFailed: a line is not a valid record, or the broker refused one. Those before it are sent.
    """
    sent = Sent(stall_seconds_max=destination.stall_seconds_max)
    producer = _producer(destination)
    try:
        for number, line in enumerate(_paced(lines, destination.rate), 1):
            record = _record(number, line, read, destination)
            _send(producer, record, number, sent, destination)
            yield sent
            if sent.failure is not None:
                break
    except CommandFailed as error:
        sent.failure = sent.failure or error
    finally:
        _finish(producer, sent)
    if sent.failure is not None:
        raise CommandFailed(
            sent.failure.exit_code, f"{sent.failure} (stored: {sent.count})"
        ) from sent.failure
    yield sent


def _finish(producer: Any, sent: Sent) -> None:
    """Wait for the pending records and close the producer, without waiting if the broker is silent."""
    try:
        sent.wait_for_all()
    except CommandFailed as silence:
        sent.failure = silence
        with suppress(KafkaError):
            producer.close(timeout=0)
    else:
        producer.close()


def _producer(destination: Destination) -> Any:
    try:
        return KafkaProducer(
            bootstrap_servers=destination.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            compression_type=destination.compression,
            linger_ms=LINGER_MS,
            batch_size=BATCH_BYTES,
            max_request_size=REQUEST_BYTES_MAX,
            max_block_ms=destination.stall_seconds_max * 1000,
            allow_auto_create_topics=False,
            **current().kafka_python_settings(),
        )
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, _reason(error)) from error


def _record(number: int, line: bytes, read: LineReader, destination: Destination) -> NewRecord:
    """Returns the record of a line. Raises BadLine, also if a compacted topic would refuse it."""
    try:
        record = read(line.rstrip(b"\n").removesuffix(b"\r"))
    except BadLine as error:
        raise BadLine(f"line {number}: {error}") from error
    if record.key is None and destination.is_compacted:
        raise BadLine(
            f"line {number}: {destination.topic} is compacted, so every record needs a key:"
            " --key-separator, --key or --json"
        )
    return record


def _send(
    producer: Any, record: NewRecord, number: int, sent: Sent, destination: Destination
) -> None:
    size = len(record.key or b"") + len(record.value or b"")
    sent.begin(size)
    try:
        future = producer.send(
            destination.topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=destination.partition,
            timestamp_ms=record.timestamp_ms,
        )
    except (KafkaError, AssertionError) as error:
        sent.refuse(f"line {number}: {_reason(error)}", size)
        return
    future.add_callback(lambda stored: sent.acknowledge(stored.partition, size))
    future.add_errback(lambda error: sent.refuse(f"line {number}: {_reason(error)}", size))


def _paced(lines: Iterable[bytes], rate: float | None) -> Iterator[bytes]:
    """Yield the lines, at most `rate` per second."""
    start = time.monotonic()
    for number, line in enumerate(lines):
        if rate is not None:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield line


def _reason(error: BaseException) -> str:
    """Returns our message for a known Kafka error, else the client library's text."""
    try:
        code = ErrorCode(getattr(error, "errno", ErrorCode.NONE))
    except ValueError:
        code = ErrorCode.NONE
    return str(error) if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR) else code.message
