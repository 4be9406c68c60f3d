"""Makes the `ssl.SSLContext` of a listener from its properties. Blocks: it reads files.

    ssl.keystore.*      the key and its chain     -> load_cert_chain, through a file in memory (memfd)
    ssl.truststore.*    whom to trust             -> load_verify_locations
    ssl.client.auth, ssl.enabled.protocols, ssl.cipher.suites

A context is made from the start each time: a changed store gets a new one, and the old one stays in
use if the new store cannot be used.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from server.config.config import BrokerConfig
from server.config.listeners.overrides import prefix_of
from server.security.cipher_names import is_tls13_suite, openssl_name
from server.security.key_stores import (
    KeyStore,
    StoreError,
    pem_key_store,
    read_key_store,
    read_trust_store,
)
from server.security.own_key import load_own_key
from storage.formats.config_property import ConfigError

T = TypeVar("T")

STORE_BYTES_MAX = 16 << 20
"""A larger file is no store; reading it would only take memory."""
VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContext:
    """A context for the handshakes of a listener, and when its certificates expire."""

    context: ssl.SSLContext
    expires_at: datetime
    """When the first certificate of the chain that is sent to clients expires, in UTC."""


def client_auth_of(config: BrokerConfig, listener: str, *, has_sasl: bool) -> str:
    """Returns `ssl.client.auth` of a listener.

    For a SASL listener only the listener's own value counts, as in Kafka (KIP-684).
    """
    own = prefix_of(listener) + "ssl.client.auth"
    if has_sasl and own not in config.listener_texts:
        return "none"
    return config.for_listener(listener).ssl_client_auth


def make_context(config: BrokerConfig, listener: str, *, has_sasl: bool) -> TlsContext:
    """Returns the context of a listener.

    Raises:
        ConfigError: a store cannot be read or used, or a property is wrong. The text is one sentence
            that names the property.
    """
    own = config.for_listener(listener)
    name = _Names(config, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = AcceptedSocket
    store = _key_store(own, name)
    _load_key(context, store, name)
    _set_versions(context, own, name)
    _set_ciphers(context, own, name)
    auth = client_auth_of(config, listener, has_sasl=has_sasl)
    if auth != "none":
        _load_trusted(context, _trusted(own, name))
    context.verify_mode = VERIFY[auth]
    return TlsContext(context=context, expires_at=store.expires_at)


class AcceptedSocket(ssl.SSLSocket):
    """The TLS socket of an accepted connection, which closes if the client has already gone.

    `wrap_socket` asks a new socket for its peer. If it has none, `SSLSocket` raises and leaves the
    descriptor to the garbage collector.
    """

    def getpeername(self) -> Any:
        """Returns the address of the client. Raises OSError, and closes the socket, if it has gone."""
        try:
            return super().getpeername()
        except OSError:
            self.close()
            raise ConnectionResetError("the client closed the connection") from None


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of properties as the operator wrote them, with the listener's prefix or without it."""

    config: BrokerConfig
    listener: str

    def __call__(self, name: str) -> str:
        full = prefix_of(self.listener) + name
        return full if full in self.config.listener_texts else name


def _key_store(own: BrokerConfig, name: _Names) -> KeyStore:
    inline = bool(own.ssl_keystore_key or own.ssl_keystore_certificate_chain)
    if own.ssl_keystore_location and inline:
        raise ConfigError(
            f"{name('ssl.keystore.location')}: set either this file or ssl.keystore.key and"
            " ssl.keystore.certificate.chain, not both"
        )
    if own.ssl_keystore_location:
        content = _content(name("ssl.keystore.location"), own.ssl_keystore_location)
        return _said(
            f"{name('ssl.keystore.location')}: {own.ssl_keystore_location}",
            lambda: read_key_store(
                content,
                store_password=own.ssl_keystore_password,
                key_password=own.ssl_key_password,
            ),
        )
    return _inline_key_store(own, name)


