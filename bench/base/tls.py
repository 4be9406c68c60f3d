"""A certificate for servers under measurement, and connections that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Tls:
    """An authority that exists for one measurement, and the files of what it issues."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        self.key_store = folder / "server.pem"
        self.key_store.write_bytes(_pkcs8(issued.private_key_pem.bytes()))
        for certificate in issued.cert_chain_pems:
            certificate.write_to_path(str(self.key_store), append=True)
        self._authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self._authority))
        self.client = ssl.create_default_context(cafile=str(self._authority))

    def broker_settings(self, port: int) -> tuple[str, ...]:
        """Returns the settings of a broker whose only listener has TLS."""
        return (f"listeners=SSL://127.0.0.1:{port}", f"ssl.keystore.location={self.key_store}")

    def kafka_properties(self, port: int) -> dict[str, str]:
        """Returns the properties of an Apache Kafka whose only listener for clients has TLS."""
        return {
            "listeners": f"SSL://127.0.0.1:{port}",
            "listener.security.protocol.map": "SSL:SSL",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store),
            # The broker is a client of itself: it starts only if it trusts its own certificate.
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
        }


def _pkcs8(pem: bytes) -> bytes:
    """Returns a private key in the one form that Java reads."""
    key = load_pem_private_key(pem, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
