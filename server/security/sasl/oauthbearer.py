"""OAUTHBEARER: the client sends a token of an issuer that the broker trusts.

    client  n,[a=authorization id],^Aauth=Bearer TOKEN[^Aextension=value]^A^A        (^A is byte 1)
    broker  nothing: success, or {"status":"invalid_token"}
    client  ^A, after which the login is refused

Extensions are ignored, as by Kafka's validator.

Source: RFC 7628; Apache Kafka, OAuthBearerSaslServer.java, OAuthBearerClientInitialResponse.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from server.security.sasl.exchange import (
    Challenge,
    Failure,
    Outcome,
    Step,
    Success,
    TokenFacts,
    TokenQuestion,
)

INVALID_TOKEN = '{"status":"invalid_token"}'  # noqa: S105 - it is an answer
_CONFIRMATION = b"\x01"
_MESSAGE = re.compile(
    r"n,(?:a=(?P<id>(?:[^=,\x00]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_~+/.A-Za-z0-9]+=*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse:
    """The client's only message."""

    authorization_id: str
    token: str = field(repr=False)


def parse_response(message: bytes) -> ClientResponse | None:
    """Returns the client's message; None if it is malformed."""
    found = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        return None
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        return None
    name = (found["id"] or "").replace("=2C", ",").replace("=3D", "=")
    return ClientResponse(authorization_id=name, token=auth["token"])


class OAuthExchange:
    """A login by OAUTHBEARER."""

    __slots__ = ("_is_invalid", "_is_over", "claimed_user")

    def __init__(self) -> None:
        self._is_over = False
        self._is_invalid = False
        """Whether the client must confirm that it got the error."""
        self.claimed_user = ""

    def step(self, token: bytes) -> Step:
        """Take the client's message or, after an error, its confirmation."""
        if self._is_invalid:
            self._is_invalid = False
            return Failure(INVALID_TOKEN) if token == _CONFIRMATION else Failure()
        if self._is_over:
            return Failure()
        self._is_over = True
        response = parse_response(token)
        if response is None:
            return Failure()
        return TokenQuestion(
            token=response.token, then=lambda facts: self._outcome(response, facts)
        )

    def _outcome(self, response: ClientResponse, facts: TokenFacts | None) -> Outcome:
        if facts is None:
            self._is_invalid = True
            return Challenge(INVALID_TOKEN.encode())
        self.claimed_user = facts.subject
        if response.authorization_id not in ("", facts.subject):
            return Failure(
                f"Authentication failed: Client requested an authorization id"
                f" ({response.authorization_id}) that is different from the token's principal name"
                f" ({facts.subject})"
            )
        return Success(user=facts.subject, expires_ms=facts.expires_ms)
