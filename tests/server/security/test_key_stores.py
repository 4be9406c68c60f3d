"""Key stores and trust stores of all kinds, also those that Java's keytool writes."""

from __future__ import annotations

import shutil
import struct
import subprocess
from base64 import encodebytes
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from server.security.jks import MAGIC, SUN_PROTECTOR
from server.security.key_stores import StoreError, read_key_store, read_trust_store
from tests.harness.certificates import Certificates, as_pkcs12
from tests.harness.examples import not_quick

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool")

SECRET, KEY_SECRET = "changeit", "other-secret"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def pem(certificates: Certificates) -> bytes:
    return certificates.broker().read_bytes()


def locked(pem: bytes, password: str) -> bytes:
    """Returns the PEM with its key encrypted."""
    key = load_pem_private_key(pem, None)
    lock = BestAvailableEncryption(password.encode())
    chain = pem[pem.index(b"-----BEGIN CERTIFICATE") :]
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock) + chain


def keytool(folder: Path, *arguments: str) -> Path:
    """Make a key store with one key by keytool."""
    path = folder / "store"
    subprocess.run(
        [
            *("keytool", "-genkeypair", "-alias", "broker", "-keyalg", "EC"),
            *("-dname", "CN=broker", "-keystore", str(path), "-storepass", SECRET, *arguments),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return path


def test_a_pem_file_holds_key_and_chain(pem: bytes) -> None:
    store = read_key_store(pem, store_password="", key_password="")

    again = read_key_store(store.pem(), store_password="", key_password="")
    assert again.chain == store.chain
    assert len(store.chain) == 1


def test_an_encrypted_key_opens_with_the_keys_password(pem: bytes) -> None:
    store = read_key_store(locked(pem, SECRET), store_password="", key_password=SECRET)

    assert b"ENCRYPTED" not in store.pem()


def test_pkcs12_is_recognized_by_its_content(certificates: Certificates) -> None:
    path = as_pkcs12(certificates.broker(), SECRET)

    assert read_key_store(path.read_bytes(), store_password=SECRET, key_password="").chain


@not_quick
@needs_keytool
def test_stores_of_keytool_open_in_both_formats(tmp_path: Path) -> None:
    for kind, key_password in (("PKCS12", ""), ("JKS", ""), ("JKS", KEY_SECRET)):
        folder = tmp_path / f"{kind}{key_password}"
        folder.mkdir()
        # Without it keytool asks for a JKS key's password, and takes what it finds at its input.
        more = ["-keypass", key_password or SECRET] if kind == "JKS" else []
        content = keytool(folder, "-storetype", kind, *more).read_bytes()
        store = read_key_store(content, store_password=SECRET, key_password=key_password)

        (own,) = store.chain
        assert own.subject.rfc4514_string() == "CN=broker"
        assert read_trust_store(content, password=SECRET) == (own,)


@needs_keytool
def test_a_wrong_password_of_a_jks_key_is_told_apart(tmp_path: Path) -> None:
    content = keytool(tmp_path, "-storetype", "JKS", "-keypass", KEY_SECRET).read_bytes()

    with pytest.raises(StoreError, match=r"password of the key is wrong: set ssl\.key\.password"):
        read_key_store(content, store_password=SECRET, key_password="")
    with pytest.raises(StoreError, match="the password is wrong, or the file is damaged"):
        read_key_store(content, store_password="wrong", key_password=KEY_SECRET)


@needs_keytool
def test_a_damaged_jks_store_is_an_error_wherever_it_ends(tmp_path: Path) -> None:
    content = keytool(tmp_path, "-storetype", "JKS").read_bytes()
    surplus = bytes(3)

    for end in (*range(4, len(content) - 24, 7), *range(len(content) - 24, len(content))):
        with pytest.raises(StoreError):
            read_key_store(content[:end], store_password=SECRET, key_password="")
        if end + len(surplus) == len(content):
            continue  # Only its digest is damaged, which is not checked without a password.
        with pytest.raises(StoreError):
            read_key_store(content[:end] + surplus, store_password="", key_password=SECRET)


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pem: pem[pem.index(b"-----BEGIN CERT") :], "no private key"),
        (lambda pem: pem[: pem.index(b"-----BEGIN CERT")], "no certificate"),
        (lambda pem: locked(pem, SECRET), r"set ssl\.key\.password"),
        (
            lambda pem: pem.replace(b"KEY-----\n", b"KEY-----\nAAAA", 1),
            "the private key is damaged",
        ),
        (lambda pem: b"\x30\x03\x02\x01\x03", "the password is wrong, or the file is damaged"),
        (lambda pem: b"", "neither PEM nor PKCS12 nor JKS"),
        (lambda pem: b"hello", "neither PEM nor PKCS12 nor JKS"),
        (lambda pem: bytes.fromhex("cececece") + bytes(40), "keytool -importkeystore"),
    ],
)
def test_a_store_that_cannot_be_used_says_why(pem: bytes, damage: Damage, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        read_key_store(damage(pem), store_password="", key_password="")


def test_a_key_of_another_certificate_is_refused(certificates: Certificates, pem: bytes) -> None:
    other = certificates.broker("other.pem").read_bytes()
    mixed = pem[: pem.index(b"-----BEGIN CERT")] + other[other.index(b"-----BEGIN CERT") :]

    with pytest.raises(StoreError, match="its first certificate is not that of its private key"):
        read_key_store(mixed, store_password="", key_password="")


def test_a_trust_store_without_certificates_is_refused(pem: bytes) -> None:
    with pytest.raises(StoreError, match="no certificate"):
        read_trust_store(pem[: pem.index(b"-----BEGIN CERT")], password="")


def test_a_certificate_whose_key_is_none_is_damaged(pem: bytes) -> None:
    own = x509.load_pem_x509_certificates(pem)[0]
    point = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    der = own.public_bytes(Encoding.DER).replace(point, point[:1] + bytes(len(point) - 1))
    key = pem[: pem.index(b"-----BEGIN CERTIFICATE")]
    certificate = b"-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n" % encodebytes(der)

    with pytest.raises(StoreError, match="one of its certificates is damaged"):
        read_key_store(key + certificate, store_password="", key_password="")


def test_a_jks_key_that_ends_behind_its_algorithm_is_damaged() -> None:
    key = SUN_PROTECTOR
    entry = struct.pack(">iH1sqi", 1, 1, b"k", 0, len(key)) + key + struct.pack(">i", 0)
    store = MAGIC + struct.pack(">ii", 2, 1) + entry + bytes(20)

    with pytest.raises(StoreError, match="the key is damaged"):
        read_key_store(store, store_password="", key_password=SECRET)
