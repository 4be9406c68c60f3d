"""A certificate for servers under measurement, and connections that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Tls:
    """An authority that exists for one measurement, and the files of what it issues."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        authority = trustme.CA()
        self.key_store = folder / "server.pem"
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.key_store))
        self.client = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())

    def broker_settings(self, port: int) -> tuple[str, ...]:
        """Returns the settings of a broker whose only listener has TLS."""
        return (f"listeners=SSL://127.0.0.1:{port}", f"ssl.keystore.location={self.key_store}")
