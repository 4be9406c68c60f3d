"""Sends records as fast as a broker takes them, or as slowly as it was told to.

kafka-python's producer does the work: batches, retries without duplicates, the Java client's choice of
a partition. What waits in memory is bounded; a record that is refused ends the sending.
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

from protocol.error_codes import ErrorCode
from server.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed
from server.produce_input import BadLine, LineReader, NewRecord

MEMORY_BYTES_MAX = 32 << 20
"""Of records that are not acknowledged: the producer's own memory has no bound."""
BATCH_BYTES = 256 << 10
REQUEST_BYTES_MAX = 1 << 30
"""How large a record may be is for the broker to say."""
LINGER_MS = 5

logging.getLogger("kafka").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where records go, and how."""

    bootstrap: str
    topic: str
    partition: int | None
    """None: the key chooses it."""
    is_compacted: bool
    compression: str | None
    rate: float | None
    """Records a second; None: no limit."""
    patience_seconds: float
    """How long the broker may be silent while records wait for it."""


class Sent:
    """What became of the records so far. Acknowledged by the producer's thread, read by anybody."""

    __slots__ = (
        "_changed",
        "_heard",
        "_patience_seconds",
        "_pending_bytes",
        "_pending_count",
        "by_partition",
        "bytes_count",
        "failure",
        "sent_count",
    )

    def __init__(self, *, patience_seconds: float) -> None:
        # Constant after construction.
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        # State.
        self.sent_count = 0
        self.bytes_count = 0
        self.by_partition: Counter[int] = Counter()
        """Records that are acknowledged."""
        self.failure: CommandFailed | None = None
        """Of the first record that is refused."""
        self._pending_count = 0
        self._pending_bytes = 0
        self._heard = 0.0
        """When something was last heard of a record that was waited for."""

    @property
    def count(self) -> int:
        """Records that are acknowledged."""
        with self._changed:
            return self.by_partition.total()

    def begun(self, size: int) -> None:
        """Wait until there is room for one more, and count it. Raises CommandFailed: no answer."""
        with self._changed:
            self._wait(lambda: self._pending_bytes < MEMORY_BYTES_MAX)
            if not self._pending_count:
                self._heard = time.monotonic()
            self._pending_count += 1
            self._pending_bytes += size
            self.sent_count += 1
            self.bytes_count += size

    def acknowledged(self, partition: int, size: int) -> None:
        """One more is stored."""
        with self._changed:
            self.by_partition[partition] += 1
            self._ended(size)

    def refused(self, reason: str, size: int) -> None:
        """One is not."""
        with self._changed:
            self.failure = self.failure or CommandFailed(EXIT_FAILED, reason)
            self._ended(size)

    def wait_for_all(self) -> None:
        """Until nothing is on its way. Raises CommandFailed: no answer."""
        with self._changed:
            self._wait(lambda: not self._pending_count)

    def _ended(self, size: int) -> None:
        self._pending_count -= 1
        self._pending_bytes -= size
        self._heard = time.monotonic()
        self._changed.notify_all()

    def _wait(self, is_met: Callable[[], bool]) -> None:
        """The producer's own deadline does not hold while no broker is there."""
        while not is_met():
            left = self._heard + self._patience_seconds - time.monotonic()
            if left <= 0:
                raise CommandFailed(
                    EXIT_UNREACHABLE,
                    f"nothing was acknowledged for {self._patience_seconds:g} s: is the broker"
                    " still there?",
                )
            self._changed.wait(left)


def produce(lines: Iterable[bytes], read: LineReader, destination: Destination) -> Iterator[Sent]:
    """Send a record a line; what was sent so far after each, and once more when all is over.

    Raises:
        CommandFailed: a line is no record, or the broker refused one. Those before it are sent.
    """
    sent = Sent(patience_seconds=destination.patience_seconds)
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
    """Wait for what is on its way, and close; a broker that is silent is not waited for again."""
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
            max_block_ms=destination.patience_seconds * 1000,
            allow_auto_create_topics=False,
        )
    except KafkaError as error:
        raise CommandFailed(EXIT_FAILED, _reason(error)) from error


def _record(number: int, line: bytes, read: LineReader, destination: Destination) -> NewRecord:
    """The record of a line; what the broker would refuse anyway is told in time."""
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
    sent.begun(size)
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
        sent.refused(f"line {number}: {_reason(error)}", size)
        return
    future.add_callback(lambda stored: sent.acknowledged(stored.partition, size))
    future.add_errback(lambda error: sent.refused(f"line {number}: {_reason(error)}", size))


def _paced(lines: Iterable[bytes], rate: float | None) -> Iterator[bytes]:
    """The lines, not faster than `rate` a second."""
    start = time.monotonic()
    for number, line in enumerate(lines):
        if rate is not None:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield line


def _reason(error: BaseException) -> str:
    """What the broker said, in our words where it is one of Kafka's errors."""
    try:
        code = ErrorCode(getattr(error, "errno", ErrorCode.NONE))
    except ValueError:
        code = ErrorCode.NONE
    return str(error) if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR) else code.message
