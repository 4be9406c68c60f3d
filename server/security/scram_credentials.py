"""SCRAM verifiers: what the broker keeps of a password, and how it is derived.

    salted password = PBKDF2(password, salt, iterations)
    stored key      = H(HMAC(salted password, "Client Key"))     checks a client's proof
    server key      = HMAC(salted password, "Server Key")        proves to the client that we know it

A verifier does not allow anybody to log in; it allows to try passwords, so its files are private.

Source: RFC 5802, RFC 7677; Apache Kafka, ScramFormatter.java, ScramMechanism.java.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Self

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


class ScramMechanism(enum.IntEnum):
    """A SCRAM mechanism. The values are on the wire and never change."""

    sasl_name: str
    """The mechanism's name in SASL."""
    hash_name: str
    """The name of its hash function in `hashlib`."""

    def __new__(cls, number: int, sasl_name: str = "", hash_name: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.sasl_name = sasl_name
        member.hash_name = hash_name
        return member

    SHA_256 = 1, "SCRAM-SHA-256", "sha256"
    SHA_512 = 2, "SCRAM-SHA-512", "sha512"

    @property
    def digest_bytes(self) -> int:
        """Size of the hash function's digest."""
        return hashlib.new(self.hash_name).digest_size

    @classmethod
    def of(cls, sasl_name: str) -> Self:
        """Returns the mechanism with this name in SASL. Raises ValueError."""
        for each in cls:
            if each.sasl_name == sasl_name:
                return each
        raise ValueError(f"{sasl_name} is no SCRAM mechanism")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramVerifier:
    """What the broker keeps of one user's password."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def to_json(self) -> str:
        """Returns the text that `from_json` reads."""
        binary = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = {name: base64.b64encode(value).decode() for name, value in binary.items()}
        return json.dumps({"iterations": self.iterations, **texts}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the verifier in `text`. Raises ValueError."""
        try:
            stored = json.loads(text)
            return cls(
                iterations=int(stored["iterations"]),
                salt=base64.b64decode(stored["salt"], validate=True),
                stored_key=base64.b64decode(stored["stored_key"], validate=True),
                server_key=base64.b64decode(stored["server_key"], validate=True),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a SCRAM verifier: {error}") from None


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Derive the salted password. Takes milliseconds: do not call it on the event loop.

    As in Kafka, the password is not normalized.
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def verifier_of(
    mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> ScramVerifier:
    """Returns the verifier of a salted password."""
    client_key = keyed_hash(mechanism, salted, b"Client Key")
    return ScramVerifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=keyed_hash(mechanism, salted, b"Server Key"),
    )


def is_password_of(mechanism: ScramMechanism, password: str, verifier: ScramVerifier) -> bool:
    """Returns whether a password is the verifier's. Takes milliseconds: not for the event loop."""
    salted = salted_password(mechanism, password, verifier.salt, verifier.iterations)
    derived = verifier_of(
        mechanism, salted, salt=verifier.salt, iterations=verifier.iterations
    ).stored_key
    return hmac.compare_digest(derived, verifier.stored_key)


def keyed_hash(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """Returns the HMAC of a message with the mechanism's hash function."""
    return hmac.digest(key, message, mechanism.hash_name)
