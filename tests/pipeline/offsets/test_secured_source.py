"""Spark's Kafka source and the jobs' own client log in by each mechanism, over TLS and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as Scram

from pipeline.offsets.source_options import source_options
from tests.harness.broker_process import BrokerProcess, free_ports
from tests.harness.certificates import Certificates
from tests.harness.clients import create_topic
from tests.harness.sasl_login import PLAIN_JAAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.offsets.kafka_source import KafkaSource

pytestmark = pytest.mark.spark

TOPIC, RECORDS = "orders", 50


@dataclass(frozen=True)
class Secured:
    """A broker with a listener of each protocol."""

    addresses: dict[str, str]
    certificates: Certificates


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    ports = dict(zip(("SSL", "SASL_SSL", "SASL_PLAINTEXT"), free_ports(3), strict=True))
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.overrides |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{process.port},"
        + ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "ssl.keystore.location": certificates.broker(),
        "ssl.truststore.location": certificates.authority_file,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": PLAIN_JAAS,
    }
    with process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        for mechanism in (Scram.SCRAM_SHA_256, Scram.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("alice", info, b"alice-secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(20)
        create_topic(process.bootstrap_servers, TOPIC)
        producer = Producer({"bootstrap.servers": process.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(TOPIC, key=str(number), value=b"value")
        assert producer.flush(20) == 0
        yield Secured({name: f"127.0.0.1:{port}" for name, port in ports.items()}, certificates)


def source_with(
    secured: Secured, folder: Path, protocol: str, mechanism: str, password: str = "alice-secret"
) -> KafkaSource:
    """Returns the source that a file of client properties describes."""
    from pipeline.offsets.kafka_source import KafkaSource

    lines = [f"security.protocol={protocol}"]
    if protocol != "SASL_PLAINTEXT":
        lines.append("ssl.truststore.type=PEM")
        lines.append(f"ssl.truststore.location={secured.certificates.authority_file}")
    if protocol == "SSL":
        own = secured.certificates.as_pkcs8(secured.certificates.client())
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={own}"]
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        lines.append(f"sasl.mechanism={mechanism}")
        lines.append(
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
            f' username="alice" password="{password}";'
        )
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    return KafkaSource(
        bootstrap_servers=secured.addresses[protocol],
        topics=(TOPIC,),
        options=source_options(file, None),
    )


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", ""),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ],
)
def test_offsets_and_records_are_read(
    session: SparkSession, secured: Secured, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    from pipeline.offsets.kafka_offsets import ask_offsets

    source = source_with(secured, tmp_path, protocol, mechanism)

    offsets = ask_offsets(session, source)
    records = session.read.format("kafka").options(**source.up_to(offsets.end)).load()

    assert offsets.end == {TOPIC: {0: RECORDS}}
    assert records.count() == RECORDS


def test_a_wrong_password_is_refused_in_kafkas_words(
    session: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    from pipeline.offsets.cut import TableRefused
    from pipeline.offsets.kafka_offsets import ask_offsets

    source = source_with(secured, tmp_path, "SASL_SSL", "SCRAM-SHA-512", "wrong")

    with pytest.raises(TableRefused, match="SaslAuthenticationException: Authentication failed"):
        ask_offsets(session, source)


def test_a_broker_that_is_not_trusted_is_refused(
    session: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    from pipeline.offsets.cut import TableRefused
    from pipeline.offsets.kafka_offsets import ask_offsets

    stranger = Certificates(tmp_path / "stranger")
    distrusting = Secured(secured.addresses, stranger)
    source = source_with(distrusting, tmp_path, "SASL_SSL", "PLAIN")

    with pytest.raises(TableRefused, match="unable to find valid certification path"):
        ask_offsets(session, source)
