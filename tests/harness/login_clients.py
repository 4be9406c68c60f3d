"""Each real client connects by an `Access`: a round trip of records, or the error that a user sees.

A round trip writes records to a topic and reads each before it writes the next, on the same connections.
`Order` says to which topic, how many and how often. The result is `OK` or the client's error as text,
without addresses, times and line numbers.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.harness.client_access import Access
from tests.harness.java_program import SOURCES, JavaProgram
from tests.harness.member_program import LOGIN_PROGRAMS

with warnings.catch_warnings():
    # kafka-python reads its schemas with a Python API that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

OK = "ok"
PATIENCE_SECONDS = 30.0
"""How long a round trip may wait for the broker on a busy machine."""
VALUE = b"hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a client has to do."""

    topic: str
    records: int = 1
    pause_ms: int = 0
    """After each record."""
    is_wrong: bool = False
    """Whether the broker or the client will refuse: then retries are few and waits short."""

    @property
    def patience_s(self) -> float:
        return 5.0 if self.is_wrong else PATIENCE_SECONDS


RoundTrip: TypeAlias = Callable[[Access, Order], str]


# librdkafka.


def confluent(access: Access, order: Order) -> str:
    """confluent-kafka. Returns the first error that `error_cb` gets."""
    errors: list[str] = []
    settings = access.librdkafka() | {"error_cb": lambda error: errors.append(said(error))}
    if access.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (access.token, time.time() + 300)
    producer = Producer(settings)
    if order.is_wrong:
        return first_error(producer, errors, order)
    consumer = Consumer(settings | {"group.id": order.topic})
    failures: list[Any] = []
    try:
        for number in range(order.records):
            producer.produce(
                order.topic, VALUE, on_delivery=lambda error, _: failures.append(error)
            )
            producer.flush(order.patience_s)
            if number == 0:  # From now on the topic exists.
                consumer.assign([TopicPartition(order.topic, 0, 0)])
            record = consumer.poll(order.patience_s)
            if failures != [None] * (number + 1) or record is None or record.value() != VALUE:
                return f"{failures}; {record}; {errors}"
            time.sleep(order.pause_ms / 1000)
    finally:
        consumer.close()
    return OK


def first_error(producer: Any, errors: list[str], order: Order) -> str:
    """Returns the first error within the order's time."""
    deadline = time.monotonic() + order.patience_s
    while not errors and time.monotonic() < deadline:
        producer.poll(0.05)
    if errors:
        return errors[0]
    try:
        producer.list_topics(timeout=1)
    except KafkaException as error:
        return said(error.args[0])
    return OK


