"""The part of the broker's configuration that is about listeners, connections and their memory.

Source: Apache Kafka, SocketServerConfigs.java, ServerConfigs.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.addresses import HttpListener, Listener, parse_http_listener, resolve_listeners
from storage.config_property import INT, INT_MAX, LIST, LONG, STRING, prop


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """How clients reach the broker, and what they may take of it."""

    listeners: str = prop(
        "listeners",
        STRING,
        default="PLAINTEXT://127.0.0.1:9092",
        dynamic=False,
        doc="Where clients connect: NAME://host:port, separated by commas. No host means all"
        " addresses; port 0 takes a free port.",
    )
    advertised_listeners: str = prop(
        "advertised.listeners",
        STRING,
        default="",
        dynamic=False,
        doc="Where clients are told to connect, if that is not as in listeners: behind a port"
        " mapping, in a container, through a proxy.",
    )
    listener_security_protocol_map: tuple[str, ...] = prop(
        "listener.security.protocol.map",
        LIST,
        default=("PLAINTEXT:PLAINTEXT",),
        dynamic=False,
        doc="NAME:PROTOCOL for each listener whose name is not a protocol's. PLAINTEXT is the only"
        " protocol so far.",
    )
    controller_listener_names: tuple[str, ...] = prop(
        "controller.listener.names",
        LIST,
        default=(),
        dynamic=False,
        doc="Listeners of Kafka's controllers; they are not opened, there is nothing behind them.",
    )
    http_listener: str = prop(
        "http.listener",
        STRING,
        default="127.0.0.1:9644",
        dynamic=False,
        doc="host:port of /metrics and /health; empty for none. A property of Kompakt's own.",
    )
    http_hosts: tuple[str, ...] = prop(
        "http.hosts",
        LIST,
        default=(),
        dynamic=False,
        doc="Names by which HTTP clients may call the broker (the Host of a request), besides its IP"
        " addresses, its host name and the hosts of its listeners: what Prometheus finds it by, for"
        " example. Requests for any other name are refused. A property of Kompakt's own.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        default=100 << 20,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="The largest request; a longer one closes its connection.",
    )
    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_SNDBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " fits it to the connection.",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_RCVBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " fits it to the connection.",
    )
    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        default=55 << 20,
        at_least=1024,
        unit="bytes",
        dynamic=False,
        doc="The most that one Fetch answer holds, but for its first batch.",
    )
    socket_listen_backlog_size: int = prop(
        "socket.listen.backlog.size",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Connections that the system holds before they are accepted.",
    )
    max_connections: int = prop(
        "max.connections",
        INT,
        default=INT_MAX,
        at_least=0,
        doc="The most connections at a time, over all listeners; more are closed at once.",
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip",
        INT,
        default=INT_MAX,
        at_least=0,
        doc="The most connections at a time from one address.",
    )
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms",
        LONG,
        default=600_000,
        at_least=-1,
        unit="ms",
        dynamic=False,
        doc="A connection on which nothing moved for so long is closed; -1: never.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        default=512 << 20,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="Bytes of requests that may be in memory at a time, over all connections: on their way,"
        " queued or carried out; beyond it connections that hold more than a little are not read"
        " from until some are answered. -1: no bound, as Kafka has it by default.",
    )
    queued_max_response_bytes: int = prop(
        "queued.max.response.bytes",
        LONG,
        default=256 << 20,
        at_least=1 << 20,
        unit="bytes",
        dynamic=False,
        doc="Bytes of encoded answers that may wait to be sent, over all connections; records are"
        " sent from their files and do not count. One answer at a time may exceed it. A property of"
        " Kompakt's own.",
    )

    def resolved_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open. Raises ConfigError."""
        return resolve_listeners(
            listeners=self.listeners,
            advertised=self.advertised_listeners,
            protocol_map=self.listener_security_protocol_map,
            controllers=self.controller_listener_names,
        )

    def resolved_http_listener(self) -> HttpListener | None:
        """Where the HTTP endpoint listens, None for nowhere. Raises ConfigError."""
        return parse_http_listener(self.http_listener)
