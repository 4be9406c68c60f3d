"""SCRAM: the client proves that it knows a password, and the broker that it knows its verifier.

    client  n,[a=authorization id],n=user,r=client nonce[,extensions]
    broker  r=client nonce + broker nonce,s=salt,i=iterations
    client  c=base64 of "n,[a=...],",r=both nonces[,extensions],p=proof
    broker  v=signature

An unknown user gets a salt too (`ScramStore.verifier_or_decoy`) and fails in the second step, so the
exchange does not show who exists. Channel binding is not served, as in Kafka; delegation tokens
(the extension `tokenauth=true`) are refused.

Source: RFC 5802, RFC 7677; Apache Kafka, ScramSaslServer.java, ScramMessages.java.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass

from server.security.sasl.exchange import Challenge, Failure, Step, Success
from server.security.scram_credentials import ScramMechanism, ScramVerifier, keyed_hash

_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]+)*"
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
TOKEN_EXTENSION = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)
OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The client's first message."""

    header: str
    bare: str
    """The message without its header, as it was sent: both sides sign it."""
    user: str
    authorization_id: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    """The client's second message."""

    unproven: str
    """The message without its proof, as it was sent."""
    binding: bytes
    nonce: str
    proof: bytes


def parse_client_first(token: bytes) -> ClientFirst | None:
    """Returns the first message; None if it is malformed or names a delegation token."""
    found = _CLIENT_FIRST.fullmatch(_text(token))
    if found is None or TOKEN_EXTENSION.search(found["extensions"]):
        return None
    return ClientFirst(
        header=found["header"],
        bare=found["bare"],
        user=_unescaped(found["name"]),
        authorization_id=_unescaped(found["id"] or ""),
        nonce=found["nonce"],
    )


def parse_client_final(token: bytes) -> ClientFinal | None:
    """Returns the second message; None if it is malformed."""
    found = _CLIENT_FINAL.fullmatch(_text(token))
    if found is None:
        return None
    binding, proof = _decoded(found["binding"]), _decoded(found["proof"])
    if binding is None or proof is None:
        return None
    return ClientFinal(
        unproven=found["unproven"], binding=binding, nonce=found["nonce"], proof=proof
    )


class ScramExchange:
    """A login by SCRAM."""

    __slots__ = (
        "_first", "_is_over", "_mechanism", "_nonce", "_server_first", "_verifier", "_verifier_for",
        "claimed_user",
    )  # fmt: skip

    def __init__(
        self,
        mechanism: ScramMechanism,
        verifier_for: Callable[[ScramMechanism, str], ScramVerifier],
        *,
        nonce: str,
    ) -> None:
        """
        Args:
            verifier_for: returns a user's verifier, or for an unknown user one that no password has.
            nonce: the broker's nonce, random, of printable characters without commas.
        """
        # Constant after construction
        self._mechanism = mechanism
        self._verifier_for = verifier_for
        self._nonce = nonce
        # State
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._verifier: ScramVerifier | None = None
        self._is_over = False
        self.claimed_user = ""

    def step(self, token: bytes) -> Step:
        """Take the client's first or second message."""
        if self._is_over:
            return Failure()
        if self._first is None:
            return self._begin(parse_client_first(token))
        self._is_over = True
        return self._finish(self._first, parse_client_final(token))

    def _begin(self, first: ClientFirst | None) -> Step:
        if first is None:
            self._is_over = True
            return Failure()
        self.claimed_user = first.user
        if first.authorization_id not in ("", first.user):
            self._is_over = True
            return Failure(OTHER_USER)
        self._first = first
        self._verifier = verifier = self._verifier_for(self._mechanism, first.user)
        salt = base64.b64encode(verifier.salt).decode()
        self._server_first = f"r={first.nonce}{self._nonce},s={salt},i={verifier.iterations}"
        return Challenge(self._server_first.encode())

    def _finish(self, first: ClientFirst, final: ClientFinal | None) -> Step:
        verifier, self._verifier = self._verifier, None
        assert verifier is not None, "the first message has set it"
        # librdkafka before 2.6.1 puts its own nonce in front of both, once more. Kafka 3.8 accepts
        # that, Kafka 4 does not.
        both = first.nonce + self._nonce
        if final is None or final.nonce not in (both, first.nonce + both):
            return Failure()
        if final.binding != first.header.encode():
            return Failure()
        signed = f"{first.bare},{self._server_first},{final.unproven}".encode()
        if not self._is_proof(final.proof, verifier, signed):
            return Failure()
        signature = keyed_hash(self._mechanism, verifier.server_key, signed)
        return Success(user=first.user, token=b"v=" + base64.b64encode(signature))

    def _is_proof(self, proof: bytes, verifier: ScramVerifier, signed: bytes) -> bool:
        signature = keyed_hash(self._mechanism, verifier.stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        return hmac.compare_digest(stored_key, verifier.stored_key)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes | None:
    """Returns the bytes of a text in base64; None if no encoder writes them in this way."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return decoded if base64.b64encode(decoded).decode() == text else None


def _text(token: bytes) -> str:
    """Returns the text of a token; bytes that are not UTF-8 become NUL, which no message may have."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "\0"
