"""Reads the security properties of Kafka's clients from a file.

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
from dataclasses import dataclass, replace
from pathlib import Path

from server.client.errors import Misconfigured
from server.config.listeners.jaas import JaasError, parse_jaas
from server.config.sources import read_properties_file
from storage.formats.config_property import ConfigError

PEM_BEGIN = b"-----BEGIN "
STORE_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files and texts of a client's TLS; other stores have become texts."""

    ca_file: str | None = None
    ca_text: str | None = None
    """Certificates to trust. Without file and text, those of the system."""
    certificate_file: str | None = None
    """The client's own certificate and the chain above it."""
    own_pem: bytes | None = None
    """Key and chain instead of that file. Keep it out of files and logs."""
    key_file: str | None = None
    """The certificate's key, if it is in another file."""
    key_password: str | None = None
    checks_host: bool = True
    """Whether the broker's certificate must name the host."""

    def __repr__(self) -> str:
        return f"TlsFiles({self.ca_file}, {self.certificate_file})"


def read_properties(path: Path) -> Mapping[str, str]:
    """Returns the properties of a file. Raises Misconfigured if it cannot be read."""
    try:
        return read_properties_file(path)
    except ConfigError as error:
        raise Misconfigured(str(error)) from error


def login_of(jaas: str) -> tuple[str, str]:
    """Returns the user name and password of a `sasl.jaas.config`. Raises Misconfigured."""
    try:
        options = parse_jaas(jaas).options
    except JaasError as error:
        raise Misconfigured(f"sasl.jaas.config: {error}") from error
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise Misconfigured(
            f"sasl.jaas.config names no {' and no '.join(missing)}: write"
            ' MODULE required username="NAME" password="PASSWORD";',
        )
    return options["username"], options["password"]


def tls_files(properties: Mapping[str, str]) -> TlsFiles:
    """Returns what the `ssl.*` properties name. Raises Misconfigured for a store that cannot be used."""
    trusted = properties.get("ssl.truststore.location")
    own = properties.get("ssl.keystore.location")
    files = TlsFiles(
        ca_file=trusted,
        ca_text=properties.get("ssl.truststore.certificates"),
        certificate_file=own,
        key_password=properties.get("ssl.key.password"),
        checks_host=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
    )
    if trusted is not None and (store := _unless_pem("ssl.truststore.location", trusted)):
        files = replace(files, ca_file=None, ca_text=_trusted_pem(store, trusted, properties))
    if own is not None and (store := _unless_pem("ssl.keystore.location", own)):
        files = replace(files, certificate_file=None, own_pem=_own_pem(store, own, properties))
    return files


def _unless_pem(name: str, location: str) -> bytes | None:
    """Returns the content of a store; None if it is PEM, which is read from its file."""
    try:
        with Path(location).open("rb") as file:
            content = file.read(STORE_BYTES_MAX)
    except OSError as error:
        raise Misconfigured(f"{name}={location}: {error.strerror}") from error
    return None if PEM_BEGIN in content else content


def _trusted_pem(store: bytes, location: str, properties: Mapping[str, str]) -> str:
    """Returns the certificates of a PKCS12 or JKS trust store."""
    # The reader takes long to import, and few commands need it.
    from cryptography.hazmat.primitives.serialization import Encoding

    from server.security.key_stores import StoreError, read_trust_store

    try:
        trusted = read_trust_store(store, password=properties.get("ssl.truststore.password", ""))
    except StoreError as error:
        raise Misconfigured(f"ssl.truststore.location={location}: {error}") from None
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in trusted)


def _own_pem(store: bytes, location: str, properties: Mapping[str, str]) -> bytes:
    """Returns the key, unencrypted, and the chain of a PKCS12 or JKS key store."""
    from server.security.key_stores import StoreError, read_key_store

    try:
        return read_key_store(
            store,
            store_password=properties.get("ssl.keystore.password", ""),
            key_password=properties.get("ssl.key.password", ""),
        ).pem()
    except StoreError as error:
        raise Misconfigured(f"ssl.keystore.location={location}: {error}") from None
