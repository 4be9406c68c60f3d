"""The properties that bound how many connections clients open, how fast, and how long they stay silent.

    max.connections.per.ip.overrides    10.0.0.7:500,::1:20

`listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate` bound one
listener.

Source: KIP-402, KIP-612; Apache Kafka, SocketServerConfigs.java.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from storage.formats.config_property import (
    INT,
    INT_MAX,
    LONG,
    STRING,
    ByListener,
    ConfigError,
    prop,
)

OVERRIDES = "max.connections.per.ip.overrides"


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """Limits on connections, besides `max.connections` and `max.connections.per.ip`."""

    __slots__ = ()

    max_connections_per_ip_overrides: str = prop(
        OVERRIDES,
        STRING,
        default="",
        doc="ADDRESS:NUMBER, separated by commas, for addresses that may have more or fewer connections"
        " at a time than max.connections.per.ip. Addresses only: unlike Kafka, the broker looks no host"
        " name up.",
    )
    max_connection_creation_rate: int = prop(
        "max.connection.creation.rate",
        INT,
        default=INT_MAX,
        at_least=0,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The most new connections a second, over all listeners; beyond it, a new connection waits"
        " for its turn.",
    )
    connections_first_request_timeout_ms: int = prop(
        "connections.first.request.timeout.ms",
        LONG,
        default=60_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The broker closes a new connection that has not sent a whole request within this time; 0:"
        " only connections.max.idle.ms counts. Specific to Kompakt.",
    )

    def connections_max_by_ip(self) -> Mapping[str, int]:
        """Returns the limits of single addresses. Raises ConfigError."""
        texts = self.max_connections_per_ip_overrides.split(",")
        return dict(_override(text.strip()) for text in texts if text.strip())


def _override(text: str) -> tuple[str, int]:
    address, _, number = text.rpartition(":")
    try:
        ip, count = str(ipaddress.ip_address(address.strip("[]"))), int(number)
    except ValueError:
        raise _wrong(text) from None
    if count < 0:
        raise _wrong(text)
    return ip, count


def _wrong(text: str) -> ConfigError:
    expected = "expected ADDRESS:NUMBER, such as 10.0.0.7:500"
    return ConfigError(f"Invalid value {text} for configuration {OVERRIDES}: {expected}")
