"""The key with which a log directory signs what it certifies: Ed25519, `signing.key`.

    signing.key := the private key as PKCS #8 in PEM: what `openssl genpkey -algorithm ed25519` writes

The file has mode 0600 and is made once, durably; it is never replaced. A signature proves that
a statement was made by somebody who could read the file. The public key, 32 bytes, is shown as 64
hexadecimal digits; whoever checks signatures must get it over a way that he trusts.

`cryptography` is imported when it is needed: a broker that signs nothing does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.files.errors import DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import SIGNING_KEY, join

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class SigningKey:
    """The key of one log directory."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()
        """The public key, 64 hexadecimal digits."""

    def sign(self, statement: bytes) -> str:
        """Returns the signature of a statement, 128 hexadecimal digits."""
        return self._private.sign(statement).hex()


def open_signing_key(fs: FileSystem, directory: str) -> SigningKey:
    """Returns the key of a log directory; makes one if it has none.

    Raises:
        DamagedFile: the file holds no such key. Restore it; a new one cannot sign for the old one.
        DiskError: it cannot be read, or a new one cannot be written.
    """
    key = read_signing_key(fs, directory)
    return _new_key(fs, directory) if key is None else key


def read_signing_key(fs: FileSystem, directory: str) -> SigningKey | None:
    """Returns the key of a log directory, None if it has none. Raises as `open_signing_key`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = join(directory, SIGNING_KEY)
    try:
        data = fs.read_bytes(path)
    except MissingFile:
        return None
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DamagedFile(path, "it holds no private key in PEM: restore it") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise DamagedFile(path, "its key is not an Ed25519 key: restore it")
    return SigningKey(private)


def _new_key(fs: FileSystem, directory: str) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = Ed25519PrivateKey.generate()
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    fs.replace_durably(join(directory, SIGNING_KEY), data, secret=True)
    return SigningKey(private)


def is_signed_by(public: str, statement: bytes, signature: str) -> bool:
    """Returns whether the owner of a public key has signed a statement. Pure.

    Args:
        public, signature: hexadecimal digits; any other text signs nothing.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), statement)
    except (ValueError, InvalidSignature):
        return False
    return True
