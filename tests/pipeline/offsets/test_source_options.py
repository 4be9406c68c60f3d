"""Options with which a job reaches a broker: from a file of client properties and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.base.command_end import CommandFailed
from pipeline.offsets.source_options import source_options

FILE = """
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="alice-secret";
ssl.truststore.location=ca.pem
group.id=of-another-tool
"""


def test_security_properties_of_a_file_are_options_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE)

    options = source_options(file, None)

    assert options == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="alice-secret";',
        "kafka.ssl.truststore.location": "ca.pem",
    }


def test_an_option_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE)

    options = source_options(file, ["kafka.sasl.mechanism=PLAIN", "minPartitions=8"])

    assert options["kafka.sasl.mechanism"] == "PLAIN"
    assert options["minPartitions"] == "8"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"--command-config .*client\.properties"):
        source_options(tmp_path / "client.properties", None)
