"""Reads the security properties of Kafka's clients from a file, for --command-config.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="alice-secret";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem

Properties that have nothing to do with security are ignored, because such files serve several tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.base.command_end import EXIT_USAGE, CommandFailed
from server.config.listeners.jaas import JaasError, parse_jaas
from server.config.sources import read_properties_file
from storage.formats.config_property import ConfigError

PEM_BEGIN = b"-----BEGIN "


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files and texts of a client's TLS."""

    ca_file: str | None = None
    ca_text: str | None = None
    """Certificates to trust. Without file and text, those of the system."""
    certificate_file: str | None = None
    """The client's own certificate and the chain above it."""
    key_file: str | None = None
    """The certificate's key, if it is in another file."""
    key_password: str | None = None
    checks_host: bool = True
    """Whether the broker's certificate must name the host."""

    def __repr__(self) -> str:
        return f"TlsFiles({self.ca_file}, {self.certificate_file})"


def read_properties(path: Path) -> Mapping[str, str]:
    """Returns the properties of a file. Raises CommandFailed if it cannot be read."""
    try:
        return read_properties_file(path)
    except ConfigError as error:
        raise CommandFailed(EXIT_USAGE, f"--command-config {error}") from error


def login_of(jaas: str) -> tuple[str, str]:
    """Returns the user name and password of a `sasl.jaas.config`. Raises CommandFailed."""
    try:
        options = parse_jaas(jaas).options
    except JaasError as error:
        raise CommandFailed(EXIT_USAGE, f"sasl.jaas.config: {error}") from error
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise CommandFailed(
            EXIT_USAGE,
            f"sasl.jaas.config names no {' and no '.join(missing)}: write"
            ' MODULE required username="NAME" password="PASSWORD";',
        )
    return options["username"], options["password"]


def tls_files(properties: Mapping[str, str]) -> TlsFiles:
    """Returns the files of the `ssl.*` properties. Raises CommandFailed for stores that are not PEM."""
    ca_file = properties.get("ssl.truststore.location")
    certificate_file = properties.get("ssl.keystore.location")
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        _check_pem(name, properties.get(name))
    return TlsFiles(
        ca_file=ca_file,
        ca_text=properties.get("ssl.truststore.certificates"),
        certificate_file=certificate_file,
        key_password=properties.get("ssl.key.password"),
        checks_host=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
    )


def _check_pem(name: str, location: str | None) -> None:
    if location is None:
        return
    try:
        with Path(location).open("rb") as file:
            is_pem = PEM_BEGIN in file.read(1 << 16)
    except OSError as error:
        raise CommandFailed(EXIT_USAGE, f"{name}={location}: {error.strerror}") from error
    if not is_pem:
        raise CommandFailed(
            EXIT_USAGE,
            f"{name}={location} is not PEM: convert it with openssl pkcs12 -in {location} -nodes"
            " -out store.pem (a JKS first with keytool -importkeystore -deststoretype PKCS12)",
        )
