"""Real clients over TLS: each produces and reads with its certificate; a wrong one is refused."""

from __future__ import annotations

import asyncio
import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.certificates import Certificates
from tests.harness.kafka_tools import KafkaTools

with warnings.catch_warnings():
    # kafka-python reads its schemas with a Python API that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyTopicPartition
    from kafka.errors import KafkaError

pytestmark = pytest.mark.usefixtures("clients_collected")

VALUES = [os.urandom(20_000) for _ in range(100)]
LARGE_BYTES = 100 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client's certificate by an authority that the broker does not trust."""
    return Certificates(tmp_path_factory.mktemp("stranger")).client("mallory")


@pytest.fixture(scope="module")
def bootstrap(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A broker that serves TLS only, to clients with a certificate."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        {
            "ssl.keystore.location": certificates.broker(),
            "ssl.client.auth": "required",
            "ssl.truststore.location": certificates.authority_file,
        },
    )
    process.overrides["listeners"] = f"SSL://127.0.0.1:{process.port}"
    with process:
        yield process.bootstrap_servers


class TlsUser(Protocol):
    """A client that sends values to a topic, and reads them back."""

    def __call__(
        self, bootstrap: str, topic: str, authority: Path, shown: Path
    ) -> list[bytes | None]: ...


def confluent(bootstrap: str, topic: str, authority: Path, shown: Path) -> list[bytes | None]:
    settings = librdkafka(bootstrap, authority, shown)
    AdminClient(settings).list_topics(timeout=5)
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(settings | {"group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(len(VALUES), timeout=30)]
    finally:
        consumer.close()


def librdkafka(bootstrap: str, authority: Path, shown: Path) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority),
        "ssl.certificate.location": str(shown),
        "ssl.key.location": str(shown),
        "log_level": 0,
    }


def kafka_python(bootstrap: str, topic: str, authority: Path, shown: Path) -> list[bytes | None]:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority),
        "ssl_certfile": str(shown),
        "ssl_keyfile": str(shown),
    }
    producer = KafkaProducer(**settings, max_block_ms=5000)
    try:
        sent = [producer.send(topic, value) for value in VALUES]
        producer.flush(30)
        assert all(each.succeeded() for each in sent)
    finally:
        producer.close()
    consumer = KafkaConsumer(**settings, consumer_timeout_ms=5000)
    try:
        partition = PyTopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [next(consumer).value for _ in VALUES]
    finally:
        consumer.close()


def aiokafka(bootstrap: str, topic: str, authority: Path, shown: Path) -> list[bytes | None]:
    context = Certificates.context(authority, shown)

    async def run() -> list[bytes | None]:
        settings = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value)
            await producer.flush()
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(30):
                return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(run())


USERS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}
REFUSED = (KafkaException, KafkaError, KafkaConnectionError)


@pytest.mark.parametrize("name", USERS)
def test_a_client_with_a_certificate_produces_and_reads(
    name: str, bootstrap: str, certificates: Certificates
) -> None:
    shown = certificates.client(name)

    assert USERS[name](bootstrap, f"of-{name}", certificates.authority_file, shown) == VALUES


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", USERS)
def test_a_client_with_a_strangers_certificate_is_refused(
    name: str, bootstrap: str, certificates: Certificates, stranger: Path
) -> None:
    with pytest.raises(REFUSED):
        USERS[name](bootstrap, f"never-{name}", certificates.authority_file, stranger)

    settings = librdkafka(bootstrap, certificates.authority_file, certificates.client())
    assert f"never-{name}" not in AdminClient(settings).list_topics(timeout=10).topics


def test_a_hundred_megabytes_come_back_byte_for_byte(
    bootstrap: str, certificates: Certificates
) -> None:
    settings = librdkafka(bootstrap, certificates.authority_file, certificates.client())
    producer = Producer(settings | {"queue.buffering.max.kbytes": 1 << 20})
    sent, received = hashlib.sha256(), hashlib.sha256()
    count = LARGE_BYTES // (500 << 10)
    for _ in range(count):
        value = os.urandom(500 << 10)
        sent.update(value)
        producer.produce("large", value)
    assert producer.flush(60) == 0

    consumer = Consumer(settings | {"group.id": "unused", "fetch.max.bytes": 50 << 20})
    try:
        consumer.assign([TopicPartition("large", 0, 0)])
        for message in consumer.consume(count, timeout=60):
            assert message.error() is None
            received.update(message.value() or b"")
    finally:
        consumer.close()
    assert received.digest() == sent.digest()


def test_the_java_clients_produce_and_read_over_tls(
    bootstrap: str, certificates: Certificates, tmp_path: Path
) -> None:
    properties = java_properties(tmp_path, certificates, certificates.client("java"))
    try:
        tools = KafkaTools(bootstrap)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with tools:
        topic = ("--topic", "of-java")
        produced = tools.run(
            "kafka-console-producer", *topic, "--command-config", properties, given="one\ntwo\n"
        )
        assert produced.code == 0, produced.errors
        read = tools.run(
            *("kafka-console-consumer", *topic, "--command-config", properties),
            *("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
        )
    assert read.output.splitlines() == ["one", "two"], read.errors


def java_properties(folder: Path, certificates: Certificates, shown: Path) -> str:
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.authority_file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={certificates.as_pkcs8(shown)}\n"
    )
    return str(path)
