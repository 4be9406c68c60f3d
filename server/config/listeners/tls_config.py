"""The properties of TLS: a listener's certificate, the clients it trusts, its protocols and ciphers.

Each may be set for one listener with `listener.name.<name>.` before it (`listeners/overrides.py`).
`server/security/tls_context.py` makes an `ssl.SSLContext` of them.

Source: Apache Kafka, SslConfigs.java, BrokerSecurityConfigs.java; KIP-651 (PEM), KIP-371 (rules).
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import (
    INT,
    LIST,
    PASSWORD,
    STRING,
    ByListener,
    prop,
)

STORE_TYPES = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH = ("required", "requested", "none")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_STORE_TYPE = (
    " JKS, PKCS12 or PEM. The broker recognizes the kind by the content of the file; an inline store"
    " is PEM."
)


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """What a listener with TLS needs. The stores are read again while the broker runs."""

    __slots__ = ()

    ssl_keystore_type: str = prop(
        "ssl.keystore.type",
        STRING,
        default="JKS",
        choices=STORE_TYPES,
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The kind of the key store:" + _STORE_TYPE,
    )
    ssl_keystore_location: str = prop(
        "ssl.keystore.location",
        STRING,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The file with the broker's private key and its certificate chain: PEM, PKCS12 or JKS. When"
        " it changes, new connections get the new certificate.",
    )
    ssl_keystore_password: str = prop(
        "ssl.keystore.password",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The password of a key store that is PKCS12 or JKS.",
    )
    ssl_key_password: str = prop(
        "ssl.key.password",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The password of the private key: of an encrypted PEM key, or of a JKS key whose password is"
        " not that of its store.",
    )
    ssl_keystore_certificate_chain: str = prop(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The broker's certificate chain as PEM text, its own certificate first, instead of a file.",
    )
    ssl_keystore_key: str = prop(
        "ssl.keystore.key",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The broker's private key as PEM text (PKCS#8), instead of a file.",
    )
    ssl_truststore_type: str = prop(
        "ssl.truststore.type",
        STRING,
        default="JKS",
        choices=STORE_TYPES,
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The kind of the trust store:" + _STORE_TYPE,
    )
    ssl_truststore_location: str = prop(
        "ssl.truststore.location",
        STRING,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The file with the certificates that sign those of clients. Required if clients are asked"
        " for one: unlike Kafka, the broker does not trust the authorities of a JVM instead.",
    )
    ssl_truststore_password: str = prop(
        "ssl.truststore.password",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The password of a trust store that is PKCS12 or JKS.",
    )
    ssl_truststore_certificates: str = prop(
        "ssl.truststore.certificates",
        PASSWORD,
        default="",
        dynamic=False,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The trusted certificates as PEM text, instead of a file.",
    )
    ssl_client_auth: str = prop(
        "ssl.client.auth",
        STRING,
        default="none",
        choices=CLIENT_AUTH,
        dynamic=False,
        by_listener=ByListener.AT_START,
        doc="Whether clients must show a certificate: required, requested (they may) or none. For a"
        " SASL_SSL listener only the value of that listener counts (KIP-684).",
    )
    ssl_enabled_protocols: tuple[str, ...] = prop(
        "ssl.enabled.protocols",
        LIST,
        default=("TLSv1.2", "TLSv1.3"),
        choices=TLS_VERSIONS,
        dynamic=False,
        by_listener=ByListener.AT_START,
        doc="The versions of TLS that a listener accepts. TLSv1 and TLSv1.1 are not offered (RFC 8996).",
    )
    ssl_cipher_suites: tuple[str, ...] = prop(
        "ssl.cipher.suites",
        LIST,
        default=(),
        dynamic=False,
        by_listener=ByListener.AT_START,
        doc="The cipher suites that a listener accepts, by their IANA names; empty: those that OpenSSL"
        " regards as secure. The suites of TLS 1.3 are on together; off, if the list has none of them.",
    )
    ssl_principal_mapping_rules: str = prop(
        "ssl.principal.mapping.rules",
        STRING,
        default="DEFAULT",
        dynamic=False,
        by_listener=ByListener.AT_START,
        doc="Rules that make a user's name of the subject of a client's certificate, the first that"
        " matches: DEFAULT (the whole subject) or RULE:pattern/replacement/ with L (to lower case) or U"
        " behind it.",
    )
    ssl_handshake_timeout_ms: int = prop(
        "ssl.handshake.timeout.ms",
        INT,
        default=10_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        by_listener=ByListener.AT_START,
        doc="The broker closes a connection whose TLS handshake takes longer. Specific to Kompakt.",
    )
    ssl_store_check_interval_ms: int = prop(
        "ssl.store.check.interval.ms",
        INT,
        default=10_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often the broker looks whether the files of key stores and trust stores have changed."
        " Specific to Kompakt.",
    )

    @property
    def store_files(self) -> tuple[str, ...]:
        """The files that the stores are read from."""
        files = (self.ssl_keystore_location, self.ssl_truststore_location)
        return tuple(file for file in files if file)
