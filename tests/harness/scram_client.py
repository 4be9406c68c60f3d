"""The client's side of SCRAM, written from RFC 5802 alone: it shares no code with the broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass
class ScramClient:
    """One login. `first` and `final` return the client's messages; `is_signed` checks the last one."""

    user: str
    password: str
    hash_name: str = "sha256"
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    header: str = "n,,"
    extensions: str = ""
    _auth: bytes = field(default=b"", init=False)
    _salted: bytes = field(default=b"", init=False)

    @property
    def _bare(self) -> str:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}{self.extensions}"

    def first(self) -> bytes:
        return (self.header + self._bare).encode()

    def final(self, challenge: bytes, *, in_front: str = "") -> bytes:
        """Returns the answer to the broker's first message, with `in_front` before the nonces."""
        parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        binding = base64.b64encode(self.header.encode()).decode()
        unproven = f"c={binding},r={in_front}{parts['r']}"
        self._auth = f"{self._bare},{challenge.decode()},{unproven}".encode()
        password = self.password.encode()
        self._salted = hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)
        key = self._hmac(self._salted, b"Client Key")
        stored = hashlib.new(self.hash_name, key).digest()
        signature = self._hmac(stored, self._auth)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def is_signed(self, last: bytes) -> bool:
        """Returns whether the broker's last message proves that it knows the verifier."""
        key = self._hmac(self._salted, b"Server Key")
        expected = base64.b64encode(self._hmac(key, self._auth))
        return last == b"v=" + expected

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash_name).digest()
