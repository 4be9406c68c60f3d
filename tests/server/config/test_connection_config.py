"""Limits on connections: the properties of addresses and of single listeners."""

from __future__ import annotations

import pytest

from server.config.config import BrokerConfig
from storage.formats.config_property import ConfigError

LISTENERS = {
    "listeners": "INTERNAL://127.0.0.1:9092,OUTSIDE://127.0.0.1:9094",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def test_addresses_have_their_own_limits() -> None:
    texts = {"max.connections.per.ip.overrides": "10.0.0.7:500, ::1:20, [fe80::2]:0"}
    config = BrokerConfig.from_texts(texts)
    assert config.connections_max_by_ip() == {"10.0.0.7": 500, "::1": 20, "fe80::2": 0}


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:", "10.0.0.7:-1", "broker:5", ":5"])
def test_a_wrong_limit_of_an_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected ADDRESS:NUMBER"):
        BrokerConfig.from_texts({"max.connections.per.ip.overrides": text})


def test_a_listener_has_its_own_limit() -> None:
    name = "listener.name.outside.max.connections"
    config = BrokerConfig.from_texts({**LISTENERS, name: "7"})
    assert config.limits_by_listener("max_connections") == {"OUTSIDE": 7}
    assert config.limits_by_listener("max_connection_creation_rate") == {}


def test_a_wrong_limit_of_a_listener_is_refused() -> None:
    name = "listener.name.outside.max.connections"
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        BrokerConfig.from_texts({**LISTENERS, name: "many"})
