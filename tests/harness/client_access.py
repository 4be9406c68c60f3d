"""How a client reaches one of the `SecuredListeners`, in each client's own names.

`Access` is the choice; its methods return the settings of the Java client (Kafka's names), librdkafka,
kafka-python and aiokafka, and our programs in Go and JavaScript.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.certificates import Certificates
from tests.harness.secured_listeners import (
    MODULES,
    PASSWORD,
    PROTOCOLS,
    USER,
    SecuredListeners,
)

LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a client connects, and what it shows."""

    address: str
    protocol: str
    mechanism: str = ""
    password: str = PASSWORD
    token: str = ""
    """For OAUTHBEARER."""
    authority: Path
    """The certificates that the client trusts."""
    shown: Path | None = None
    """A PEM file with the client's certificate and its key, in the form that Java reads."""

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def java(self, token_file: Path | None = None) -> dict[str, str]:
        """Returns properties of the Java client; `token_file` gets the token."""
        found = {"bootstrap.servers": self.address, "security.protocol": self.protocol}
        if self.has_tls:
            found |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority),
            }
        if self.shown is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.shown)}
        if self.has_sasl:
            found["sasl.mechanism"] = self.mechanism
            found |= self._java_login(token_file)
        return found

    def _java_login(self, token_file: Path | None) -> dict[str, str]:
        if self.mechanism != "OAUTHBEARER":
            module = f"{MODULES}.{LOGIN_MODULES[self.mechanism]}"
            words = f'username="{USER}" password="{self.password}"'
            return {"sasl.jaas.config": f"{module} required {words};"}
        assert token_file is not None, "the Java client reads its token from a file"
        token_file.write_text(self.token)
        oauth = f"{MODULES}.oauthbearer"
        return {
            "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
        }

    def librdkafka(self) -> dict[str, Any]:
        """Returns settings of confluent-kafka, or of kcat, without the token."""
        found = {"bootstrap.servers": self.address, "security.protocol": self.protocol}
        if self.has_tls:
            found["ssl.ca.location"] = str(self.authority)
        if self.shown is not None:
            found |= {
                "ssl.certificate.location": str(self.shown),
                "ssl.key.location": str(self.shown),
            }
        if self.has_sasl:
            found["sasl.mechanism"] = self.mechanism
            if self.mechanism != "OAUTHBEARER":
                found |= {"sasl.username": USER, "sasl.password": self.password}
        return found

    def python(self, tokens: object = None) -> dict[str, Any]:
        """Returns settings of kafka-python and of aiokafka; `tokens` is the provider of the token."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.address,
            "security_protocol": self.protocol,
        }
        if self.has_tls:
            found["ssl_context"] = self._context()
        if self.has_sasl:
            found["sasl_mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                found["sasl_oauth_token_provider"] = tokens
            else:
                found |= {"sasl_plain_username": USER, "sasl_plain_password": self.password}
        return found

    def program(self) -> dict[str, str]:
        """Returns the names that our programs in Go and JavaScript take."""
        return {
            "bootstrap": self.address,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "user": USER,
            "password": self.password,
            "token": self.token,
            "ca": str(self.authority),
            **({} if self.shown is None else {"certificate": str(self.shown)}),
        }

    def _context(self) -> ssl.SSLContext:
        return Certificates.context(self.authority, self.shown)


class Accesses:
    """The right and the wrong ways to reach a broker."""

    def __init__(self, listeners: SecuredListeners) -> None:
        self._listeners = listeners
        issued = listeners.certificates
        self._own = issued.as_pkcs8(issued.client("own"))
        self._expired = issued.as_pkcs8(issued.client("expired-own", expired=True))

    def right(self, mechanism: str, listener: str = "SECURE") -> Access:
        """Returns a login that succeeds; `MUTUAL` as mechanism stands for a certificate."""
        if mechanism == "MUTUAL":
            return self._to("MUTUAL", shown=self._own)
        token = self._listeners.issuer.token(USER) if mechanism == "OAUTHBEARER" else ""
        return self._to(listener, mechanism=mechanism, token=token)

    def wrong(self) -> Mapping[str, Access]:
        """Returns the mistakes, by what is wrong."""
        stranger = self._listeners.stranger
        other_issuer = type(self._listeners.issuer)().token(USER)
        passwords = {
            f"a wrong password by {mechanism}": self._to(
                "SECURE", mechanism=mechanism, password="wrong"
            )
            for mechanism in LOGIN_MODULES
        }
        return {
            **passwords,
            "a token of another issuer": self._to(
                "SECURE", mechanism="OAUTHBEARER", token=other_issuer
            ),
            "a mechanism that is not enabled": self._to("FEW", mechanism="SCRAM-SHA-256"),
            "a broker's certificate that has expired": self._to("EXPIRED"),
            "a broker's certificate for another host": self._to("ELSEWHERE"),
            "a broker's certificate of another authority": self._to(
                "TLS", authority=stranger.authority_file
            ),
            "an expired certificate": self._to("MUTUAL", shown=self._expired),
            "no certificate": self._to("MUTUAL"),
            "no TLS, but the broker has it": self._to("TLS", protocol="PLAINTEXT"),
            "TLS, but the broker has none": self._to("PLAINTEXT", protocol="SSL"),
            "no login, but the broker wants one": self._to("SASL", protocol="PLAINTEXT"),
        }

    def _to(self, listener: str, **chosen: Any) -> Access:
        settings: dict[str, Any] = {
            "address": self._listeners.address(listener),
            "protocol": PROTOCOLS[listener],
            "authority": self._listeners.certificates.authority_file,
        }
        return Access(**settings | chosen)