def _inline_key_store(own: BrokerConfig, name: _Names) -> KeyStore:
    if not own.ssl_keystore_key or not own.ssl_keystore_certificate_chain:
        missing = (
            "ssl.keystore.key"
            if own.ssl_keystore_certificate_chain
            else (
                "ssl.keystore.certificate.chain"
                if own.ssl_keystore_key
                else "ssl.keystore.location"
            )
        )
        raise ConfigError(
            f"{missing}: listener {name.listener} has TLS and needs a certificate: set it for all"
            f" listeners, or as {prefix_of(name.listener)}{missing}"
        )
    return _said(
        name("ssl.keystore.key"),
        lambda: pem_key_store(
            _pem(own.ssl_keystore_key),
            _pem(own.ssl_keystore_certificate_chain),
            own.ssl_key_password,
        ),
    )


def _trusted(own: BrokerConfig, name: _Names) -> tuple[x509.Certificate, ...]:
    if own.ssl_truststore_location and own.ssl_truststore_certificates:
        raise ConfigError(
            f"{name('ssl.truststore.location')}: set either this file or"
            " ssl.truststore.certificates, not both"
        )
    if own.ssl_truststore_location:
        content = _content(name("ssl.truststore.location"), own.ssl_truststore_location)
        return _said(
            f"{name('ssl.truststore.location')}: {own.ssl_truststore_location}",
            lambda: read_trust_store(content, password=own.ssl_truststore_password),
        )
    if own.ssl_truststore_certificates:
        return _said(
            name("ssl.truststore.certificates"),
            lambda: read_trust_store(_pem(own.ssl_truststore_certificates), password=""),
        )
    raise ConfigError(
        f"{name('ssl.client.auth')}: clients of {name.listener} must show certificates, and it trusts"
        " none: set ssl.truststore.location or ssl.truststore.certificates"
    )


def _content(name: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror or error}") from None
    if len(content) > STORE_BYTES_MAX:
        raise ConfigError(f"{name}: {path} is too large to be a store")
    return content


def _said(subject: str, read: Callable[[], T]) -> T:
    """Returns what `read` returns; a StoreError becomes a ConfigError about `subject`."""
    try:
        return read()
    except StoreError as error:
        raise ConfigError(f"{subject}: {error}") from None


def _pem(text: str) -> bytes:
    r"""Returns an inline PEM text. A properties file may hold it in one line, with `\n` in it."""
    return text.replace("\\n", "\n").encode()


def _load_key(context: ssl.SSLContext, store: KeyStore, name: _Names) -> None:
    try:
        load_own_key(context, store.pem())
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name('ssl.keystore.location')}: OpenSSL refuses the certificate: {error.reason or error}"
        ) from None


def _load_trusted(context: ssl.SSLContext, trusted: tuple[x509.Certificate, ...]) -> None:
    context.load_verify_locations(cadata=b"".join(e.public_bytes(Encoding.DER) for e in trusted))
    # As in Java, each certificate of the trust store is an anchor, also one that another has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _set_versions(context: ssl.SSLContext, own: BrokerConfig, name: _Names) -> None:
    """Set the versions that are enabled and have one of the cipher suites."""
    suites = own.ssl_cipher_suites
    versions = [
        version
        for each, version in VERSIONS.items()
        if each in own.ssl_enabled_protocols
        and (not suites or any(is_tls13_suite(s) == (each == "TLSv1.3") for s in suites))
    ]
    if not versions:
        raise ConfigError(
            f"{name('ssl.enabled.protocols')}: none of these versions of TLS has a cipher suite of"
            " ssl.cipher.suites; enable TLSv1.2, TLSv1.3 or both"
        )
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_ciphers(context: ssl.SSLContext, own: BrokerConfig, name: _Names) -> None:
    """Set the cipher suites before TLS 1.3, whose own suites cannot be chosen one by one."""
    older = [suite for suite in own.ssl_cipher_suites if not is_tls13_suite(suite)]
    for suite in older:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(
                f"{name('ssl.cipher.suites')}: OpenSSL has no cipher suite {suite}"
            ) from None
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))
