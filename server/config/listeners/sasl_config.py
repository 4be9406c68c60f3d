"""The properties of SASL: which mechanisms, how long a login holds, and how tokens are validated.

`server/config/listeners/sasl_listeners.py` resolves them for each listener, with the overrides
`listener.name.<listener>.<property>` and `listener.name.<listener>.<mechanism>.<property>`.

Source: Apache Kafka, BrokerSecurityConfigs.java, SaslConfigs.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import INT, LIST, LONG, PASSWORD, STRING, prop


@dataclass(frozen=True, kw_only=True)
class SaslConfig:
    """How clients of SASL listeners authenticate."""

    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = prop(
        "sasl.enabled.mechanisms",
        LIST,
        default=("SCRAM-SHA-512", "SCRAM-SHA-256"),
        dynamic=False,
        doc="The mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."
        " GSSAPI, Kafka's default, is not served. listener.name.<name>.sasl.enabled.mechanisms sets"
        " those of one listener.",
    )
    sasl_jaas_config: str = prop(
        "sasl.jaas.config",
        PASSWORD,
        default="",
        dynamic=False,
        doc="A login module with its options, in Java's syntax: the users of PLAIN are the options"
        ' user_NAME="password" of a PlainLoginModule. Set it as'
        " listener.name.<name>.<mechanism>.sasl.jaas.config, as in Kafka, or here for all listeners."
        " PLAIN also accepts the passwords of SCRAM users.",
    )
    sasl_server_max_receive_size: int = prop(
        "sasl.server.max.receive.size",
        INT,
        default=524_288,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="The size of the largest request of a client that has not authenticated; the broker closes"
        " the connection of a larger one before it is received.",
    )
    connections_max_reauth_ms: int = prop(
        "connections.max.reauth.ms",
        LONG,
        default=0,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="A client must authenticate again within this time, or its connection is closed at its next"
        " request (KIP-368). 0: never.",
    )
    connection_failed_authentication_delay_ms: int = prop(
        "connection.failed.authentication.delay.ms",
        INT,
        default=100,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The broker answers a refused login, and closes its connection, after this time.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = prop(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        default="",
        dynamic=False,
        doc="Where the keys of the token issuer are, for OAUTHBEARER: the URL of a JSON Web Key Set,"
        " https://... or file:///...",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        default=3_600_000,
        at_least=1000,
        unit="ms",
        dynamic=False,
        doc="How often the broker reads the issuer's keys again. It also reads them when a token names"
        " an unknown key, at most once a minute.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        default=100,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The pause after the first failure to read the issuer's keys; it doubles with each failure.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        default=10_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest pause after a failure to read the issuer's keys.",
    )
    sasl_oauthbearer_expected_issuer: str = prop(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        default="",
        dynamic=False,
        doc="The claim iss that a token must have; empty: any.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = prop(
        "sasl.oauthbearer.expected.audience",
        LIST,
        default=(),
        dynamic=False,
        doc="The claim aud of a token must be one of these. If none is configured, a token that names an"
        " audience is refused, as in Kafka.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = prop(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        default=30,
        at_least=0,
        unit="s",
        dynamic=False,
        doc="How much the clocks of the broker and the issuer may differ when the times of a token are"
        " checked.",
    )
    sasl_oauthbearer_scope_claim_name: str = prop(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        default="scope",
        dynamic=False,
        doc="The claim with a token's scopes; they must be distinct, and have no other effect.",
    )
    sasl_oauthbearer_sub_claim_name: str = prop(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        default="sub",
        dynamic=False,
        doc="The claim whose value is the user's name.",
    )
