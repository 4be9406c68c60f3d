"""Reads Java key stores in the format JKS, which Java wrote by default before version 9.

    store     := magic FEEDFEED | version: int32 | count: int32 | entry[count] | digest: byte[20]
    entry     := 1 | alias | created_ms: int64 | bytes (the key) | count: int32 | certificate[count]
               | 2 | alias | created_ms: int64 | certificate
    certificate := type: utf (version 2 only) | bytes (DER)
    alias, utf  := size: uint16 | byte[size]
    bytes       := size: int32 | byte[size]
    digest      := SHA-1(password in UTF-16BE | "Mighty Aphrodite" | everything before the digest)

The encrypted key is an EncryptedPrivateKeyInfo whose algorithm is Sun's own: the key is XORed with a
stream of SHA-1 digests, which begins with a salt of 20 bytes and ends with a digest over the key.

Source: OpenJDK, JavaKeyStore.java, KeyProtector.java.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = bytes.fromhex("feedfeed")
JCEKS_MAGIC = bytes.fromhex("cececece")
WHITENER = b"Mighty Aphrodite"
DIGEST_BYTES = 20
KEY_ENTRY, TRUSTED_ENTRY = 1, 2
SUN_PROTECTOR = bytes.fromhex("060a2b060104012a021101010500")
"""The algorithm identifier's content: 1.3.6.1.4.1.42.2.17.1.1 and NULL."""


class JksError(Exception):
    """A key store is damaged, or the password is not its own. The text says which."""


@dataclass(frozen=True, slots=True)
class JksEntry:
    """A private key with its chain, or a trusted certificate."""

    alias: str
    encrypted_key: bytes | None
    certificates: tuple[bytes, ...]
    """In DER; those of a key begin with its own."""


def read_jks(store: bytes, password: str | None) -> tuple[JksEntry, ...]:
    """Returns the entries of a key store.

    Args:
        password: that of the store; None: do not check it.

    Raises:
        JksError: the store is damaged, or has another password.
    """
    body, digest = store[:-DIGEST_BYTES], store[-DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the password is wrong, or the file is damaged")
    try:
        return tuple(_entries(_Reader(body)))
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise JksError("the file is damaged") from error


def decrypted_key(encrypted: bytes, password: str) -> bytes:
    """Returns the private key in PKCS#8 DER. Raises JksError if the password is wrong."""
    at = encrypted.find(SUN_PROTECTOR)
    if at < 0:
        raise JksError("the key is encrypted by an unknown algorithm")
    # Behind the algorithm stands one OCTET STRING, with its tag and length.
    try:
        protected = _octets(encrypted[at + len(SUN_PROTECTOR) :])
    except IndexError:
        raise JksError("the key is damaged") from None
    salt, sealed, check = (
        protected[:DIGEST_BYTES],
        protected[DIGEST_BYTES:-DIGEST_BYTES],
        protected[-DIGEST_BYTES:],
    )
    secret = _utf16(password)
    key = bytes(a ^ b for a, b in zip(sealed, _stream(secret, salt), strict=False))
    expected = hashlib.sha1(secret + key, usedforsecurity=False).digest()
    if not hmac.compare_digest(expected, check):
        raise JksError("the password of the key is wrong")
    return key


class _Reader:
    """Takes values off the front of a store."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def bytes_(self, form: str) -> bytes:
        size = self.number(form)
        if not 0 <= size <= len(self._data) - self._at:
            raise IndexError(size)
        self._at += size
        return self._data[self._at - size : self._at]


def _entries(reader: _Reader) -> Iterator[JksEntry]:
    if reader.number(">I") != int.from_bytes(MAGIC, "big"):
        raise JksError("the file is not a JKS key store")
    version = reader.number(">i")
    for _ in range(reader.number(">i")):
        kind = reader.number(">i")
        alias = reader.bytes_(">H").decode()
        reader.number(">q")
        key = reader.bytes_(">i") if kind == KEY_ENTRY else None
        count = reader.number(">i") if kind == KEY_ENTRY else 1
        chain = tuple(_certificate(reader, version) for _ in range(count))
        yield JksEntry(alias, key, chain)
    if not reader.is_at_end:
        raise JksError("the file is damaged: there are bytes behind its last entry")


def _certificate(reader: _Reader, version: int) -> bytes:
    if version > 1:
        reader.bytes_(">H")
    return reader.bytes_(">i")


def _stream(secret: bytes, salt: bytes) -> Iterator[int]:
    block = salt
    while True:
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        yield from block


def _octets(der: bytes) -> bytes:
    """Returns the content of an OCTET STRING."""
    if der[1] < 0x80:
        return der[2 : 2 + der[1]]
    start = 2 + (der[1] & 0x7F)
    return der[start : start + int.from_bytes(der[2:start], "big")]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
