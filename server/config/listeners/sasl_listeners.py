"""What SASL listeners accept: mechanisms, users of PLAIN, and times, resolved from the properties.

    listener.name.<listener>.<mechanism>.<property>     the strongest; both in lower case
    listener.name.<listener>.<property>
    <mechanism>.<property>
    <property>

Source: Apache Kafka, ListenerName.java, JaasContext.java, ChannelBuilders.java `channelBuilderConfigs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.config.listeners.addresses import HTTP, Listener
from server.config.listeners.jaas import JaasError, LoginModule, parse_jaas
from server.config.listeners.overrides import PREFIX, prefix_of
from server.config.listeners.sasl_config import SaslConfig
from storage.formats.config_property import ConfigError, Value, properties_of

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
MECHANISM_OF_SCHEME = {"basic": PLAIN, "bearer": OAUTHBEARER}
"""Whose users or tokens a scheme of HTTP accepts."""
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
KEYS_SCHEMES = ("file:", "http:", "https:")
JAAS = "sasl.jaas.config"
PLAIN_MODULE = "PlainLoginModule"
USER_OPTION = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthRules:
    """Which tokens a listener accepts."""

    keys_url: str
    """Where the issuer's keys are."""
    issuer: str
    """The only issuer; empty: any whose key is among the keys."""
    audiences: tuple[str, ...]
    """One of these must be in the token; empty: the token must name none."""
    clock_skew_s: int
    scope_claim: str
    subject_claim: str
    refresh_ms: int
    """How often the keys are fetched again."""
    retry_ms: int
    """The first pause after a failed fetch; it doubles."""
    retry_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """What one SASL listener accepts."""

    name: str
    mechanisms: tuple[str, ...]
    """In the order of the property; a refused client gets them."""
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The passwords of the users that the configuration declares, by name."""
    session_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, after how long a client must authenticate again; without an entry: never."""
    oauth: OAuthRules | None = None
    """Set if OAUTHBEARER is enabled."""
    receive_bytes_max: int = 524_288
    """The size of the largest request before a client has authenticated."""


def is_sasl_property(name: str) -> bool:
    """Returns whether a text of the configuration is one that this module reads by listener or
    mechanism."""
    own = {each.name for each in properties_of(SaslConfig).values()}
    return any(name.endswith(f".{each}") for each in own) and _has_known_prefix(name)


def resolve_sasl_listeners(
    listeners: Iterable[Listener], texts: Mapping[str, str]
) -> dict[str, SaslListener]:
    """Returns what each SASL listener accepts, by its name.

    Args:
        texts: the configured texts, by property.

    Raises:
        ConfigError: a mechanism is not served, or a text is malformed. No message holds a password.
    """
    return {
        each.name: _resolve(each.name, _mechanisms(each.name, texts), texts)
        for each in listeners
        if each.security_protocol.has_sasl
    }


def resolve_http_logins(schemes: Sequence[str], texts: Mapping[str, str]) -> SaslListener | None:
    """Returns which users and tokens the HTTP endpoint accepts; None if it has no logins.

    Args:
        schemes: `http.authentication`.
        texts: as above.

    Raises:
        ConfigError: a text is malformed. No message holds a password.
    """
    mechanisms = tuple(MECHANISM_OF_SCHEME[each] for each in schemes)
    return _resolve(HTTP, mechanisms, texts) if mechanisms else None


def _resolve(listener: str, mechanisms: tuple[str, ...], texts: Mapping[str, str]) -> SaslListener:
    limit = _text("sasl.server.max.receive.size", listener, "", texts)
    return SaslListener(
        name=listener,
        mechanisms=mechanisms,
        plain_users=_plain_users(listener, texts) if PLAIN in mechanisms else {},
        oauth=_oauth_rules(listener, texts) if OAUTHBEARER in mechanisms else None,
        session_ms={
            each: ms for each in mechanisms if (ms := _session_ms(listener, each, texts)) > 0
        },
        receive_bytes_max=_number("sasl.server.max.receive.size", limit),
    )


