"""The properties of the broker's listeners, its connections and their memory.

Source: Apache Kafka, SocketServerConfigs.java, ServerConfigs.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.config.listeners.addresses import (
    HTTP_SCHEMES,
    PROTOCOLS_KNOWN,
    HttpListener,
    Listener,
    parse_http_listener,
    resolve_listeners,
)
from storage.formats.config_property import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    ByListener,
    prop,
)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """How clients reach the broker, and how many connections and how much memory they may use."""

    __slots__ = ()

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
        doc="The addresses that clients connect to, if these differ from listeners: behind a port"
        " mapping, in a container, through a proxy.",
    )
    listener_security_protocol_map: tuple[str, ...] = prop(
        "listener.security.protocol.map",
        LIST,
        default=("PLAINTEXT:PLAINTEXT", "SSL:SSL"),
        dynamic=False,
        doc="NAME:PROTOCOL for each listener that is not named after its protocol. The protocols are"
        " PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    )
    inter_broker_listener_name: str = prop(
        "inter.broker.listener.name",
        STRING,
        default="",
        dynamic=False,
        doc="The listener by which brokers and standbys reach each other. Only there, clients with"
        " ClusterAction on the cluster may fetch the metadata, as kompakt standby does; and an answer to"
        " Fetch may begin with batches without records, as in Kafka.",
    )
    security_inter_broker_protocol: str = prop(
        "security.inter.broker.protocol",
        STRING,
        default="PLAINTEXT",
        choices=PROTOCOLS_KNOWN,
        dynamic=False,
        doc="The protocol between brokers. It is checked, and not used: there is one broker.",
    )
    allow_unauthenticated_listeners: bool = prop(
        "allow.unauthenticated.listeners",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether a listener that asks clients for no authentication may listen on an address that"
        " other machines reach. Without it the broker refuses to start with such a listener, or with"
        " such an http.listener, or one that takes passwords without TLS. Specific to Kompakt.",
    )
    controller_listener_names: tuple[str, ...] = prop(
        "controller.listener.names",
        LIST,
        default=(),
        dynamic=False,
        doc="Listeners of Kafka's controllers; the broker does not open them, because it serves nothing"
        " there.",
    )
    http_listener: str = prop(
        "http.listener",
        STRING,
        default="127.0.0.1:9644",
        dynamic=False,
        doc="host:port of the HTTP endpoint (metrics, health, compaction), https://host:port with TLS;"
        " empty for none. The properties of its TLS are listener.name.http.ssl.* or ssl.*. Specific to"
        " Kompakt.",
    )
    http_authentication: tuple[str, ...] = prop(
        "http.authentication",
        LIST,
        default=(),
        choices=HTTP_SCHEMES,
        dynamic=False,
        doc="How HTTP clients log in: basic, with a user's password as for PLAIN"
        " (listener.name.http.plain.sasl.jaas.config, or SCRAM users); bearer, with a token as for"
        " OAUTHBEARER (listener.name.http.oauthbearer.*). Client certificates need ssl.client.auth"
        " instead. With any of these, ACLs apply to HTTP requests; without, every client that reaches"
        " the endpoint may do everything. Specific to Kompakt.",
    )
    http_metrics_public: bool = prop(
        "http.metrics.public",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether /metrics needs no login where the HTTP endpoint has logins. /health never does."
        " Specific to Kompakt.",
    )
    http_hosts: tuple[str, ...] = prop(
        "http.hosts",
        LIST,
        default=(),
        dynamic=False,
        doc="Names that HTTP clients may use for the broker (the Host of a request), besides its IP"
        " addresses, its host name and the hosts of its listeners: the name by which Prometheus reaches"
        " it, for example. Requests for any other name are refused. Specific to Kompakt.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        default=100 << 20,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="The size of the largest request; the broker closes the connection of a larger one.",
    )
    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_SNDBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " adapts it to the connection.",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_RCVBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " adapts it to the connection.",
    )
    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        default=55 << 20,
        at_least=1024,
        unit="bytes",
        dynamic=False,
        doc="The most bytes of records in one Fetch answer; only its first batch may exceed it.",
    )
    max_incremental_fetch_session_cache_slots: int = prop(
        "max.incremental.fetch.session.cache.slots",
        INT,
        default=1000,
        at_least=0,
        dynamic=False,
        doc="The most fetch sessions at a time, by which clients need not name all their partitions in"
        " each Fetch; 0: none. Together they remember up to 100,000 partitions.",
    )
    socket_listen_backlog_size: int = prop(
        "socket.listen.backlog.size",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="The number of connections that the system queues until the broker accepts them.",
    )
    max_connections: int = prop(
        "max.connections",
        INT,
        default=INT_MAX,
        at_least=0,
        by_listener=ByListener.WHILE_RUNNING,
        doc="The most connections at a time, over all listeners; further ones are closed at once.",
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
        doc="The broker closes a connection that was idle for this long; -1: never.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        default=512 << 20,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="The most bytes of requests in memory at a time, over all connections: being received,"
        " queued or processed. Beyond it, the broker stops reading from connections that hold more than"
        " a little, until it has answered some. -1: no bound, Kafka's default.",
    )
    queued_max_response_bytes: int = prop(
        "queued.max.response.bytes",
        LONG,
        default=256 << 20,
        at_least=1 << 20,
        unit="bytes",
        dynamic=False,
        doc="The most bytes of encoded answers that wait to be sent, over all connections; records are"
        " sent from their files and do not count. One answer at a time may exceed it. Specific to"
        " Kompakt.",
    )

    def resolved_listeners(self) -> tuple[Listener, ...]:
        """Returns the listeners to open. Raises ConfigError."""
        return resolve_listeners(
            listeners=self.listeners,
            advertised=self.advertised_listeners,
            protocol_map=self.listener_security_protocol_map,
            controllers=self.controller_listener_names,
        )

    def resolved_http_listener(self) -> HttpListener | None:
        """Returns where the HTTP endpoint listens; None: nowhere. Raises ConfigError."""
        return parse_http_listener(self.http_listener)