def said(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


def kcat(access: Access, order: Order) -> str:
    """kcat, on an old librdkafka. Returns the first line of its standard error."""
    if order.is_wrong:
        listed = _kcat(access, "-L", "-m", "2")
        return OK if listed.returncode == 0 else _first_line(listed)
    written = _kcat(access, "-P", "-t", order.topic)
    read = _kcat(access, "-C", "-t", order.topic, "-c", "1", "-o", "beginning")
    return OK if read.stdout == VALUE + b"\n" else _first_line(written) + _first_line(read)


def _kcat(access: Access, *words: str) -> subprocess.CompletedProcess[bytes]:
    pairs = access.librdkafka().items()
    options = [part for name, value in pairs for part in ("-X", f"{name}={value}")]
    given = VALUE + b"\n"
    return subprocess.run(
        ["kcat", *options, *words], input=given, capture_output=True, timeout=60, check=False
    )


def _first_line(ran: subprocess.CompletedProcess[bytes]) -> str:
    return next(iter(ran.stderr.decode().splitlines()), "")


# Python.


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    """A token for kafka-python."""

    def __init__(self, given: str) -> None:
        super().__init__()
        self._given = given

    def token(self) -> str:
        return self._given


class AioTokens(AioTokenProvider):  # type: ignore[misc]
    """A token for aiokafka."""

    def __init__(self, given: str) -> None:
        super().__init__()
        self._given = given

    async def token(self) -> str:
        return self._given


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """Yields the warnings of a logger and those below it. Their texts say more than the exceptions."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger(name), Keeping(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def kafka_python(access: Access, order: Order) -> str:
    """kafka-python. Returns the exception and the first warning in the log."""
    with logged("kafka") as lines:
        try:
            values = _kafka_python(access, order)
        except KafkaPythonError as error:
            return f"{type(error).__name__}; {next(iter(lines), '')}"
    return OK if values == [VALUE] * order.records else repr(values)


def _kafka_python(access: Access, order: Order) -> list[bytes | None]:
    settings = access.python(PythonTokens(access.token))
    limits = {"bootstrap_timeout_ms": 2000} if order.is_wrong else {}
    producer = KafkaProducer(**settings, **limits)
    consumer = KafkaConsumer(
        order.topic,
        **settings,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(order.patience_s * 1000),
    )
    values = []
    try:
        for _ in range(order.records):
            producer.send(order.topic, VALUE).get(order.patience_s)
            values.append(next(consumer).value)
            time.sleep(order.pause_ms / 1000)
    finally:
        consumer.close()
        producer.close()
    return values


def aiokafka(access: Access, order: Order) -> str:
    """aiokafka. Returns the exception and the first warning in the log."""
    with logged("aiokafka") as lines:
        try:
            values = asyncio.run(_aiokafka(access, order))
        except AioKafkaError as error:
            return f"{type(error).__name__}; {next(iter(lines), '')}"
    return OK if values == [VALUE] * order.records else repr(values)


async def _aiokafka(access: Access, order: Order) -> list[bytes | None]:
    settings = access.python(AioTokens(access.token))
    producer = AIOKafkaProducer(**settings)
    consumer = AIOKafkaConsumer(order.topic, **settings, auto_offset_reset="earliest")
    values = []
    try:
        await asyncio.wait_for(producer.start(), order.patience_s)
        for number in range(order.records):
            await producer.send_and_wait(order.topic, VALUE)
            if number == 0:  # From now on the topic exists.
                await consumer.start()
            values.append((await asyncio.wait_for(consumer.getone(), order.patience_s)).value)
            await asyncio.sleep(order.pause_ms / 1000)
    finally:
        await consumer.stop()
        await producer.stop()
    return values


# Other languages.


class JavaLogins(JavaProgram):
    """The Java clients of Kafka 4.3 in one JVM (`tests/conformance/java/Logins.java`).

    Raises JarsUnavailable, with a message that says what to install, if Java is unavailable.
    """

    def __init__(self) -> None:
        super().__init__("Logins", SOURCES / "kafka-tools-4.3")

    def __call__(self, access: Access, order: Order) -> str:
        """Connect."""
        token = self._folder / "token"
        properties = access.java(token)
        if order.is_wrong:
            patience = str(int(order.patience_s * 1000))
            properties |= {"default.api.timeout.ms": patience, "request.timeout.ms": patience}
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        encoded = base64.b64encode(text.encode()).decode()
        line = f"{order.topic} {order.records} {order.pause_ms} {encoded}"
        answer = self._answers(line).readline()
        if not answer:
            raise self._ended(order.topic)
        return answer.rstrip("\n")


def program(name: str) -> RoundTrip:
    """Returns the round trip of kafkajs or franz-go. Raises ProgramUnavailable."""
    command = LOGIN_PROGRAMS[name].command()

    def run(access: Access, order: Order) -> str:
        words = access.program() | {
            "topic": order.topic,
            "records": str(order.records),
            "pause.ms": str(order.pause_ms),
        }
        ran = subprocess.run(
            [*command, json.dumps(words)], capture_output=True, text=True, timeout=120, check=False
        )
        return ran.stdout.strip() or ran.stderr.strip()

    return run


IN_PYTHON: dict[str, RoundTrip] = {
    "confluent-kafka": confluent,
    "kcat": kcat,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
NAMES = (*IN_PYTHON, "java", *LOGIN_PROGRAMS)
WITHOUT_TOKENS = frozenset({"kcat"})
"""Clients without OAUTHBEARER: kcat 1.7.1 has it only without a signature."""


# Errors as text.

VOLATILE = (
    (re.compile(r"^%\d\|[\d.]+\|FAIL\|rdkafka#\w+-\d+\| \[thrd:\S+\]: "), ""),
    (re.compile(r"\b\d+ ?ms\b|\b\d{10,}\b"), "<ms>"),
    (re.compile(r"\(after <ms> in state \w+\)"), "(after <ms>)"),
    (re.compile(r"current time \S+ is after \S+|NotAfter: .*"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+(/bootstrap|/\d)?"), "<address>"),
    (re.compile(r"127\.0\.0\.1\b( port=\d+)?"), "<host>"),
    (re.compile(r" ?\(_ssl\.c:\d+\)"), ""),
    (re.compile(r"[0-9A-F]{16}:error:"), "<thread>:error:"),
    (re.compile(r":\.\./deps/openssl/\S+?:\d+:"), ":"),
    # librdkafka reads the queue of OpenSSL's errors in one of two places.
    (re.compile(r"^(_SSL|_TRANSPORT)(: ssl://)"), r"_SSL\2"),
    (re.compile(r"SSL handshake failed: (?=error:|Disconnected)"), ""),
    (re.compile(r": broker certificate could not be .* package\)"), ""),
    (re.compile(r": connecting to a PLAINTEXT broker listener\?"), ""),
    (re.compile(r"\b\d/\d brokers"), "<n> brokers"),
    # The end of a connection has several forms, which depend on what was under way. kafka-python drops
    # an answer that arrives with it.
    (
        re.compile(
            r"^(EOF|read tcp .*reset by peer|the internal broker struct .*|broker closed .* SASL .*)$"
        ),
        "<end>",
    ),
    (
        re.compile(
            r"<Kafka\w+ .*>: (socket disconnected|Abort \(\[Error 58.*\)|Connection lost: .*"
            r"|SaslHandshake failed: \w+)$"
        ),
        "<end>",
    ),
    (re.compile(r"<Kafka\w+ \[.*\]>: "), ""),
)


def stable(text: str) -> str:
    """Returns an error's text in one line, without what differs from run to run."""
    line = " ".join(text.split())
    for pattern, instead in VOLATILE:
        line = pattern.sub(instead, line)
    return line
