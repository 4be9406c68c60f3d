"""Spark's Kafka source and the jobs on it, over TLS and with a login: by every mechanism."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.source_options import source_options
from tests.harness.broker_process import BrokerProcess
from tests.harness.client_access import Access, Accesses
from tests.harness.secured_listeners import (
    MECHANISMS,
    REAUTH_MS,
    SecuredListeners,
    logins_again,
    secured_broker,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

TOPIC = "secured"
KEYS = [f"key {number}".encode() for number in range(20)]


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, SecuredListeners]]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as (process, listeners):
        producer = Producer({"bootstrap.servers": listeners.address("PLAINTEXT")})
        for key in KEYS:
            producer.produce(TOPIC, b"value", key)
        assert producer.flush(30) == 0
        yield process, listeners


@pytest.fixture
def process(running: tuple[BrokerProcess, SecuredListeners]) -> BrokerProcess:
    return running[0]


@pytest.fixture
def secured(running: tuple[BrokerProcess, SecuredListeners]) -> SecuredListeners:
    return running[1]


def source_of(access: Access, session: SparkSession, folder: Path) -> KafkaSource:
    """Returns the source with the options that a file of client properties gives."""
    token, file = folder / "token", folder / "client.properties"
    properties = access.java(token)
    # Without this permission the Java client reads no token from a file.
    session.sparkContext._jvm.java.lang.System.setProperty(
        "org.apache.kafka.sasl.oauthbearer.allowed.urls", token.as_uri()
    )
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return KafkaSource(
        bootstrap_servers=access.address,
        topics=(TOPIC,),
        options=source_options(file, None),
    )


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "MUTUAL"])
def test_a_batch_reads_the_topic(
    session: SparkSession, secured: SecuredListeners, tmp_path: Path, mechanism: str
) -> None:
    from pipeline.offsets.kafka_offsets import ask_offsets

    source = source_of(Accesses(secured).right(mechanism), session, tmp_path)
    cut = ask_offsets(session, source).cut()
    read = session.read.format("kafka").options(**source.up_to(cut.offsets)).load()

    assert {bytes(row.key) for row in read.select("key").collect()} == set(KEYS)


def test_a_stream_keeps_a_table_and_commits_its_progress(
    session: SparkSession, secured: SecuredListeners, tmp_path: Path
) -> None:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import Pace, follow
    from pipeline.tables.payload_options import Payload

    source = source_of(Accesses(secured).right("SCRAM-SHA-512"), session, tmp_path)
    table = ParquetTable(session, str(tmp_path / "table"))
    follow(session, source, table, Payload(), Pace(group="progress"))

    assert {bytes(row.key) for row in table.read().select("key").collect()} == set(KEYS)
    consumer = Consumer({"bootstrap.servers": secured.address("PLAINTEXT"), "group.id": "progress"})
    (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
    consumer.close()
    assert committed.offset == len(KEYS)


def test_a_stream_outlives_sessions_and_a_change_of_the_certificate(
    session: SparkSession, process: BrokerProcess, secured: SecuredListeners, tmp_path: Path
) -> None:
    before = logins_again(process)
    source = source_of(Accesses(secured).right("SCRAM-SHA-512", "SHORT"), session, tmp_path)
    topic, written = "outlives", 0
    producer = Producer({"bootstrap.servers": secured.address("PLAINTEXT")})
    producer.list_topics(topic, timeout=30)  # creates it
    options = source.all_options() | {"subscribe": topic, "startingOffsets": "earliest"}
    stream = session.readStream.format("kafka").options(**options).load()
    query = stream.writeStream.format("memory").queryName(topic).start()
    try:
        for turn in ("before", "after"):
            end_s = time.monotonic() + 2 * REAUTH_MS / 1000
            while time.monotonic() < end_s:
                producer.produce(topic, b"value", KEYS[0])
                assert producer.flush(30) == 0
                written += 1
                query.processAllAvailable()
            if turn == "before":
                secured.change_certificate("stream")
        assert session.table(topic).count() == written
    finally:
        query.stop()
    assert logins_again(process) > before


# What a job says with Apache Kafka 4.3.1; only the alert about its certificate differs.
REFUSED = {
    "a wrong password by PLAIN": "SaslAuthenticationException: Authentication failed: Invalid username"
    " or password",
    "a wrong password by SCRAM-SHA-512": "SaslAuthenticationException: Authentication failed during"
    " authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
    "a mechanism that is not enabled": "UnsupportedSaslMechanismException: Client SASL mechanism"
    " 'SCRAM-SHA-256' not enabled in the server, enabled mechanisms are [SCRAM-SHA-512]",
    "a broker's certificate that has expired": "CertificateExpiredException: NotAfter",
    "a broker's certificate for another host": "No subject alternative names matching IP address",
    "a broker's certificate of another authority": "unable to find valid certification path",
    "a token of another issuer": 'SaslAuthenticationException: {"status":"invalid_token"}',
    "an expired certificate": "Received fatal alert: certificate_expired",
    "no certificate": "Received fatal alert: certificate_required",
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_refused_job_says_why_and_no_password(
    session: SparkSession, secured: SecuredListeners, tmp_path: Path, mistake: str
) -> None:
    from pipeline.offsets.kafka_offsets import ask_offsets

    source = source_of(Accesses(secured).wrong()[mistake], session, tmp_path)
    with pytest.raises(TableRefused) as refused:
        ask_offsets(session, source)

    assert REFUSED[mistake] in str(refused.value)
    assert "password=" not in str(refused.value)
