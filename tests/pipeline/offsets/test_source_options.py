"""Options with which a job reaches a broker: from a file of client properties and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.base.command_end import CommandFailed
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.source_options import source_options

FILE = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="alice-secret";
ssl.truststore.location=/etc/kafka/ca.pem
bootstrap.servers=elsewhere:9092
max.poll.records=1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


def test_the_security_of_a_file_of_client_properties_becomes_options_of_the_source(
    file: Path,
) -> None:
    assert source_options(file, None) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="alice-secret";',
        "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
    }


def test_an_option_overrides_the_file(file: Path) -> None:
    given = source_options(file, ["kafka.sasl.mechanism=PLAIN", "minPartitions=8"])

    assert given["kafka.sasl.mechanism"] == "PLAIN"
    assert given["minPartitions"] == "8"
    assert given["kafka.security.protocol"] == "SASL_SSL"


def test_without_a_file_there_are_only_the_options() -> None:
    assert source_options(None, ["minPartitions=8"]) == {"minPartitions": "8"}


def test_a_file_that_cannot_be_read_ends_the_command(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="--command-config"):
        source_options(tmp_path / "none", None)


def test_a_password_is_in_no_text_of_the_source(file: Path) -> None:
    source = KafkaSource(
        bootstrap_servers="127.0.0.1:9092", topics=("t",), options=source_options(file, None)
    )

    assert "alice-secret" not in repr(source)
    assert "alice-secret" in source.client_properties()["sasl.jaas.config"]
