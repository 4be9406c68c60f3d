"""Reads key stores and trust stores: PEM, PKCS12 and JKS, recognized by their content.

    PEM       -----BEGIN CERTIFICATE-----, keys in any of PEM's forms, encrypted or not
    PKCS12    a DER sequence; what keytool and openssl write by default
    JKS       FEEDFEED; see jks.py

Pure: bytes and passwords in, a key with its chain or certificates out. The errors name no property and
contain no secret; the caller says which property they are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from server.security.jks import JCEKS_MAGIC, MAGIC, JksEntry, JksError, decrypted_key, read_jks

PEM_MARK = b"-----BEGIN "
PEM_KEY = re.compile(rb"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
DER_SEQUENCE = 0x30
CONVERT = (
    "convert it with: keytool -importkeystore -srckeystore store.jceks -srcstoretype JCEKS"
    " -destkeystore store.p12 -deststoretype PKCS12"
)


DAMAGED_CERTIFICATE = "one of its certificates is damaged"


class StoreError(Exception):
    """A store cannot be used. The text is a clause that says why, and what to do where that helps."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificate chain."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]
    """The certificate of the key first, then those that sign it."""
    expires_at: datetime
    """When the first certificate of the chain expires, in UTC."""

    def pem(self) -> bytes:
        """Returns the key, unencrypted, and the chain. Keep it out of files and logs."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def read_key_store(content: bytes, *, store_password: str, key_password: str) -> KeyStore:
    """Returns the key and the chain of a store; of its first key if there are several.

    Raises:
        StoreError: it is damaged, empty, of an unknown kind, has another password, or the key is not
            that of the certificate.
    """
    if PEM_MARK in content:
        return pem_key_store(content, content, key_password or store_password)
    if content.startswith(MAGIC):
        return _jks_key_store(content, store_password, key_password or store_password)
    key, chain = _pkcs12(content, store_password)
    if key is None:
        raise StoreError("there is no private key in it")
    return _matched(key, _ordered(chain))


def pem_key_store(key: bytes, chain: bytes, password: str) -> KeyStore:
    """Returns the first private key and the certificates of two PEM texts, which may be the same.

    Raises:
        StoreError: as `read_key_store`.
    """
    found = PEM_KEY.search(key)
    if found is None:
        raise StoreError("there is no private key in it")
    try:
        secret = load_pem_private_key(found[0], _secret(password) if _is_locked(found[0]) else None)
    except TypeError:
        raise StoreError("the private key is encrypted: set ssl.key.password") from None
    except Exception:  # noqa: BLE001 - see `_understood`
        wrong = "the password is wrong or " if _is_locked(found[0]) else ""
        raise StoreError(f"{wrong}the private key is damaged") from None
    return _matched(secret, pem_certificates(chain))


def pem_certificates(text: bytes) -> tuple[x509.Certificate, ...]:
    """Returns the certificates of a PEM text, at least one. Raises StoreError."""
    with _understood("there is no certificate in it, or a damaged one"):
        return tuple(x509.load_pem_x509_certificates(text))


def read_trust_store(content: bytes, *, password: str) -> tuple[x509.Certificate, ...]:
    """Returns the trusted certificates of a store, at least one. Raises StoreError."""
    if PEM_MARK in content:
        return pem_certificates(content)
    if content.startswith(MAGIC):
        entries = _jks(content, password or None)
        certificates = _loaded([each for entry in entries for each in entry.certificates])
    else:
        certificates = _pkcs12(content, password)[1]
    if not certificates:
        raise StoreError("there is no certificate in it")
    return certificates


def _jks_key_store(content: bytes, store_password: str, key_password: str) -> KeyStore:
    for entry in _jks(content, store_password or None):
        if entry.encrypted_key is not None:
            try:
                key = decrypted_key(entry.encrypted_key, key_password)
            except JksError as error:
                raise StoreError(f"{error}: set ssl.key.password") from None
            with _understood("the private key is damaged"):
                secret = load_der_private_key(key, None)
            return _matched(secret, _loaded(entry.certificates))
    raise StoreError("there is no private key in it")


def _jks(content: bytes, password: str | None) -> Sequence[JksEntry]:
    try:
        return read_jks(content, password)
    except JksError as error:
        raise StoreError(str(error)) from None


def _pkcs12(
    content: bytes, password: str
) -> tuple[PrivateKeyTypes | None, tuple[x509.Certificate, ...]]:
    if content.startswith(JCEKS_MAGIC):
        raise StoreError("JCEKS key stores are not read; " + CONVERT)
    if not content or content[0] != DER_SEQUENCE:
        raise StoreError("it is neither PEM nor PKCS12 nor JKS")
    with _understood("the password is wrong, or the file is damaged"):
        try:
            store = pkcs12.load_pkcs12(content, _secret(password))
        except UnsupportedAlgorithm as error:
            text = f"it is encrypted in a way that is not supported: {error}"
            raise StoreError(text) from None
    own = () if store.cert is None else (store.cert.certificate,)
    chain = (*own, *(each.certificate for each in store.additional_certs))
    return store.key, chain


def _ordered(certificates: Sequence[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Returns the chain that begins with the first certificate: PKCS12 keeps the others in any order."""
    chain, rest = list(certificates[:1]), list(certificates[1:])
    while chain:
        with _understood(DAMAGED_CERTIFICATE):
            above = next((each for each in rest if each.subject == chain[-1].issuer), None)
        if above is None:
            break
        rest.remove(above)
        chain.append(above)
    return tuple(chain)


def _loaded(certificates: Sequence[bytes]) -> tuple[x509.Certificate, ...]:
    with _understood(DAMAGED_CERTIFICATE):
        return tuple(x509.load_der_x509_certificate(each) for each in certificates)


def _matched(key: PrivateKeyTypes, chain: Sequence[x509.Certificate]) -> KeyStore:
    """Returns the key store, once its first certificate is known to be that of the key."""
    if not chain:
        raise StoreError("there is no certificate in it")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    with _understood(DAMAGED_CERTIFICATE):
        # A certificate is parsed where it is looked at.
        expiries = [each.not_valid_after_utc for each in chain]
        shown = chain[0].public_key().public_bytes(*form)
    if shown != key.public_key().public_bytes(*form):
        raise StoreError("its first certificate is not that of its private key")
    return KeyStore(key, tuple(chain), min(expiries))


@contextmanager
def _understood(problem: str) -> Iterator[None]:
    """Turn an error of the library about damaged bytes into a StoreError.

    It documents no list of them: besides ValueError there are InvalidVersion, UnsupportedAlgorithm,
    TypeError and others.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception:  # noqa: BLE001 - as above
        raise StoreError(problem) from None


def _is_locked(pem: bytes) -> bool:
    return b"ENCRYPTED" in pem


def _secret(password: str) -> bytes | None:
    return password.encode() or None
