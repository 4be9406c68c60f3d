"""What SASL listeners accept, from the properties of a whole configuration."""

from __future__ import annotations

import logging

import pytest

from server.config.config import BrokerConfig
from server.config.listeners.sasl_listeners import OAuthRules, SaslListener
from storage.formats.config_property import ConfigError

LISTENERS = {
    "listeners": "IN://127.0.0.1:9092,OUT://127.0.0.1:9093,SASL_PLAINTEXT://127.0.0.1:9094",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def resolved(**texts: str) -> dict[str, SaslListener]:
    given = {name.replace("__", "."): text for name, text in texts.items()}
    return BrokerConfig.from_texts(LISTENERS | given).resolved_sasl_listeners()


def out(texts: dict[str, str]) -> SaslListener:
    return BrokerConfig.from_texts(LISTENERS | texts).resolved_sasl_listeners()["OUT"]


def test_only_sasl_listeners_are_resolved() -> None:
    found = resolved()
    assert found.keys() == {"OUT", "SASL_PLAINTEXT"}
    assert found["OUT"] == SaslListener(name="OUT", mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256"))


def test_a_listener_s_property_goes_before_the_general_one() -> None:
    texts = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.out.sasl.enabled.mechanisms": "PLAIN",
        "sasl.server.max.receive.size": "1000",
        "listener.name.out.sasl.server.max.receive.size": "2000",
    }
    found = BrokerConfig.from_texts(LISTENERS | texts).resolved_sasl_listeners()
    assert found["OUT"].mechanisms == ("PLAIN",)
    assert found["OUT"].receive_bytes_max == 2000
    assert found["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-256", "PLAIN")
    assert found["SASL_PLAINTEXT"].receive_bytes_max == 1000


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.out.plain.sasl.jaas.config",
        "listener.name.out.sasl.jaas.config",
        "plain.sasl.jaas.config",
        "sasl.jaas.config",
    ],
)
def test_users_of_plain_are_the_options_of_the_login_module(name: str) -> None:
    users = f'{MODULE} username="admin" password="x" user_alice="a b" user_="" user_bob=b;'
    listener = out({"sasl.enabled.mechanisms": "PLAIN", name: users})
    assert listener.plain_users == {"alice": "a b", "": "", "bob": "b"}


def test_the_strongest_login_module_counts_alone() -> None:
    listener = out(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.plain.sasl.jaas.config": f"{MODULE} user_alice=1;",
            "sasl.jaas.config": f"{MODULE} user_bob=2;",
        }
    )
    assert listener.plain_users == {"alice": "1"}


def test_the_general_login_module_may_be_another_mechanism_s() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required username=a;"
    texts = {"sasl.enabled.mechanisms": "PLAIN"}
    assert out(texts | {"sasl.jaas.config": module}).plain_users == {}
    name = "listener.name.out.plain.sasl.jaas.config"
    with pytest.raises(ConfigError) as refused:
        out(texts | {name: module})
    assert str(refused.value) == f"{name}: expected a PlainLoginModule, but got ScramLoginModule"


def test_sessions_are_bounded_by_mechanism() -> None:
    listener = out(
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connections.max.reauth.ms": "1000",
            "listener.name.out.plain.connections.max.reauth.ms": "2000",
            "listener.name.out.scram-sha-256.connections.max.reauth.ms": "0",
        }
    )
    assert listener.session_ms == {"PLAIN": 2000, "SCRAM-SHA-512": 1000}


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "sasl.enabled.mechanisms: GSSAPI is not served; use some of PLAIN, SCRAM-SHA-256",
        ),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER"},
            "sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs the URL of the issuer's keys",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "ftp://idp/keys",
            },
            "sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs the URL of the issuer's keys",
        ),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms: no mechanism is enabled"),
        (
            {"listener.name.out.sasl.enabled.mechanisms": "scram-sha-256"},
            "listener.name.out.sasl.enabled.mechanisms: scram-sha-256 is not served",
        ),
        (
            {"listener.name.out.connections.max.reauth.ms": "-1"},
            "Invalid value -1 for configuration listener.name.out.connections.max.reauth.ms",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{MODULE} user_a=secret"},
            "sasl.jaas.config: JAAS config entry not terminated by semi-colon",
        ),
    ],
)
def test_a_wrong_property_is_named(texts: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        out(texts)
    assert str(refused.value).startswith(error)
    assert "secret" not in str(refused.value)


def test_rules_for_tokens() -> None:
    listener = out(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
            "listener.name.out.sasl.oauthbearer.expected.audience": "kafka, other",
            "listener.name.out.oauthbearer.sasl.oauthbearer.sub.claim.name": "client_id",
        }
    )
    assert listener.oauth == OAuthRules(
        keys_url="https://idp/keys",
        issuer="",
        audiences=("kafka", "other"),
        clock_skew_s=30,
        scope_claim="scope",
        subject_claim="client_id",
        refresh_ms=3_600_000,
        retry_ms=100,
        retry_max_ms=10_000,
    )


def test_kafka_s_default_mechanism_stops_no_broker_without_sasl() -> None:
    texts = {"sasl.enabled.mechanisms": "GSSAPI"}
    assert BrokerConfig.from_texts(texts).resolved_sasl_listeners() == {}


def test_properties_of_listeners_are_known_and_other_names_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        out(
            {
                "listener.name.out.plain.sasl.jaas.config": f"{MODULE} user_a=secret;",
                "listener.name.out.scram-sha-512.connections.max.reauth.ms": "1",
                "listener.name.out.sasl.nonsense": "1",
            }
        )
    assert caplog.messages == [
        "Kafka properties without effect here: listener.name.out.sasl.nonsense"
    ]


def test_passwords_do_not_show() -> None:
    config = LISTENERS | {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f"{MODULE} user_a=secret;",
    }
    broker = BrokerConfig.from_texts(config)
    assert "secret" not in repr(broker)
    assert "secret" not in repr(broker.resolved_sasl_listeners())
    (row,) = [each for each, _ in broker.rows() if each.name == "sasl.jaas.config"]
    assert row.is_sensitive
