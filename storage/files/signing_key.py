"""The key with which a broker signs what it certifies: Ed25519, one for each directory.

`<directory>/signing.key`: the private key as PKCS #8 in PEM, not encrypted, mode 0600, as
`openssl genpkey -algorithm ed25519` writes it. A log directory's signs heads of its ledger, the metadata
directory's signs certificates of erasure. It is created once, durably, when it is first needed. It never
changes: a new key cannot show that what the old one signed is genuine. `openssl pkey -in signing.key
-pubout` prints the public key.

A public key and a signature are 32 and 64 bytes (RFC 8032). `cryptography` is imported when something is
signed or verified: most brokers never do either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from storage.files.errors import DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import SIGNING_KEY, join

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class SigningKey:
    """A private key, and the public key to it."""

    __slots__ = ("_private", "public_key")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key = private.public_key().public_bytes_raw()
        """32 bytes, which anybody may have."""

    @classmethod
    def load(cls, fs: FileSystem, directory: str) -> Self | None:
        """Returns the key of a directory; None if it has none.

        Raises:
            DamagedFile: the file does not hold an Ed25519 key.
            DiskError: the file cannot be read.
        """
        path = join(directory, SIGNING_KEY)
        try:
            return cls(_read(path, fs.read_bytes(path)))
        except MissingFile:
            return None

    @classmethod
    def load_or_create(cls, fs: FileSystem, directory: str) -> Self:
        """Returns the key of a directory; creates it, durably, if there is none.

        Raises:
            DamagedFile: the file does not hold an Ed25519 key.
            DiskError: the file cannot be read or written.
        """
        key = cls.load(fs, directory)
        return cls(_create(fs, join(directory, SIGNING_KEY))) if key is None else key

    def sign(self, data: bytes) -> bytes:
        """Returns the signature of the data, 64 bytes. Equal data have equal signatures."""
        return self._private.sign(data)


def verify(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Returns whether the owner of a public key has signed the data. Any bytes are allowed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _create(fs: FileSystem, path: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    fs.replace_durably(path, pem, secret=True)
    return private


def _read(path: str, pem: bytes) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DamagedFile(path, "it does not hold a private key in PEM: restore it") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise DamagedFile(path, "its key is not an Ed25519 key: restore it")
    return private
