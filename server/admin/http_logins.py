"""Finds out who sends an HTTP request: by a password, by a token, or by a certificate.

    Authorization: Basic BASE64(user:password)     a user as for PLAIN         RFC 7617
    Authorization: Bearer TOKEN                    a token as for OAUTHBEARER  RFC 6750
    a client certificate                           ssl.principal.mapping.rules

A request with credentials is refused if these are wrong, whatever certificate it shows. Where logins are
enabled, a request without any is refused; where only certificates are asked for, it is anonymous.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.config.listeners.sasl_listeners import OAUTHBEARER, PLAIN, SaslListener
from server.security.principal import ANONYMOUS, Principal, user

if TYPE_CHECKING:
    import ssl

    from server.security.sasl.logins import Logins
    from server.security.tls_listener import TlsListener

BASIC, BEARER = "basic", "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request shows."""

    authorization: str | None = field(repr=False)
    """The Authorization header."""
    certificate: bytes | None = field(default=None, repr=False)
    """The client's certificate, DER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRefused:
    """Why a request's client is not known, for the client and for the audit log."""

    reason: str
    scheme: str = ""
    """Empty if the request has no credentials."""
    user: str = ""
    """The name that the client claims."""


def certificate_of(ssl_object: ssl.SSLObject | None) -> bytes | None:
    """Returns the certificate that the client of a connection has shown."""
    return None if ssl_object is None else ssl_object.getpeercert(binary_form=True)


def parse_basic(encoded: str) -> tuple[str, str] | None:
    """Returns user and password; None if they are malformed. Pure."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon and name and password else None


class HttpLogins:
    """Logs in the clients of the HTTP endpoint."""

    __slots__ = ("_accepted", "_logins", "_tls")

    def __init__(
        self, accepted: SaslListener | None, logins: Logins, tls: TlsListener | None
    ) -> None:
        """
        Args:
            accepted: users and tokens that the endpoint accepts; None if it has only certificates.
        """
        self._accepted = accepted
        self._logins = logins
        self._tls = tls

    @property
    def challenges(self) -> list[str]:
        """The values of WWW-Authenticate in a refusal."""
        mechanisms = () if self._accepted is None else self._accepted.mechanisms
        shown = {
            PLAIN: 'Basic realm="kompakt", charset="UTF-8"',
            OAUTHBEARER: 'Bearer realm="kompakt"',
        }
        return [text for mechanism, text in shown.items() if mechanism in mechanisms]

    @property
    def failure_delay_s(self) -> float:
        """How long the answer to wrong credentials is held back."""
        return self._logins.failure_delay_s

    async def principal_of(self, shown: Credentials) -> Principal | LoginRefused:
        """Returns who sends a request, or why that is not known."""
        scheme, _, rest = (shown.authorization or "").partition(" ")
        accepted = self._accepted
        if accepted is not None and scheme.lower() == BASIC and PLAIN in accepted.mechanisms:
            return await self._by_password(accepted, rest.strip())
        if accepted is not None and scheme.lower() == BEARER and OAUTHBEARER in accepted.mechanisms:
            return await self._by_token(accepted, rest.strip())
        if scheme:
            enabled = (
                " or ".join(each.partition(" ")[0] for each in self.challenges) or "certificates"
            )
            return LoginRefused(reason=f"log in by {enabled} here", scheme=scheme[:16])
        return self._by_certificate(shown.certificate)

    async def _by_password(self, accepted: SaslListener, encoded: str) -> Principal | LoginRefused:
        parsed = parse_basic(encoded)
        if parsed is None:
            return LoginRefused(reason="Authorization: Basic is malformed", scheme=BASIC)
        name, password = parsed
        if await self._logins.is_password_right(accepted, name, password):
            return user(name)
        return LoginRefused(reason="wrong user name or password", scheme=BASIC, user=name)

    async def _by_token(self, accepted: SaslListener, token: str) -> Principal | LoginRefused:
        facts = await self._logins.facts_of(accepted, token)
        if facts is None:
            return LoginRefused(reason="the token is not valid", scheme=BEARER)
        return user(facts.subject)

    def _by_certificate(self, certificate: bytes | None) -> Principal | LoginRefused:
        principal = ANONYMOUS
        if self._tls is not None and certificate is not None:
            try:
                principal = self._tls.principal_of(certificate)
            except ValueError as error:
                return LoginRefused(
                    reason=f"the certificate gives no name: {error}", scheme="certificate"
                )
        if principal == ANONYMOUS and self._accepted is not None:
            return LoginRefused(reason="log in: send Authorization")
        return principal
