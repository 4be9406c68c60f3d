"""Certificates for tests: an authority, what it issues, and the files that brokers and clients read."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)


class Certificates:
    """An authority with a folder for its files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = trustme.CA()
        self.authority_file = folder / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.authority_file))

    def trust(self, client: Path | None = None) -> ssl.SSLContext:
        """Returns a client's context that trusts the authority and shows a certificate, if given."""
        return self.context(self.authority_file, client)

    @staticmethod
    def context(authority: Path, client: Path | None) -> ssl.SSLContext:
        """Returns a client's context that trusts an authority."""
        context = ssl.create_default_context(cafile=str(authority))
        if client is not None:
            context.load_cert_chain(str(client))
        return context

    def as_pkcs8(self, pem: Path) -> Path:
        """Returns a PEM file whose key is in the one form that Java reads."""
        content = pem.read_bytes()
        key = load_pem_private_key(content, None)
        path = pem.with_suffix(".pkcs8.pem")
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(
            key.private_bytes(*form) + content[content.index(b"-----BEGIN CERTIFICATE") :]
        )
        return path

    def broker(
        self,
        name: str = "broker.pem",
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        expired: bool = False,
    ) -> Path:
        """Returns a PEM file with a new key and certificate for these hosts."""
        path = self.folder / name
        issued = self.authority.issue_cert(*hosts, not_after=_end(expired=expired))
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def client(self, common_name: str = "alice", *, expired: bool = False) -> Path:
        """Returns a PEM file for a client with this name."""
        path = self.folder / f"{common_name}.pem"
        issued = self.authority.issue_cert(
            f"{common_name}@example.org",
            common_name=common_name,
            organization_name="Example",
            organization_unit_name="Data",
            not_after=_end(expired=expired),
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


def _end(*, expired: bool) -> datetime | None:
    """Returns when a certificate expires; None: in the far future."""
    return datetime.now(UTC) - timedelta(days=1) if expired else None


def as_pkcs12(pem: Path, password: str) -> Path:
    """Returns a PKCS12 file with the key and the certificate of a PEM file."""
    content = pem.read_bytes()
    own, *others = x509.load_pem_x509_certificates(content)
    key = load_pem_private_key(content, None)
    path = pem.with_suffix(".p12")
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"key",
            key,  # type: ignore[arg-type]
            own,
            others,
            BestAvailableEncryption(password.encode()),
        )
    )
    return path