def _mechanisms(listener: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    name, text = _text("sasl.enabled.mechanisms", listener, "", texts)
    declared = properties_of(SaslConfig)["sasl_enabled_mechanisms"]
    parsed = declared.default if text is None else declared.parse(text)
    assert isinstance(parsed, tuple)
    unknown = [each for each in parsed if each not in MECHANISMS]
    if unknown or not parsed:
        what = f"{unknown[0]} is not served" if unknown else "no mechanism is enabled"
        raise ConfigError(f"{name}: {what}; use some of {', '.join(MECHANISMS)}")
    return parsed


def _plain_users(listener: str, texts: Mapping[str, str]) -> dict[str, str]:
    name, text = _text(JAAS, listener, PLAIN, texts)
    if not text:
        return {}
    module = _module(name, text)
    if module.short_name != PLAIN_MODULE:
        if name == JAAS:
            return {}
        raise ConfigError(f"{name}: expected a {PLAIN_MODULE}, but got {module.short_name}")
    return {
        option.removeprefix(USER_OPTION): password
        for option, password in module.options.items()
        if option.startswith(USER_OPTION)
    }


def _oauth_rules(listener: str, texts: Mapping[str, str]) -> OAuthRules:
    url = str(_value(KEYS_URL, listener, texts))
    if not url.lower().startswith(KEYS_SCHEMES):
        schemes = ", ".join(KEYS_SCHEMES)
        raise ConfigError(f"{KEYS_URL}: OAUTHBEARER needs the URL of the issuer's keys ({schemes})")

    def of(name: str) -> Any:
        return _value(f"sasl.oauthbearer.{name}", listener, texts)

    return OAuthRules(
        keys_url=url,
        issuer=of("expected.issuer"),
        audiences=of("expected.audience"),
        clock_skew_s=of("clock.skew.seconds"),
        scope_claim=of("scope.claim.name"),
        subject_claim=of("sub.claim.name"),
        refresh_ms=of("jwks.endpoint.refresh.ms"),
        retry_ms=of("jwks.endpoint.retry.backoff.ms"),
        retry_max_ms=of("jwks.endpoint.retry.backoff.max.ms"),
    )


def _value(name: str, listener: str, texts: Mapping[str, str]) -> Value:
    """Returns the value of a property for OAUTHBEARER."""
    return _parsed(name, _text(name, listener, OAUTHBEARER, texts))


def _module(name: str, text: str) -> LoginModule:
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{name}: {error}") from None


def _session_ms(listener: str, mechanism: str, texts: Mapping[str, str]) -> int:
    name = "connections.max.reauth.ms"
    return _number(name, _text(name, listener, mechanism, texts))


def _number(declared_name: str, found: tuple[str, str | None]) -> int:
    value = _parsed(declared_name, found)
    assert isinstance(value, int)
    return value


def _parsed(declared_name: str, found: tuple[str, str | None]) -> Value:
    (declared,) = [
        each for each in properties_of(SaslConfig).values() if each.name == declared_name
    ]
    name, text = found
    try:
        return declared.default if text is None else declared.parse(text)
    except ConfigError as error:
        raise ConfigError(str(error).replace(declared_name, name)) from None


def _text(
    name: str, listener: str, mechanism: str, texts: Mapping[str, str]
) -> tuple[str, str | None]:
    """Returns the strongest property that is set, and its text; the plain name and None if none is."""
    own = prefix_of(listener)
    of_mechanism = [f"{mechanism.lower()}.{name}"] if mechanism else []
    for prefix in (own, ""):
        for each in (*of_mechanism, name):
            if prefix + each in texts:
                return prefix + each, texts[prefix + each]
    return name, None


def _has_known_prefix(name: str) -> bool:
    prefixes = (PREFIX, *(f"{each.lower()}." for each in MECHANISMS))
    return name.startswith(prefixes)
