"""How a client reaches a secured broker: over TLS or not, and as which user.

Source: Apache Kafka, CommonClientConfigs.java, SslConfigs.java, SaslConfigs.java (names and defaults).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.client.errors import Misconfigured

if TYPE_CHECKING:
    from server.client.client_properties import TlsFiles

TOKENS = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKENS)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A SASL mechanism with the user's name and password, or with the file of a token."""

    mechanism: str
    user: str = ""
    password: str = ""
    token_file: Path | None = None
    """For OAUTHBEARER, whose token names the user."""

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.token_file or self.user})"

    def __str__(self) -> str:
        """Returns a text for errors."""
        who = (
            f"as {self.user}" if self.token_file is None else f"with the token in {self.token_file}"
        )
        return f"login {who} by {self.mechanism}"

    def kafka_python_settings(self) -> dict[str, Any]:
        """Returns the settings of kafka-python's clients."""
        settings: dict[str, Any] = {"sasl_mechanism": self.mechanism}
        if self.token_file is None:
            return settings | {
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        # kafka-python takes long to import.
        from server.client.token_provider import TokenProvider

        return settings | {"sasl_oauth_token_provider": TokenProvider(self.token_file)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to connect: over TLS or not, and as which user."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None

    @property
    def security_protocol(self) -> str:
        """Kafka's name for this kind of connection."""
        if self.login is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"

    def kafka_python_settings(self) -> dict[str, Any]:
        """Returns the settings of kafka-python's clients."""
        settings: dict[str, Any] = {"security_protocol": self.security_protocol}
        if self.tls is not None:
            settings["ssl_context"] = self.tls
        if self.login is not None:
            settings |= self.login.kafka_python_settings()
        return settings


def access_of(properties: Mapping[str, str]) -> Access:
    """Returns the access that client properties describe. Raises Misconfigured."""
    from server.client.client_properties import tls_files

    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise Misconfigured(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    tls = tls_context(tls_files(properties)) if protocol.endswith("SSL") else None
    login = _login(properties) if protocol.startswith("SASL") else None
    return Access(tls=tls, login=login)


def _login(properties: Mapping[str, str]) -> Login:
    from server.client.client_properties import login_of

    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise Misconfigured(
            f"sasl.mechanism={mechanism or '(not set)'}: kompakt logs in by {', '.join(MECHANISMS)}",
        )
    if mechanism == TOKENS:
        return _token_login(properties)
    user, password = login_of(properties.get("sasl.jaas.config", ""))
    return Login(mechanism=mechanism, user=user, password=password)


def _token_login(properties: Mapping[str, str]) -> Login:
    from server.client.token_file import read_token, token_path

    path = token_path(properties)
    read_token(path)
    return Login(mechanism=TOKENS, token_file=path)


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of a client. Raises Misconfigured."""
    from server.security.own_key import load_own_key

    try:
        context = ssl.create_default_context(cafile=files.ca_file, cadata=files.ca_text)
        if files.certificate_file is not None:
            context.load_cert_chain(files.certificate_file, files.key_file, files.key_password)
        if files.own_pem is not None:
            load_own_key(context, files.own_pem)
    except OSError as error:
        named = [files.ca_file, files.certificate_file, files.key_file]
        where = ", ".join(name for name in named if name is not None)
        why = (
            "it is no PEM file that can be used"
            if isinstance(error, ssl.SSLError)
            else error.strerror
        )
        raise Misconfigured(f"TLS: {where or 'ssl.truststore.certificates'}: {why}") from error
    context.check_hostname = files.checks_host
    return context
